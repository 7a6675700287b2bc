package admin

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"time"

	"github.com/weirflow/weir/internal/asciijson"
	"github.com/weirflow/weir/policy"
)

// usage is what a key has used of a limit.
type usage struct {
	Limit     string   `json:"limit"`
	Key       []string `json:"key,omitempty"`
	Plan      string   `json:"plan,omitempty"`
	Allowed   int64    `json:"allowed"`   // by the limit
	Used      int64    `json:"used"`      // of it
	Remaining int64    `json:"remaining"` // of it
	ResetAt   string   `json:"reset_at,omitempty"`
	// when a request is admitted again; without it, one is now
	NextAt string `json:"next_at,omitempty"`
	// the limit does not apply to the plan: what is used is counted, and nothing remains
	Unlimited bool   `json:"unlimited,omitempty"`
	Shadow    bool   `json:"shadow,omitempty"`
	Error     string `json:"error,omitempty"` // of a store that did not respond
}

func usageOf(u policy.Usage) usage {
	out := usage{Limit: u.Limit, Key: u.Key, Plan: u.Plan, Allowed: u.Of, Used: u.Used, Remaining: u.Left, Unlimited: u.Unlimited, Shadow: u.Shadow}
	if u.Problem != nil {
		out.Error = u.Problem.Error()
	}
	if u.Reset > 0 {
		out.ResetAt = second(u.At.Add(u.Reset))
	}
	if u.Next > 0 {
		out.NextAt = second(u.At.Add(u.Next))
	}
	return out
}

// second writes a time, rounded up to whole seconds: nothing is back before.
func second(t time.Time) string {
	return t.Add(time.Second - time.Nanosecond).UTC().Truncate(time.Second).Format(time.RFC3339)
}

// usage says what is left of each limit for a key, and when it comes back.
func (p *api) usage(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if len(q["key"]) == 0 {
		return &problem{Status: http.StatusBadRequest, Detail: "say whose usage: key=PART, once for each part of the key; all keys are at /v1/usage/export"}
	}
	all := []usage{}
	for _, u := range p.policy.Engine().Usage(r.Context(), q.Get("limit"), q["key"], q.Get("plan")) {
		all = append(all, usageOf(u))
	}
	if len(all) == 0 {
		return &problem{Status: http.StatusNotFound, Detail: "no limit has a key of " + strconv.Itoa(len(q["key"])) + " parts that this could be"}
	}
	answer(w, http.StatusOK, "application/json", map[string]any{"usage": all})
	return nil
}

// exportUsage writes what all keys have used of the quotas, in memory and in stores, as lines of JSON or as
// CSV. What cannot be listed has a line with an error.
func (p *api) exportUsage(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	var write func(usage) error
	flush := func() {}
	switch r.URL.Query().Get("format") {
	case "", "jsonl":
		h.Set("Content-Type", "application/jsonl")
		write = func(u usage) error {
			text, err := asciijson.Marshal(u)
			if err != nil {
				return err
			}
			_, err = w.Write(append(text, '\n'))
			return err
		}
	case "csv":
		h.Set("Content-Type", "text/csv; charset=utf-8")
		out := csv.NewWriter(w)
		_ = out.Write([]string{"limit", "key", "allowed", "used", "remaining", "reset_at", "error"})
		write = func(u usage) error { return out.Write(csvLine(u)) }
		flush = out.Flush
	default:
		return &problem{Status: http.StatusBadRequest, Detail: "format is jsonl or csv"}
	}
	defer flush()
	e := p.policy.Engine()
	for u := range e.Usages() {
		if write(usageOf(u)) != nil {
			return nil // the client has left
		}
	}
	// an error is that of a client that has left: what stores do not list is in the lines
	_ = e.StoredUsages(r.Context(), func(u policy.Usage) error { return write(usageOf(u)) })
	return nil
}

// csvLine returns the fields of a usage. As JSON, no key begins like a formula of a spreadsheet.
func csvLine(u usage) []string {
	count := func(n int64, known bool) string {
		if !known || u.Error != "" {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	key := ""
	if u.Key != nil || u.Error == "" {
		text, err := asciijson.Marshal(u.Key)
		if err == nil {
			key = string(text)
		}
	}
	return []string{u.Limit, key, count(u.Allowed, !u.Unlimited), count(u.Used, true), count(u.Remaining, !u.Unlimited), u.ResetAt, u.Error}
}
