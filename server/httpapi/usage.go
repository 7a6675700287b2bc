package httpapi

import (
	"net/http"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/decisions"
)

// used is what a key has used of a limit.
type used struct {
	Limit     string   `json:"limit"`
	Key       []string `json:"key,omitempty"`
	Plan      string   `json:"plan,omitempty"`
	Capacity  int64    `json:"capacity"`
	Used      int64    `json:"used"`
	Remaining int64    `json:"remaining"`
	Reset     int64    `json:"reset_after_ms"`
	Next      int64    `json:"next_after_ms"` // until a request is admitted again; 0: now
	Shadow    bool     `json:"shadow,omitempty"`
	Problem   string   `json:"store_problem,omitempty"`
}

// usage answers what a key has used of its limits.
func (f *Face) usage(c *call) (any, error) {
	q := c.r.URL.Query()
	if len(q["key"]) == 0 {
		return nil, &problem{Status: http.StatusBadRequest, Field: "key", Detail: "no key is named", Fix: "/v1/usage?key=PART, once for each part of the key"}
	}
	if err := c.engine.CheckPlan(q.Get("plan")); err != nil {
		return nil, err
	}
	all := []used{}
	for _, u := range c.engine.Usage(c.r.Context(), q.Get("limit"), q["key"], q.Get("plan")) {
		if !c.token.reaches(u.Limit) {
			continue
		}
		x := used{Limit: u.Limit, Key: u.Key, Plan: u.Plan, Capacity: u.Of, Used: u.Used, Remaining: u.Left, Reset: ms(u.Reset), Shadow: u.Shadow}
		if u.Next > 0 {
			x.Next = ms(u.Next)
		}
		if u.Problem != nil {
			x.Problem = policy.StoreProblem(u.Problem)
		}
		all = append(all, x)
	}
	if len(all) == 0 {
		return nil, &problem{Status: http.StatusNotFound, Field: "key", Detail: "no limit has a key of as many parts that this could be", Fix: "send the parts in the order of the limit's key"}
	}
	return map[string]any{"usage": all}, nil
}

// explanation says why a limit decides as it does.
type explanation struct {
	state
	Key       []string            `json:"key"`
	Plan      string              `json:"plan,omitempty"`
	Algorithm string              `json:"algorithm"`
	Fields    map[string]string   `json:"parameters"`
	By        string              `json:"decided_by"` // limit, plan, ban, grant, exemption or roll_out
	Until     string              `json:"override_ends,omitempty"`
	Store     string              `json:"store,omitempty"`
	Problem   string              `json:"store_problem,omitempty"`
	ClearsAt  string              `json:"clears_at,omitempty"` // when the same work is admitted again
	Waits     int64               `json:"waits_ms,omitempty"`  // how long a request would wait in the limit's queue
	Math      string              `json:"arithmetic,omitempty"`
	Text      string              `json:"text"`
	Refusals  []decisions.Refusal `json:"refusals"` // the latest
}

// explain answers why a key of a limit is admitted or refused.
func (f *Face) explain(c *call) (any, error) {
	q := c.r.URL.Query()
	limit := q.Get("limit")
	if limit == "" {
		return nil, &problem{Status: http.StatusNotFound, Field: "limit", Detail: "no limit is named", Fix: "/v1/explain?limit=NAME&key=PART, with a key for each part of the limit's key"}
	}
	if !c.token.reaches(limit) {
		return nil, &problem{Status: http.StatusForbidden, Field: "limit", Detail: "the token is not for this limit", Fix: "add it to the token's limits"}
	}
	x, err := c.engine.Explain(c.r.Context(), policy.Ask{Limit: limit, Key: q["key"], Plan: q.Get("plan"), OwnCost: true})
	if err != nil {
		return nil, err
	}
	a := x.Answer.Each[0]
	now := time.Now()
	out := explanation{state: decisionOf(x.Answer).Limits[0], Key: a.Key, Plan: a.Plan, Algorithm: weir.Algorithm(x.Rule), Fields: x.Fields, By: x.By, Store: x.Store, Text: x.String(), Math: x.Arithmetic(), Waits: ms(x.Waits)}
	out.Refusals = f.policy.Decisions().Refusals(limit, policy.EncodeKey(a.Key...))
	if out.Key == nil {
		out.Key = []string{}
	}
	if x.Answer.Err != nil {
		out.Problem = policy.StoreProblem(x.Answer.Err)
	}
	if x.Override > 0 {
		out.Until = now.Add(x.Override).UTC().Format(time.RFC3339)
	}
	if !a.Decision.Allowed && a.Decision.RetryAfter != weir.Never {
		out.ClearsAt = now.Add(a.Decision.RetryAfter + time.Millisecond - 1).UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
	}
	return out, nil
}
