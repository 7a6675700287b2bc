package weirclient

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/weirflow/weir"
)

// A Request describes a request that the program is about to serve. The server trusts it.
type Request struct {
	Method string            // default: GET
	Host   string            // as the client sent it
	Path   string            // with the query, as the client sent it
	Client string            // the client's IP address; default: not known
	Header map[string]string // the fields that the policy reads
	Length int64             // of the body, for limits with cost: bytes; default: not known, as for -1
}

// An Admission is what the server decided about a Request, with its places at limits that count what is in
// flight. They belong to the server that gave them, and to the token.
type Admission struct {
	Allowed    bool
	Limit      string        // the limit that refused
	Status     int           // of a refusal: of the response that Weir's gateway would send to the client
	RetryAfter time.Duration // of a refusal; weir.Never if no wait helps, or nobody knows

	client *Client
	place  string // empty for none
	mu     sync.Mutex
	left   bool // the server has heard of the end
}

// Enter decides about a request by the routes of the server's policy, as its gateway does: rate limits,
// concurrency limits and the adaptive limit of the route together, all or none. Call Leave when the request has ended.
// After hold (default, for 0: a minute; at most an hour) its places are free in any case. Where limits
// have queues, the call waits in them, within the context's deadline. A refusal is no error; that of a request
// whose path or host is malformed has the Status 400.
func (c *Client) Enter(ctx context.Context, r Request, hold time.Duration) (*Admission, error) {
	described := map[string]any{"path": r.Path}
	for name, text := range map[string]string{"method": r.Method, "host": r.Host, "client": r.Client} {
		if text != "" {
			described[name] = text
		}
	}
	if len(r.Header) > 0 {
		described["headers"] = r.Header
	}
	if r.Length > 0 {
		described["length"] = r.Length
	}
	in := map[string]any{"request": described}
	if hold > 0 {
		in["hold_ms"] = max(hold.Milliseconds(), 1)
	}
	var w struct {
		Allowed    bool   `json:"allowed"`
		Place      string `json:"place"`
		Limit      string `json:"limit"`
		Status     int    `json:"status"`
		RetryAfter *int64 `json:"retry_after_ms"`
	}
	if err := c.call(ctx, "enter", http.MethodPost, "/v1/enter", in, &w, http.StatusOK, http.StatusTooManyRequests); err != nil {
		return nil, err
	}
	return &Admission{Allowed: w.Allowed, Limit: w.Limit, Status: w.Status, RetryAfter: retryAfter(w.Allowed, w.RetryAfter), client: c, place: w.Place}, nil
}

// Leave says that the request has ended, and how: with weir.OK its duration is a sample for an adaptive limit;
// weir.Dropped is work that failed because of too much load, and weir.Ignore says nothing. The first call that
// succeeds counts, and later ones do nothing.
func (a *Admission) Leave(ctx context.Context, o weir.Outcome) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.place == "" || a.left {
		return nil
	}
	outcome := "ok"
	switch o {
	case weir.Ignore:
		outcome = "ignored"
	case weir.Dropped:
		outcome = "dropped"
	}
	err := a.client.call(ctx, "leave", http.MethodPost, "/v1/leave", map[string]any{"place": a.place, "outcome": outcome}, new(struct{}), http.StatusOK)
	a.left = err == nil
	return err
}
