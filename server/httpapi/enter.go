package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/policy"
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

// outcomes are how the work of a request ended.
var outcomes = map[string]weir.Outcome{"": weir.OK, "ok": weir.OK, "ignored": weir.Ignore, "dropped": weir.Dropped}

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
	if of.Request.isMalformed() {
		return &admission{Status: http.StatusBadRequest}, nil
	}
	r, err := of.Request.request()
	if err != nil {
		return nil, err
	}
	var claim *outstanding.Claim
	response, v, err := f.hook.Enter(c.r.Context(), f.policy.Now(), r, func() (err error) {
		claim, err = f.places.Claim(outstanding.Caller{Name: c.caller(), Address: c.r.RemoteAddr})
		return err
	})
	if claim != nil && v == nil {
		claim.Release()
	}
	switch {
	case errors.Is(err, outstanding.ErrPlacesFull):
		return nil, err
	case err != nil:
		return nil, &problem{Status: http.StatusServiceUnavailable, Detail: "no decision: the client left before it"}
	}
	for name, values := range response.Header {
		if isAboutLimits(name) {
			c.fields[name] = values
		}
	}
	a := &admission{Allowed: response.Admitted, Limit: response.By, Status: response.Status}
	if !response.Admitted {
		if d := response.Decision; response.Limited && d.RetryAfter != weir.Never {
			ms := int64((d.RetryAfter + time.Millisecond - 1) / time.Millisecond)
			a.RetryAfter = &ms
		}
		return a, nil
	}
	if a.Status = 0; v == nil {
		return a, nil
	}
	a.HoldMS = int64(hold / time.Millisecond)
	if a.Place, err = claim.Keep(v.Done, hold); err != nil {
		v.Done(weir.Ignore)
		return nil, err
	}
	return a, nil
}

// isMalformed reports whether the gateway would refuse the request with 400. Clients choose the path and the
// host, so this is a refusal: a caller that serves requests after errors would let them pass.
func (d *described) isMalformed() bool {
	return d.Path != "" && (d.Path[0] != '/' || !httpsyntax.IsTarget(d.Path)) || d.Host != "" && !httpsyntax.IsHost(d.Host)
}

// request returns the request for the policy.
func (d *described) request() (r policy.Request, err error) {
	wrong := func(field, detail, fix string) (policy.Request, error) {
		return r, &problem{Status: http.StatusBadRequest, Field: "request." + field, Detail: detail, Fix: fix}
	}
	r = policy.Request{Method: cmp.Or(d.Method, http.MethodGet), Host: d.Host, Header: http.Header{}, Trusted: true, Length: -1}
	if d.Path == "" {
		return wrong("path", "the request has no path", "write it as in the first line of the request, like /buy?id=1")
	}
	if !httpsyntax.IsToken(r.Method) {
		return wrong("method", "this is no method", "write a method like GET")
	}
	r.Path, r.Query, _ = strings.Cut(d.Path, "?")
	if d.Client != "" {
		if r.Addr, err = netip.ParseAddr(d.Client); err != nil {
			return wrong("client", "this is no IP address", "write the address of the client, like 203.0.113.7, without a port")
		}
		r.Addr = r.Addr.Unmap()
		r.Client = policy.ClientKey(r.Addr)
	}
	for name, value := range d.Headers {
		if !httpsyntax.IsToken(name) || strings.ContainsFunc(value, isControl) {
			return wrong("headers", fmt.Sprintf("%.80q is no header field with such a value", name), "write names and values as HTTP has them")
		}
		r.Header.Set(name, value) // decode refuses names that differ in case alone
	}
	if d.Length != nil {
		if r.Length = *d.Length; r.Length < 0 {
			return wrong("length", "a body has no negative length", "write the length of the body in bytes, or leave it out")
		}
	}
	return r, nil
}

// isControl reports whether a character cannot be in the value of a header field.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

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
	o, ok := outcomes[of.Outcome]
	if !ok {
		return nil, &problem{Status: http.StatusBadRequest, Field: "outcome", Detail: fmt.Sprintf("%.80q is no outcome", of.Outcome), Fix: "write ok (default), ignored or dropped"}
	}
	if err := f.places.Leave(c.caller(), of.Place, o); err != nil {
		return nil, err
	}
	return map[string]any{"left": true}, nil
}
