package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/weirhttp"
)

// call is a request to the API.
type call struct {
	face   *Face
	r      *http.Request
	engine *policy.Engine
	token  *token // nil if the policy has no tokens
	data   []byte // of the body
	fields http.Header
}

// caller is who makes the call.
func (c *call) caller() string {
	if c.token == nil {
		return ""
	}
	return c.token.Name
}

// Bounds of reservations and of batches.
const (
	defaultHold = time.Minute
	maxHold     = time.Hour
	maxCalls    = 100
)

// ask is a limit of a call.
type ask struct {
	Limit string   `json:"limit"`
	Key   []string `json:"key"`
	Cost  *int64   `json:"cost"` // default: the limit's own
	Plan  string   `json:"plan"`
}

// asking is the body of take, peek and reserve: one limit, or several that are charged together.
type asking struct {
	ask
	Limits   []ask `json:"limits"`
	MaxDelay int64 `json:"max_delay_ms"` // of reserve
	Hold     int64 `json:"hold_ms"`      // of reserve
}

// ending is the body of settle and cancel.
type ending struct {
	Reservation string  `json:"reservation"`
	Cost        *int64  `json:"cost"`
	Costs       []int64 `json:"costs"`
}

// perform answers a call. The status of a refusal is 429, or 200 if the caller wants that.
func (f *Face) perform(c *call, w http.ResponseWriter, scope string, serve func(*Face, *call) (any, error)) (status int, body []byte) {
	var answer *reply
	err := f.prepare(c, w, scope)
	switch {
	case err != nil:
	case c.r.Header["Idempotency-Key"] == nil:
		c.fields = w.Header()
		answer, err = f.run(c, serve)
	default:
		answer, err = f.replays.once(c, func() (*reply, error) { return f.run(c, serve) })
	}
	if err != nil {
		return problemOf(err).encode(w.Header())
	}
	if c.fields != nil { // the answer has no fields of its own
		return answer.status, answer.body
	}
	for name, values := range answer.fields {
		w.Header()[name] = values
	}
	return answer.status, answer.body
}

// prepare checks who calls, and reads the body.
func (f *Face) prepare(c *call, w http.ResponseWriter, scope string) error {
	if known := f.tokens.Load(); known != nil {
		if c.token = known.find(c.r); c.token == nil {
			return &problem{Status: http.StatusUnauthorized, Detail: "there is no valid token", Fix: "send Authorization: Bearer TOKEN, with a token of listen.http.tokens"}
		}
	} else if refused := f.guard.Page(c.r); refused != nil {
		return &problem{Status: http.StatusForbidden, Detail: refused.Detail, Fix: refused.Fix + "; or use tokens"}
	}
	if err := c.permit(scope); err != nil {
		return err
	}
	if c.r.Method == http.MethodGet {
		return nil
	}
	var err error
	c.data, err = body(w, c.r)
	return err
}

// permit refuses a token without a scope.
func (c *call) permit(scope string) error {
	if scope == "" || c.token.may(scope) {
		return nil
	}
	return &problem{Status: http.StatusForbidden, Detail: fmt.Sprintf("the token has no scope %q", scope), Fix: "add it to the token's scopes"}
}

// reply is the answer to a call.
type reply struct {
	status int
	fields http.Header
	body   []byte
}

// run carries a call out.
func (f *Face) run(c *call, serve func(*Face, *call) (any, error)) (*reply, error) {
	r := &reply{status: http.StatusOK}
	if c.fields == nil { // they are kept with the answer
		r.fields = http.Header{}
		c.fields = r.fields
		defer func() { c.fields = nil }()
	}
	result, err := serve(f, c)
	if err != nil {
		return nil, err
	}
	switch x := result.(type) {
	case *decision:
		r.body = x.encode()
		if !x.Allowed && c.r.URL.Query().Get("status") != "200" {
			r.status = http.StatusTooManyRequests
		}
	case *admission:
		r.body = encoded(result)
		if !x.Allowed && c.r.URL.Query().Get("status") != "200" {
			r.status = http.StatusTooManyRequests
		}
	case *charged:
		r.body, r.status = encoded(result), x.status()
	default:
		r.body = encoded(result)
	}
	c.fields["Content-Type"] = typeJSON
	return r, nil
}

// typeJSON is a field's values, which nobody changes.
var typeJSON = []string{"application/json"}[:1:1]

// problemOf is the answer to an error.
func problemOf(err error) *problem {
	var p *problem
	var wrong *policy.AskError
	var costs *outstanding.CostsError
	switch {
	case errors.As(err, &p):
		again := *p
		return &again
	case errors.As(err, &wrong):
		status := http.StatusUnprocessableEntity
		if wrong.Unknown {
			status = http.StatusNotFound
		}
		return &problem{Status: status, Detail: wrong.Problem, Fix: wrong.Fix, Field: wrong.Field}
	case errors.As(err, &costs):
		return &problem{Status: http.StatusBadRequest, Field: "costs", Detail: costs.Error(), Fix: costs.Fix()}
	case errors.Is(err, outstanding.ErrExpired):
		return &problem{Status: http.StatusGone, Detail: short(err.Error()), Field: "reservation", Fix: "reserve with a longer hold_ms"}
	case errors.Is(err, outstanding.ErrUnsettled):
		return &problem{Status: http.StatusServiceUnavailable, Detail: short(err.Error()), Field: "reservation", Fix: "send the same call again: it counts once"}
	case errors.Is(err, outstanding.ErrUnknown):
		return &problem{Status: http.StatusNotFound, Detail: short(err.Error()), Field: "reservation", Fix: "send the reservation of an answer of /v1/reserve, once"}
	case errors.Is(err, outstanding.ErrPlaceExpired):
		return &problem{Status: http.StatusGone, Detail: short(err.Error()), Field: "place", Fix: "enter with a longer hold_ms"}
	case errors.Is(err, outstanding.ErrNoPlace):
		return &problem{Status: http.StatusNotFound, Detail: short(err.Error()), Field: "place", Fix: "send the place of an answer of /v1/enter, once"}
	case errors.Is(err, outstanding.ErrFull), errors.Is(err, outstanding.ErrPlacesFull):
		return &problem{Status: http.StatusServiceUnavailable, Detail: short(err.Error())}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{Status: http.StatusServiceUnavailable, Detail: "the client left before a store responded: nothing is charged"}
	}
	return &problem{Status: http.StatusInternalServerError, Detail: short(err.Error())}
}

// asks reads the limits of a call.
func (c *call) asks() (asking, []policy.Ask, error) {
	of, ok := quickAsking(c.data)
	if !ok {
		of = asking{}
		if err := decode(c.data, &of); err != nil {
			return of, nil, err
		}
	}
	list := of.Limits
	if of.Limit != "" || of.Key != nil || of.Cost != nil || of.Plan != "" {
		if list != nil {
			return of, nil, &problem{Status: http.StatusBadRequest, Field: "limits", Detail: "there are a limit and limits", Fix: "send one of them"}
		}
		list = []ask{of.ask}
	}
	all := make([]policy.Ask, len(list))
	for i, a := range list {
		if !c.token.reaches(a.Limit) {
			return of, nil, &problem{Status: http.StatusForbidden, Field: of.field(i, "limit"), Detail: fmt.Sprintf("the token is not for the limit %.80q", a.Limit), Fix: "add it to the token's limits"}
		}
		all[i] = policy.Ask{Limit: a.Limit, Key: a.Key, Plan: a.Plan, OwnCost: a.Cost == nil}
		if a.Cost != nil {
			all[i].Cost = *a.Cost
		}
	}
	return of, all, nil
}

// field returns the path of a limit's field in the call, such as limits[1].key.
func (of *asking) field(i int, name string) string {
	if of.Limits == nil {
		return name
	}
	return fmt.Sprintf("limits[%d].%s", i, name)
}

// wrong adds to an error about a limit which field of the call it is about.
func (of *asking) wrong(err error) error {
	var wrong *policy.AskError
	if !errors.As(err, &wrong) {
		return err
	}
	p := problemOf(err)
	if wrong.Field != "" {
		p.Field = of.field(wrong.Index, wrong.Field)
	}
	return p
}

// answered sets the header fields of an answer, and logs the events of limits with a Log.
func (c *call) answered(a *policy.Answer) *decision {
	weirhttp.SetRateLimit(c.fields, a.Evaluated())
	if !a.Allowed {
		weirhttp.SetRetryAfter(c.fields, a.Decision)
	}
	for _, e := range a.Events() {
		c.face.log.Log(context.Background(), e.LogLevel(), e.String(), "limit", e.Limit)
	}
	return decisionOf(a)
}

func (f *Face) take(c *call) (any, error) {
	of, asks, err := c.asks()
	if err == nil {
		err = of.reserveOnly()
	}
	if err != nil {
		return nil, err
	}
	a, err := c.engine.Take(c.r.Context(), asks)
	if err != nil {
		return nil, of.wrong(err)
	}
	return c.answered(a), nil
}

func (f *Face) peek(c *call) (any, error) {
	of, asks, err := c.asks()
	if err == nil {
		err = of.reserveOnly()
	}
	if err != nil {
		return nil, err
	}
	a, err := c.engine.Peek(c.r.Context(), asks)
	if err != nil {
		return nil, of.wrong(err)
	}
	return c.answered(a), nil
}

// reserveOnly refuses fields that only reservations have.
func (of *asking) reserveOnly() error {
	if of.MaxDelay != 0 || of.Hold != 0 {
		return &problem{Status: http.StatusBadRequest, Detail: "max_delay_ms and hold_ms are for reservations", Fix: "send them to /v1/reserve"}
	}
	return nil
}

func (f *Face) reserve(c *call) (any, error) {
	of, asks, err := c.asks()
	if err != nil {
		return nil, err
	}
	hold := time.Duration(of.Hold) * time.Millisecond
	switch {
	case of.Hold == 0:
		hold = defaultHold
	case of.Hold < 0 || of.Hold > int64(maxHold/time.Millisecond):
		return nil, &problem{Status: http.StatusBadRequest, Field: "hold_ms", Detail: fmt.Sprintf("%d is not how long a reservation can be held", of.Hold), Fix: "write 1 to 3600000; default: 60000"}
	}
	if of.MaxDelay < 0 || of.MaxDelay > int64(maxHold/time.Millisecond) {
		return nil, &problem{Status: http.StatusBadRequest, Field: "max_delay_ms", Detail: fmt.Sprintf("%d is not how long work can be delayed", of.MaxDelay), Fix: "write 0 to 3600000; default: 0"}
	}
	a, err := c.engine.Reserve(c.r.Context(), asks, time.Duration(of.MaxDelay)*time.Millisecond)
	if err != nil {
		return nil, of.wrong(err)
	}
	if !a.Allowed {
		return c.answered(a), nil
	}
	hold += a.Delay
	id, err := f.reservations.Add(c.r.Context(), outstanding.Caller{Name: c.caller(), Address: c.r.RemoteAddr}, a, hold)
	if err != nil {
		return nil, err
	}
	d := c.answered(a)
	d.Reservation = id
	d.ExpiresAt = time.Now().Add(hold).UTC().Format(time.RFC3339Nano)
	return d, nil
}

func (f *Face) settle(c *call) (any, error) {
	var of ending
	if err := decode(c.data, &of); err != nil {
		return nil, err
	}
	costs := of.Costs
	switch {
	case (of.Cost == nil) == (len(of.Costs) == 0):
		return nil, &problem{Status: http.StatusBadRequest, Field: "cost", Detail: "say what the work has cost", Fix: `"cost": 3; or "costs": [3, 1], one for each limit`}
	case of.Cost != nil:
		costs = []int64{*of.Cost}
	}
	for i, n := range costs {
		if n < 0 {
			field := "cost"
			if of.Cost == nil {
				field = fmt.Sprintf("costs[%d]", i)
			}
			return nil, &problem{Status: http.StatusUnprocessableEntity, Field: field, Detail: fmt.Sprintf("%d is negative", n), Fix: "write 0 or more"}
		}
	}
	return f.end(c, of.Reservation, costs)
}

func (f *Face) cancel(c *call) (any, error) {
	var of ending
	if err := decode(c.data, &of); err != nil {
		return nil, err
	}
	if of.Cost != nil || of.Costs != nil {
		return nil, &problem{Status: http.StatusBadRequest, Field: "cost", Detail: "a cancelled reservation costs nothing", Fix: "take cost out, or send it to /v1/settle"}
	}
	return f.end(c, of.Reservation, nil)
}

// end settles a reservation; without costs, it is cancelled.
func (f *Face) end(c *call, id string, costs []int64) (any, error) {
	if err := f.reservations.Settle(c.r.Context(), c.caller(), id, costs); err != nil {
		return nil, err
	}
	return map[string]any{"settled": true}, nil
}

// batched is one call of a batch.
type batched struct {
	Op   string          `json:"op"`
	Call json.RawMessage `json:"call"`
}

// batch carries out several calls, each for itself.
func (f *Face) batch(c *call) (any, error) {
	var of struct {
		Calls []batched `json:"calls"`
	}
	if err := decode(c.data, &of); err != nil {
		return nil, err
	}
	if n := len(of.Calls); n == 0 || n > maxCalls {
		return nil, &problem{Status: http.StatusBadRequest, Field: "calls", Detail: fmt.Sprintf("there are %d calls", n), Fix: "send 1 to " + strconv.Itoa(maxCalls)}
	}
	type result struct {
		Status int `json:"status"`
		Body   any `json:"body"`
	}
	results := make([]result, len(of.Calls))
	for i, b := range of.Calls {
		op, ok := operationOf("/v1/" + b.Op)
		var body any
		err := error(nil)
		switch {
		case !ok || op.method != http.MethodPost || op.scope == "" || op.scope == "charge" || op.scope == "enter":
			err = &problem{Status: http.StatusBadRequest, Field: fmt.Sprintf("calls[%d].op", i), Detail: fmt.Sprintf("%.40q is not an operation", b.Op), Fix: "write take, peek, reserve, settle or cancel"}
		default:
			one := *c
			one.data, one.fields = b.Call, http.Header{}
			if err = c.permit(op.scope); err == nil {
				body, err = op.serve(f, &one)
			}
		}
		results[i] = result{http.StatusOK, body}
		if d, refused := body.(*decision); refused && !d.Allowed {
			results[i].Status = http.StatusTooManyRequests
		}
		if err != nil {
			p := problemOf(err).complete()
			results[i] = result{p.Status, p}
		}
	}
	return map[string]any{"results": results}, nil
}
