package weirclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/charges"
)

// An Ask names a limit of the server's policy, a key and a cost.
type Ask struct {
	Limit string
	Key   []string // a text for each part of the limit's key; none for a limit without a key
	Cost  int64    // default: the limit's own cost, usually 1
	Plan  string   // default: as the server knows it
}

// wireAsk is an Ask as JSON.
type wireAsk struct {
	Limit string   `json:"limit"`
	Key   []string `json:"key,omitempty"`
	Cost  *int64   `json:"cost,omitempty"`
	Plan  string   `json:"plan,omitempty"`
}

// wire returns asks as JSON has them. A key that is no text has no form there: package json would replace its
// bytes, and different keys would share a count.
func wire(op string, asks []Ask) ([]wireAsk, error) {
	all := make([]wireAsk, len(asks))
	for i, a := range asks {
		for k, part := range a.Key {
			if !utf8.ValidString(part) {
				return nil, fmt.Errorf("weirclient: %s: limits[%d].key[%d] is not UTF-8: write these bytes as text, such as with base64.RawURLEncoding", op, i, k)
			}
		}
		all[i] = wireAsk{Limit: a.Limit, Key: a.Key, Plan: a.Plan}
		if a.Cost != 0 {
			all[i].Cost = &asks[i].Cost
		}
	}
	return all, nil
}

// An Answer is what the server decided about the Asks of a call.
type Answer struct {
	Allowed    bool
	Limit      string        // the limit that refused
	RetryAfter time.Duration // of a refusal; weir.Never if no wait helps
	Delay      time.Duration // of a reservation: how long to delay the work
	Limits     []State       // of each Ask, in order
	// StoreProblem says that a store did not respond, and that on_failure of the limit decided; empty
	// otherwise
	StoreProblem string
}

// A State is what a server says of one limit.
type State struct {
	weir.Decision               // By is the limit's name
	Window        time.Duration // how long a bucket takes to fill, or a window lasts
	Exempt        bool          // the limit does not apply to the key
	Shadow        bool          // the limit is not enforced
}

// wireState is a State as JSON.
type wireState struct {
	Limit      string `json:"limit"`
	Allowed    bool   `json:"allowed"`
	Capacity   int64  `json:"capacity"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms"`
	ResetAfter int64  `json:"reset_after_ms"`
	Window     int64  `json:"window_ms"`
	Source     string `json:"source"`
	Exempt     bool   `json:"exempt"`
	Shadow     bool   `json:"shadow"`
}

// wireAnswer is an Answer as JSON.
type wireAnswer struct {
	Allowed     bool        `json:"allowed"`
	Limit       string      `json:"limit"`
	RetryAfter  *int64      `json:"retry_after_ms"`
	Delay       int64       `json:"delay_ms"`
	Limits      []wireState `json:"limits"`
	Reservation string      `json:"reservation"`
	ExpiresAt   time.Time   `json:"expires_at"`
	Problem     string      `json:"store_problem"`
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// retryAfter is the wait of a decision.
func retryAfter(allowed bool, ms *int64) time.Duration {
	switch {
	case allowed:
		return 0
	case ms == nil:
		return weir.Never
	}
	return millis(*ms)
}

func (s *wireState) state() State {
	d := weir.Decision{Allowed: s.Allowed, Limit: s.Capacity, Remaining: s.Remaining, RetryAfter: retryAfter(s.Allowed, s.RetryAfter), ResetAfter: millis(s.ResetAfter), By: s.Limit, Source: charges.SourceOf(s.Source)}
	return State{Decision: d, Window: millis(s.Window), Exempt: s.Exempt, Shadow: s.Shadow}
}

func (w *wireAnswer) answer() *Answer {
	a := &Answer{Allowed: w.Allowed, Limit: w.Limit, RetryAfter: retryAfter(w.Allowed, w.RetryAfter), Delay: millis(w.Delay), StoreProblem: w.Problem}
	for i := range w.Limits {
		a.Limits = append(a.Limits, w.Limits[i].state())
	}
	return a
}

// Allow takes the limit's own cost, and reports whether the work may go on.
func (c *Client) Allow(ctx context.Context, limit string, key ...string) (bool, error) {
	a, err := c.Take(ctx, Ask{Limit: limit, Key: key})
	return err == nil && a.Allowed, err
}

// Take charges limits: all of them, or none if one refuses. A refusal is no error.
func (c *Client) Take(ctx context.Context, asks ...Ask) (*Answer, error) {
	return c.decide(ctx, "take", asks)
}

// Peek says for each limit what Take would decide about it alone, and charges nothing.
func (c *Client) Peek(ctx context.Context, asks ...Ask) (*Answer, error) {
	return c.decide(ctx, "peek", asks)
}

func (c *Client) decide(ctx context.Context, op string, asks []Ask) (*Answer, error) {
	limits, err := wire(op, asks)
	if err != nil {
		return nil, err
	}
	var w wireAnswer
	if err := c.call(ctx, op, http.MethodPost, "/v1/"+op, map[string]any{"limits": limits}, &w, http.StatusOK, http.StatusTooManyRequests); err != nil {
		return nil, err
	}
	return w.answer(), nil
}

// A Reservation is a charge for work whose cost is known later. It belongs to the server that made it,
// and to the token.
type Reservation struct {
	Answer
	ExpiresAt time.Time // from then on, it stays charged as it was reserved

	client *Client
	id     string
	mu     sync.Mutex // held while the reservation is being ended
	ended  bool       // the server has ended it
}

// ReserveOptions are the times of a reservation. Zero means the default.
type ReserveOptions struct {
	MaxDelay time.Duration // the longest delay of the work, for one limit; default: none
	Hold     time.Duration // how long it stays open after its delay; default: 1 minute, at most an hour
}

// Reserve charges limits as Take does, for Settle or Cancel to end. If it is refused, Allowed is false,
// and Settle and Cancel do nothing.
func (c *Client) Reserve(ctx context.Context, o ReserveOptions, asks ...Ask) (*Reservation, error) {
	limits, err := wire("reserve", asks)
	if err != nil {
		return nil, err
	}
	in := map[string]any{"limits": limits}
	if o.MaxDelay > 0 {
		in["max_delay_ms"] = o.MaxDelay.Milliseconds()
	}
	if o.Hold > 0 {
		in["hold_ms"] = max(o.Hold.Milliseconds(), 1)
	}
	var w wireAnswer
	if err := c.call(ctx, "reserve", http.MethodPost, "/v1/reserve", in, &w, http.StatusOK, http.StatusTooManyRequests); err != nil {
		return nil, err
	}
	return &Reservation{Answer: *w.answer(), ExpiresAt: w.ExpiresAt, client: c, id: w.Reservation}, nil
}

// Settle replaces the reserved cost by the actual one: one cost for all limits, or one for each. The
// first Settle or Cancel that succeeds counts, and later ones do nothing. After an error, call it again
// with the same costs. While the server's store is down, errors.Is finds ErrUnavailable in the error, and
// the reservation is still open. If the server says that there is no such reservation, the first call had
// arrived.
func (r *Reservation) Settle(ctx context.Context, costs ...int64) error {
	if len(costs) == 0 {
		return errors.New("weirclient: settle: there is no cost: pass what the work has cost, or call Cancel")
	}
	return r.end(ctx, "settle", map[string]any{"reservation": r.id, "costs": costs})
}

// Cancel gives back what was charged.
func (r *Reservation) Cancel(ctx context.Context) error {
	return r.end(ctx, "cancel", map[string]any{"reservation": r.id})
}

func (r *Reservation) end(ctx context.Context, op string, in map[string]any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == "" || r.ended {
		return nil
	}
	err := r.client.call(ctx, op, http.MethodPost, "/v1/"+op, in, new(struct{}), http.StatusOK)
	r.ended = err == nil
	return err
}

// A Call is one call of a Batch: Take by default.
type Call struct {
	Peek bool // decide, and charge nothing
	Asks []Ask
}

// A Result is the outcome of one call of a Batch.
type Result struct {
	*Answer
	Err error // why there is no Answer; an *Error
}

// Batch sends up to 100 calls in one round trip. Each is carried out for itself, in order.
func (c *Client) Batch(ctx context.Context, calls ...Call) ([]Result, error) {
	type one struct {
		Op   string         `json:"op"`
		Call map[string]any `json:"call"`
	}
	list := make([]one, len(calls))
	for i, k := range calls {
		list[i].Op = "take"
		if k.Peek {
			list[i].Op = "peek"
		}
		limits, err := wire(list[i].Op, k.Asks)
		if err != nil {
			return nil, err
		}
		list[i].Call = map[string]any{"limits": limits}
	}
	var out struct {
		Results []struct {
			Status int             `json:"status"`
			Body   json.RawMessage `json:"body"`
		} `json:"results"`
	}
	if err := c.call(ctx, "batch", http.MethodPost, "/v1/batch", map[string]any{"calls": list}, &out, http.StatusOK); err != nil {
		return nil, err
	}
	if len(out.Results) != len(calls) {
		return nil, fmt.Errorf("weirclient: batch: %d calls, and %d results", len(calls), len(out.Results))
	}
	results := make([]Result, len(calls))
	for i, r := range out.Results {
		if r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests {
			results[i].Err = c.problem(list[i].Op, r.Status, "application/problem+json", r.Body)
			continue
		}
		var w wireAnswer
		if err := json.Unmarshal(r.Body, &w); err != nil {
			return nil, fmt.Errorf("weirclient: batch: result %d: %w", i, err)
		}
		results[i].Answer = w.answer()
	}
	return results, nil
}

// A Usage is what a key has used of a limit.
type Usage struct {
	Limit     string
	Key       []string
	Plan      string
	Capacity  int64
	Used      int64
	Remaining int64
	Reset     time.Duration // until all of it is back
	Next      time.Duration // until a request is admitted again; 0: now
	Shadow    bool
	Problem   string // why it is not known; empty otherwise
}

// Usage returns what a key has used of each limit that it could be a key of. limit, if it is not empty,
// names one.
func (c *Client) Usage(ctx context.Context, limit string, key ...string) ([]Usage, error) {
	q := url.Values{"key": key}
	if limit != "" {
		q.Set("limit", limit)
	}
	var out struct {
		Usage []struct {
			Limit     string   `json:"limit"`
			Key       []string `json:"key"`
			Plan      string   `json:"plan"`
			Capacity  int64    `json:"capacity"`
			Used      int64    `json:"used"`
			Remaining int64    `json:"remaining"`
			Reset     int64    `json:"reset_after_ms"`
			Next      int64    `json:"next_after_ms"`
			Shadow    bool     `json:"shadow"`
			Problem   string   `json:"store_problem"`
		} `json:"usage"`
	}
	if err := c.call(ctx, "usage", http.MethodGet, "/v1/usage?"+q.Encode(), nil, &out, http.StatusOK); err != nil {
		return nil, err
	}
	all := make([]Usage, len(out.Usage))
	for i, u := range out.Usage {
		all[i] = Usage{u.Limit, u.Key, u.Plan, u.Capacity, u.Used, u.Remaining, millis(u.Reset), millis(u.Next), u.Shadow, u.Problem}
	}
	return all, nil
}

// An Explanation says why a key is admitted or refused.
type Explanation struct {
	State
	Key        []string
	Plan       string
	Algorithm  string
	Parameters map[string]string
	DecidedBy  string // limit, plan, ban, grant, exemption or roll_out
	Store      string // empty for memory
	Text       string // all of it, for people

	Arithmetic string        // how the decision follows from what was used
	Waits      time.Duration // how long a request would wait in the limit's queue; 0 if it is full, or there is none
	Refusals   []Refusal     // the latest of this key, the latest first, at most ten
}

// A Refusal is an earlier refusal of a key.
type Refusal struct {
	At         time.Time
	Route      string // of the gateway; empty for other services
	Cost       int64
	Capacity   int64
	Remaining  int64
	RetryAfter time.Duration // weir.Never if no wait would have helped
	Shadow     bool          // of a shadow limit: nothing happened to the work
	Banned     bool
}

// Explain says why work for a key would be admitted or refused now. It charges nothing.
func (c *Client) Explain(ctx context.Context, limit string, key ...string) (*Explanation, error) {
	q := url.Values{"limit": {limit}, "key": key}
	var out struct {
		wireState
		Key        []string          `json:"key"`
		Plan       string            `json:"plan"`
		Algorithm  string            `json:"algorithm"`
		Parameters map[string]string `json:"parameters"`
		DecidedBy  string            `json:"decided_by"`
		Store      string            `json:"store"`
		Text       string            `json:"text"`
		Arithmetic string            `json:"arithmetic"`
		Waits      int64             `json:"waits_ms"`
		Refusals   []struct {
			At         time.Time `json:"at"`
			Route      string    `json:"route"`
			Cost       int64     `json:"cost"`
			Capacity   int64     `json:"capacity"`
			Remaining  int64     `json:"remaining"`
			RetryAfter *int64    `json:"retry_after_ms"`
			Shadow     bool      `json:"shadow"`
			Banned     bool      `json:"banned"`
		} `json:"refusals"`
	}
	if err := c.call(ctx, "explain", http.MethodGet, "/v1/explain?"+q.Encode(), nil, &out, http.StatusOK); err != nil {
		return nil, err
	}
	x := &Explanation{
		State: out.state(), Key: out.Key, Plan: out.Plan, Algorithm: out.Algorithm, Parameters: out.Parameters, DecidedBy: out.DecidedBy, Store: out.Store,
		Text: out.Text, Arithmetic: out.Arithmetic, Waits: time.Duration(out.Waits) * time.Millisecond,
	}
	for _, r := range out.Refusals {
		one := Refusal{At: r.At, Route: r.Route, Cost: r.Cost, Capacity: r.Capacity, Remaining: r.Remaining, RetryAfter: weir.Never, Shadow: r.Shadow, Banned: r.Banned}
		if r.RetryAfter != nil {
			one.RetryAfter = time.Duration(*r.RetryAfter) * time.Millisecond
		}
		x.Refusals = append(x.Refusals, one)
	}
	return x, nil
}
