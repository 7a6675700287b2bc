package nginx

import (
	"fmt"
	"slices"
	"strings"
)

// limit is one of the policy, made of a zone and of how it is used.
type limit struct {
	use
	name   string
	key    key
	shadow bool
	log    string
	status int    // 0 is the route's
	shared string // the name of the zone that it shares with others; empty for none
}

// maxBurst is the largest burst that a limit of one a minute has: it takes 95 years to serve.
const maxBurst = 50_000_000

// limit returns the place of a limit of the policy: one for each way in which a zone is used.
func (c *converter) limit(l limit) int {
	if l.burst > maxBurst {
		c.note(l.d.Position, "the burst is cut to %d", maxBurst)
		l.burst = maxBurst
	}
	for i, known := range c.limits {
		if known.sameState(&l) && known.burst == l.burst && known.delayAfter() == l.delayAfter() && known.most == l.most && known.shadow == l.shadow &&
			known.log == l.log && known.status == l.status {
			return i
		}
	}
	l.name = c.free(slug(l.zone.name), func(n string) bool {
		return slices.ContainsFunc(c.limits, func(o limit) bool { return o.name == n })
	})
	c.limits = append(c.limits, l)
	return len(c.limits) - 1
}

// sameState reports whether two limits count by the same state: that of one zone, with one key.
func (l *limit) sameState(o *limit) bool {
	return l.zone == o.zone && slices.Equal(l.key.parts, o.key.parts)
}

// share names the zones of limits that count together: where a zone is used in several ways, or as a dry run, which charges the zone.
func (c *converter) share() {
	taken := map[string]bool{}
	for i := range c.limits {
		l := &c.limits[i]
		several := slices.ContainsFunc(c.limits, func(o limit) bool { return o.name != l.name && o.sameState(l) })
		if l.shared != "" || !several && !l.shadow {
			continue
		}
		name := c.free(slug(l.zone.name), func(n string) bool { return taken[n] })
		taken[name] = true
		for j := range c.limits {
			if c.limits[j].sameState(l) {
				c.limits[j].shared = name
			}
		}
	}
}

// free is a name that is not taken.
func (c *converter) free(name string, taken func(string) bool) string {
	free := name
	for i := 2; taken(free); i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free
}

// slug is a text as a name in a policy.
func slug(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || b.Len() > 0 && (r == '.' || r == '_' || r == '-') {
			b.WriteRune(r)
		} else if b.Len() > 0 {
			b.WriteByte('-')
		}
	}
	if s := b.String(); s != "" {
		return s[:min(len(s), 80)]
	}
	return "unnamed"
}
