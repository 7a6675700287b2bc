package nginx

import (
	"fmt"
	"slices"
	"strings"
)

// limit is a limit of the policy: a zone, and how it is used.
type limit struct {
	use
	name   string
	key    key
	shadow bool
	log    string
	status int    // default: the route's
	shared string // the name of the zone that it shares with other limits; otherwise empty
}

// maxBurst is the largest burst for a limit of one request per minute: it takes 95 years to serve.
const maxBurst = 50_000_000

// limit returns the position of a limit in the policy. Each way to use a zone becomes one limit.
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

// sameState reports whether two limits share a state: they have the same zone and the same key.
func (l *limit) sameState(o *limit) bool {
	return l.zone == o.zone && slices.Equal(l.key.parts, o.key.parts)
}

// share names the zones whose limits share a state: zones that are used in several ways, or as a
// dry run, which charges the zone.
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

// free returns a name that is not taken.
func (c *converter) free(name string, taken func(string) bool) string {
	free := name
	for i := 2; taken(free); i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	return free
}

// slug turns a text into a valid name for a policy.
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
