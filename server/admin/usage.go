package admin

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

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
	Shadow bool   `json:"shadow,omitempty"`
	Error  string `json:"error,omitempty"` // of a store that did not respond
}

func usageOf(u policy.Usage, now time.Time) usage {
	out := usage{Limit: u.Limit, Key: u.Key, Plan: u.Plan, Allowed: u.Of, Used: u.Used, Remaining: u.Left, Shadow: u.Shadow}
	if u.Problem != nil {
		out.Error = u.Problem.Error()
	}
	if u.Reset > 0 {
		out.ResetAt = second(now.Add(u.Reset))
	}
	if u.Next > 0 {
		out.NextAt = second(now.Add(u.Next))
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
	now := time.Now()
	all := []usage{}
	for _, u := range p.policy.Engine().Usage(r.Context(), q.Get("limit"), q["key"], q.Get("plan")) {
		all = append(all, usageOf(u, now))
	}
	if len(all) == 0 {
		return &problem{Status: http.StatusNotFound, Detail: "no limit has a key of " + strconv.Itoa(len(q["key"])) + " parts that this could be"}
	}
	answer(w, http.StatusOK, "application/json", map[string]any{"usage": all})
	return nil
}

// exportUsage writes what all keys have used of the quotas in memory, as lines of JSON or as CSV.
func (p *api) exportUsage(w http.ResponseWriter, r *http.Request) error {
	now := time.Now()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch r.URL.Query().Get("format") {
	case "", "jsonl":
		h.Set("Content-Type", "application/jsonl")
		out := json.NewEncoder(w)
		for u := range p.policy.Engine().Usages() {
			if out.Encode(usageOf(u, now)) != nil {
				return nil // the client has left
			}
		}
	case "csv":
		h.Set("Content-Type", "text/csv; charset=utf-8")
		out := csv.NewWriter(w)
		_ = out.Write([]string{"limit", "key", "allowed", "used", "remaining", "reset_at"})
		for u := range p.policy.Engine().Usages() {
			of := usageOf(u, now)
			// as JSON, no key begins like a formula of a spreadsheet
			key, err := json.Marshal(of.Key)
			if err != nil {
				return err
			}
			count := func(n int64) string { return strconv.FormatInt(n, 10) }
			if out.Write([]string{of.Limit, string(key), count(of.Allowed), count(of.Used), count(of.Remaining), of.ResetAt}) != nil {
				return nil
			}
		}
		out.Flush()
	default:
		return &problem{Status: http.StatusBadRequest, Detail: "format is jsonl or csv"}
	}
	return nil
}
