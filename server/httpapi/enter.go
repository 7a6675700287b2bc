package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/server/hook"
	"github.com/weirflow/weir/server/outstanding"
)

// entering is the body of enter: a request that the caller is about to serve.
type entering struct {
	Request *described `json:"request"`
	Hold    int64      `json:"hold_ms"`
}

// described is what the caller says of the request. It is trusted, as its header fields are.
type described struct {
	Method  string            `json:"method"`
	Host    string            `json:"host"`
	Path    string            `json:"path"` // with the query
	Client  string            `json:"client"`
	Headers map[string]string `json:"headers"`
	Length  *int64            `json:"length"` // of the body; default: not known
}

// admission is the answer to enter.
type admission struct {
	Allowed    bool   `json:"allowed"`
	Place      string `json:"place,omitempty"`
	HoldMS     int64  `json:"hold_ms,omitempty"`
	Limit      string `json:"limit,omitempty"`          // that refused
	Status     int    `json:"status,omitempty"`         // of the response that the gateway would send to the client
	RetryAfter *int64 `json:"retry_after_ms,omitempty"` // missing if no wait helps
}

// leaving is the body of leave.
type leaving struct {
	Place   string `json:"place"`
	Outcome string `json:"outcome"`
}

// enter decides about a request by the routes of the policy, as the gateway does, and keeps its places at
// concurrency limits and adaptive limits until leave.
func (f *Face) enter(c *call) (any, error) {
	var of entering
	if err := decode(c.data, &of); err != nil {
		return nil, err
	}
	if of.Request == nil {
		return nil, &problem{Status: http.StatusBadRequest, Field: "request", Detail: "there is no request", Fix: `send {"request": {"method": "GET", "host": "shop.example", "path": "/", "client": "203.0.113.7"}}`}
	}
	hold := cmp.Or(time.Duration(of.Hold)*time.Millisecond, defaultHold)
	if of.Hold < 0 || of.Hold > int64(maxHold/time.Millisecond) {
		return nil, &problem{Status: http.StatusBadRequest, Field: "hold_ms", Detail: fmt.Sprintf("%d is not how long a place can be held", of.Hold), Fix: "write 1 to 3600000; default: 60000"}
	}
	if c.token != nil && c.token.Limits != nil {
		return nil, &problem{Status: http.StatusForbidden, Detail: "the token is for some limits, and a request is charged to those of its route", Fix: "use a token without limits"}
	}
	admitted, err := f.hook.EnterHeld(c.r.Context(), f.policy.Now(), (*hook.Entry)(of.Request), f.places, outstanding.Caller{Name: c.caller(), Address: c.r.RemoteAddr}, hold)
	var wrong *hook.EntryError
	switch {
	case errors.As(err, &wrong):
		return nil, &problem{Status: http.StatusBadRequest, Field: "request." + wrong.Field, Detail: wrong.Detail, Fix: wrong.Fix}
	case errors.Is(err, outstanding.ErrPlacesFull):
		return nil, err
	case err != nil:
		return nil, &problem{Status: http.StatusServiceUnavailable, Detail: "no decision: the client left before it"}
	}
	for name, values := range admitted.Header {
		if isAboutLimits(name) {
			c.fields[name] = values
		}
	}
	a := &admission{Allowed: admitted.Allowed, Place: admitted.Place, HoldMS: admitted.Hold.Milliseconds(), Limit: admitted.Limit, Status: admitted.Status}
	if admitted.RetryAfter != weir.Never && !a.Allowed {
		ms := int64((admitted.RetryAfter + time.Millisecond - 1) / time.Millisecond)
		a.RetryAfter = &ms
	}
	return a, nil
}

// isAboutLimits reports whether a header field says what remains of limits, or when to try again.
func isAboutLimits(name string) bool {
	name = strings.TrimPrefix(strings.ToLower(name), "x-")
	return strings.HasPrefix(name, "ratelimit") || name == "retry-after"
}

// leave gives back the places of a request, and says how its work has ended.
func (f *Face) leave(c *call) (any, error) {
	var of leaving
	if err := decode(c.data, &of); err != nil {
		return nil, err
	}
	o, ok := outstanding.Outcome(of.Outcome)
	if !ok {
		return nil, &problem{Status: http.StatusBadRequest, Field: "outcome", Detail: fmt.Sprintf("%.80q is no outcome", of.Outcome), Fix: "write ok (default), ignored or dropped"}
	}
	if err := f.places.Leave(c.caller(), of.Place, o); err != nil {
		return nil, err
	}
	return map[string]any{"left": true}, nil
}
