package policy

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// Warnings is where Warnings are sent, besides metrics and clients.
type Warnings struct {
	Webhook    string // a URL that gets a POST with each; empty for none
	SecretFile string // holds the secret that the calls are signed with; empty: they are not signed
}

// A Warning says that a key has used as much of a limit as the limit's WarnAt.
type Warning struct {
	Limit    string
	Key      []string // its parts; nil for a key that is kept as a hash, as it is long
	Plan     string
	Decision weir.Decision
	At       time.Time // just before the decision: its ResetAfter counts from then
}

// parseWarnAt parses a share of a limit, like 80%; 0 for an empty text.
func parseWarnAt(text string) (percent int64, err error) {
	if text == "" {
		return 0, nil
	}
	number, ok := strings.CutSuffix(text, "%")
	percent, err = strconv.ParseInt(number, 10, 8)
	if !ok || err != nil || percent < 1 || percent > 100 {
		return 0, fmt.Errorf("%q is not a share of a limit", text)
	}
	return percent, nil
}

// warnsAt returns from how much on a limit of that size warns.
func (l *limit) warnsAt(size int64) int64 {
	unused := 100 - l.warnAt
	return size - size/100*unused - size%100*unused/100
}

// warned reports whether a decision has reached WarnAt, and how much of the limit is used, in percent.
func (l *limit) warned(d *weir.Decision) (is bool, percent int64) {
	used := d.Limit - d.Remaining
	if l.warnAt == 0 || d.Limit <= 0 || used < l.warnsAt(d.Limit) {
		return false, 0
	}
	if used <= 1<<56 {
		return true, min(used*100/d.Limit, 100)
	}
	return true, min(used/(d.Limit/100), 100)
}

// warn counts and passes on the warnings of a request: of each limit of which it took the part that
// reaches WarnAt. So there is one in each window and for each key, also if several nodes share the
// limit.
//
// The true cost of a request may be known only afterwards. Then the first request warns that finds the
// part used, its own estimate not counted, and also if it is refused. A mark in the store says whether
// another node has warned.
func (v *Verdict) warn(e *Engine, r *request, at time.Time) {
	for i, l := range v.evaluated {
		if l.warnAt == 0 || v.charges != nil && v.charges[i].Skip {
			continue
		}
		d, cost := v.Decision, v.cost
		if v.charges != nil {
			d, cost = v.charges[i].Decision, v.charges[i].Cost
		}
		if is, _ := l.warned(&d); !is {
			continue
		}
		if !d.Allowed {
			cost = 0
		}
		var buf [maxKey]byte
		key, _ := l.key(buf[:0], r)
		switch before := d.Limit - d.Remaining - cost; {
		case v.estimates || l.opens(r) != openNot:
			if before < l.warnsAt(d.Limit) || !l.warnedOf.add(l.plan+"\x00"+string(key), e.now(), d.ResetAfter) {
				continue
			}
			if l.store != nil && l.warnLater(e, string(key), l.keyInStore(key, r), d, at) {
				continue
			}
		case v.Outcome == Deny, before >= l.warnsAt(d.Limit):
			continue
		}
		l.sendWarning(e, string(key), d, at)
	}
}

func (l *limit) sendWarning(e *Engine, key string, d weir.Decision, at time.Time) {
	l.counts.warned.Add(1)
	if e.opts.Warn != nil {
		w := Warning{Limit: l.Name, Plan: l.plan, Decision: d, At: at}
		w.Key, _ = DecodeKey(key)
		e.opts.Warn(w)
	}
}

// warnedName begins the names of marks. No limit of a policy has capitals.
const warnedName = "WARNED."

// warnLater calls warnFirst in the background. It reports false if too many calls of stores run.
func (l *limit) warnLater(e *Engine, key, stored string, d weir.Decision, at time.Time) bool {
	return e.shadows.try(func() { l.warnFirst(e, key, stored, d, at) })
}

// warnFirst warns unless another node has: the first takes the mark of the key and window in the store, a
// limit of 1 with the windows of this one. If the store does not decide about it, each node warns.
func (l *limit) warnFirst(e *Engine, key, stored string, d weir.Decision, at time.Time) {
	if mark := l.mark(); mark != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		batch, out := []weir.Charge{{Name: warnedName + l.state, Key: stored, Limit: mark, Plan: l.plan, Cost: 1}}, make([]weir.Decision, 1)
		err := l.store.Do(ctx, batch, out)
		if by := out[0].Source; err == nil && !out[0].Allowed && (by == weir.SourceStore || by == weir.SourceLease || by == weir.SourceLocal) {
			return
		}
	}
	l.sendWarning(e, key, d, at)
}

// mark returns the limit whose first call in a window is admitted; nil for an algorithm that has none.
func (l *limit) mark() weir.Limit {
	p, ok := rules.ParamsOf(l.Limit.Limit).(rules.Shared)
	size, _ := capacityOf(l.Limit.Limit)
	if !ok || size < 1 {
		return nil
	}
	mark := rules.WithParams(l.Limit.Limit, p.Share(size))
	of, err := weir.Prepare(mark, time.Microsecond)
	if err != nil || of.Largest() != 1 || !of.Peek(nil, 0, 1).Allowed {
		return nil
	}
	return mark
}

// warnings checks when a limit warns.
func (c *checker) warnings(l *Limit) {
	if _, err := parseWarnAt(l.WarnAt); err != nil {
		c.wrong(err.Error(), "write one from 1% to 100%, like 80%", "limits", l.Name, "warn_at")
	} else if l.WarnAt != "" && (l.Shadow || l.isConcurrency() || l.RollOut != "") {
		c.wrong("a shadow limit, a roll_out and a concurrency do not warn", "take warn_at out", "limits", l.Name, "warn_at")
	}
}

// webhook checks the URL that gets warnings.
func (c *checker) webhook() {
	if c.Warnings.Webhook == "" && c.Warnings.SecretFile != "" {
		c.wrong("there is a secret_file, and no webhook that it would sign", "webhook: https://hooks.example/weir", "warnings", "secret_file")
	}
	if w := c.Warnings.Webhook; w != "" {
		if u, err := url.Parse(w); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			c.wrong("the webhook is not an http or https URL", "webhook: https://hooks.example/weir", "warnings", "webhook")
		} else if !c.Warns() {
			c.warn("no limit warns", "warn_at: 80% at a limit", "warnings", "webhook")
		}
	}
}

// Warns reports whether some limit warns.
func (p *Policy) Warns() bool {
	for i := range p.Limits {
		if p.Limits[i].WarnAt != "" {
			return true
		}
	}
	return false
}
