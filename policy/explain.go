package policy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
)

// An Explanation says why a limit decides about a key as it does.
type Explanation struct {
	Answer   *Answer           // of Peek
	Rule     weir.Limit        // with the parameters that apply to the key
	Fields   map[string]string // of Rule, as in a policy file
	By       string            // "limit", "plan", "ban", "grant", "exemption" or "roll_out"
	Override time.Duration     // until the ban or the grant ends; 0 without one
	Store    string            // empty for a limit in memory
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
	return x, nil
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
	case x.Answer.Err != nil:
		return fmt.Sprintf("decided without the store %q, which did not respond", x.Store)
	}
	text := "allowed"
	switch {
	case d.Allowed:
	case d.RetryAfter == weir.Never:
		text = "refused, and no wait helps"
	default:
		text = "refused for another " + duration.Format(max(d.RetryAfter.Round(time.Millisecond), time.Millisecond))
	}
	if a.Shadow {
		text = "shadow, not enforced: " + text
	}
	return fmt.Sprintf("%s: %d of %d left (%s)", text, d.Remaining, d.Limit, of)
}
