package policy

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/rules"
)

// Undecidable says what an error of a store about one key (weir.ErrCharge) means.
const Undecidable = "the store works, but cannot decide about the key: the value it holds is damaged, or not the store's own"

// StoreProblem says what an error of a store means for a key.
func StoreProblem(err error) string {
	if errors.Is(err, weir.ErrCharge) {
		return Undecidable
	}
	return "the store did not respond"
}

// An Explanation says why a limit decides about a key as it does.
type Explanation struct {
	Answer   *Answer           // of Peek
	Rule     weir.Limit        // with the parameters that apply to the key
	Fields   map[string]string // of Rule, as in a policy file
	By       string            // "limit", "plan", "ban", "grant", "exemption" or "roll_out"
	Override time.Duration     // until the ban or the grant ends; 0 without one
	Store    string            // empty for a limit in memory

	// Waits is for how long a request would be delayed that may wait in the queue of the limit, which Take does not;
	// 0 if the queue is full, or if there is none.
	Waits time.Duration
}

// Explain says why Take would admit or refuse an ask. It charges and counts nothing.
func (e *Engine) Explain(ctx context.Context, ask Ask) (*Explanation, error) {
	all, err := e.check([]Ask{ask})
	if err != nil {
		return nil, err
	}
	a, err := e.Peek(ctx, []Ask{ask})
	if err != nil {
		return nil, err
	}
	n := all[0]
	l := n.limit.of(n.plan)
	x := &Explanation{Answer: a, Rule: l.Limit.Limit, By: "limit", Store: l.Store}
	r := &request{named: &namedAsks{all: all, peek: true}}
	r.Client = n.client
	key, _ := l.key(nil, r)
	if active := l.except.now(); active != nil {
		now := active.clock()
		if o := active.find(l, key, r, now); o != nil {
			x.By, x.Override = "grant", time.Duration(o.until-now)
			if o.Ban {
				x.By = "ban"
			}
			if o.limit != nil {
				x.Rule = o.limit
			}
		}
	}
	switch {
	case x.Override > 0:
	case l.unlimited || l.plan != "":
		x.By = "plan"
	case l.exempt.has(key, false, r):
		x.By = "exemption"
	case a.Each[0].Exempt:
		x.By = "roll_out"
	}
	if x.Rule == nil { // of an unlimited plan
		x.Rule = n.limit.Limit.Limit
	}
	x.Fields = fieldTexts(x.Rule)
	x.Waits = x.waits()
	return x, nil
}

// waits computes Waits. A queue is the wait of the request that comes next, and is full from the wait on that all of its
// places but the last one take.
func (x *Explanation) waits() time.Duration {
	each := &x.Answer.Each[0]
	d := each.Decision
	if !rules.KindOf(x.Rule).Queues || d.Allowed || d.RetryAfter == weir.Never || !each.Evaluated || d.Limit <= 1 || x.By == "ban" {
		return 0
	}
	const unit = time.Microsecond // of a store's clock: both times were rounded
	if d.ResetAfter-unit > muldiv(each.Window, d.Limit-each.Cost, d.Limit) {
		return 0
	}
	return d.RetryAfter
}

// muldiv is a part of a duration: n of m.
func muldiv(d time.Duration, n, m int64) time.Duration {
	if n < 0 {
		return -1
	}
	high, low := bits.Mul64(uint64(max(d, 0)), uint64(n))
	part, _ := bits.Div64(high, low, uint64(m)) // n <= m
	return time.Duration(part)
}

// Arithmetic says how the decision follows from the state: what is used, what a request needs, when that is back, and how. It is
// empty if the state does not matter, as for a ban.
func (x *Explanation) Arithmetic() string {
	each := &x.Answer.Each[0]
	d := each.Decision
	if x.By == "ban" || each.Exempt || x.Answer.Err != nil || d.Limit <= 0 || d.Source == weir.SourceDeny || d.Source == weir.SourceAllow {
		return ""
	}
	text := fmt.Sprintf("%d of %d used, so %d left, and a cost of %d", d.Limit-d.Remaining, d.Limit, d.Remaining, each.Cost)
	back := rules.KindOf(x.Rule).Returns
	switch {
	case d.Allowed:
		text += " is admitted"
	case d.RetryAfter == weir.Never:
		return text + fmt.Sprintf(" is more than %d, which is all that there ever is", d.Limit)
	case x.Waits > 0:
		text = fmt.Sprintf("the queue is %s long, and a request waits so long", shortest(x.Waits))
	case rules.KindOf(x.Rule).Queues && d.ResetAfter > 0:
		text = fmt.Sprintf("the queue of %d is full", d.Limit-1)
	default:
		text += fmt.Sprintf(" has to wait for %d more, which takes %s", max(each.Cost-d.Remaining, 1), shortest(d.RetryAfter))
	}
	if back != "" {
		text += ": " + back
	}
	if d.ResetAfter > 0 {
		text += fmt.Sprintf("; all of it is back in %s", shortest(d.ResetAfter))
	}
	return text
}

// shortest writes a duration in whole milliseconds, rounded up: sooner would be too early.
func shortest(d time.Duration) string {
	const unit = time.Millisecond
	return duration.Format((d + unit - 1) / unit * unit)
}

// String says it in a sentence.
func (x *Explanation) String() string {
	a := &x.Answer.Each[0]
	d := a.Decision
	left := duration.Format(x.Override.Round(time.Second))
	of := weir.Algorithm(x.Rule)
	if rule := RuleText(x.Rule); rule != "" {
		of += " " + rule
	}
	switch {
	case x.By == "ban":
		return fmt.Sprintf("refused: the key is banned for %s", left)
	case x.By == "grant" && a.Exempt:
		return fmt.Sprintf("allowed: the key has a grant for %s", left)
	case x.By == "plan" && a.Exempt:
		return fmt.Sprintf("allowed: the plan %q is unlimited", a.Plan)
	case a.Exempt:
		return fmt.Sprintf("allowed: the limit does not apply to the key (%s)", strings.ReplaceAll(x.By, "_", "-"))
	case errors.Is(x.Answer.Err, weir.ErrCharge):
		return fmt.Sprintf("refused: %s (store %q)", Undecidable, x.Store)
	case x.Answer.Err != nil:
		return fmt.Sprintf("decided without the store %q, which did not respond", x.Store)
	case d.Source == weir.SourceDeny && !d.Allowed:
		return fmt.Sprintf("refused: the store %q is unavailable, and on_failure of the limit is deny", x.Store)
	case d.Source == weir.SourceAllow && d.Allowed:
		return fmt.Sprintf("allowed: the store %q is unavailable, and on_failure of the limit is allow", x.Store)
	}
	text := "allowed"
	switch {
	case d.Allowed:
	case d.RetryAfter == weir.Never:
		text = "refused, and no wait helps"
	case x.Waits > 0:
		text = "delayed: a request waits " + shortest(x.Waits) + " in the queue, and a take, which does not wait, is refused"
	default:
		text = "refused for another " + shortest(d.RetryAfter)
	}
	if a.Shadow {
		text = "shadow, not enforced: " + text
	}
	text = fmt.Sprintf("%s: %d of %d left (%s)", text, d.Remaining, d.Limit, of)
	if d.Source == weir.SourceShare {
		text += fmt.Sprintf("; by this node's share, as the store %q is unavailable", x.Store)
	}
	return text
}
