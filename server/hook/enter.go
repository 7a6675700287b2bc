package hook

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/outstanding"
)

// An Entry is what a program says of a request that it is about to serve. It is trusted, as its header fields are.
type Entry struct {
	Method  string // default: GET
	Host    string
	Path    string // with the query
	Client  string // its address
	Headers map[string]string
	Length  *int64 // of the body; nil: not known
}

// An EntryError says what is wrong with an Entry.
type EntryError struct{ Field, Detail, Fix string }

// Error is of error.
func (e *EntryError) Error() string { return e.Detail + ": " + e.Fix }

// An Admission is the answer to an Entry.
type Admission struct {
	Allowed bool
	Place   string        // to be left when the request has ended; empty if it needs none
	Hold    time.Duration // for which the place is held
	Limit   string        // that refused
	Status  int           // of the response that the gateway would send to the client, if it is refused
	// RetryAfter is when the request may be sent again; weir.Never if no wait helps, or no limit refused.
	RetryAfter time.Duration
	Header     http.Header // of the response, about limits
}

// EnterHeld is Enter for an Entry: its places are held until they are left, or for a time. Errors are an *EntryError,
// outstanding.ErrPlacesFull, or that of a context that ended before a decision.
func (d *Decider) EnterHeld(ctx context.Context, p *active.Snapshot, e *Entry, places *outstanding.Places, by outstanding.Caller, hold time.Duration) (*Admission, error) {
	if e.isMalformed() {
		return &Admission{Status: http.StatusBadRequest, RetryAfter: weir.Never}, nil
	}
	r, err := e.request()
	if err != nil {
		return nil, err
	}
	var claim *outstanding.Claim
	response, v, err := d.Enter(ctx, p, r, func() (err error) {
		claim, err = places.Claim(by)
		return err
	})
	if claim != nil && v == nil {
		claim.Release()
	}
	if err != nil {
		return nil, err
	}
	a := &Admission{Allowed: response.Admitted, Limit: response.By, RetryAfter: weir.Never, Header: response.Header}
	if !a.Allowed {
		if a.Status = response.Status; response.Limited {
			a.RetryAfter = response.Decision.RetryAfter
		}
		return a, nil
	}
	if v == nil {
		return a, nil
	}
	a.Hold = hold
	if a.Place, err = claim.Keep(v.Done, hold); err != nil {
		v.Done(weir.Ignore)
		return nil, err
	}
	return a, nil
}

// isMalformed reports whether the gateway would refuse the request with 400. Clients choose the path and the
// host, so this is a refusal: a caller that serves requests after errors would let them pass.
func (e *Entry) isMalformed() bool {
	return e.Path != "" && (e.Path[0] != '/' || !httpsyntax.IsTarget(e.Path)) || e.Host != "" && !httpsyntax.IsHost(e.Host)
}

// request returns the request for the policy.
func (e *Entry) request() (r policy.Request, err error) {
	wrong := func(field, detail, fix string) (policy.Request, error) {
		return r, &EntryError{Field: field, Detail: detail, Fix: fix}
	}
	r = policy.Request{Method: cmp.Or(e.Method, http.MethodGet), Host: e.Host, Header: http.Header{}, Trusted: true, Length: -1}
	if e.Path == "" {
		return wrong("path", "the request has no path", "write it as in the first line of the request, like /buy?id=1")
	}
	if !httpsyntax.IsToken(r.Method) {
		return wrong("method", "this is no method", "write a method like GET")
	}
	r.Path, r.Query, _ = strings.Cut(e.Path, "?")
	if e.Client != "" {
		if r.Addr, err = netip.ParseAddr(e.Client); err != nil {
			return wrong("client", "this is no IP address", "write the address of the client, like 203.0.113.7, without a port")
		}
		r.Addr = r.Addr.Unmap()
		r.Client = policy.ClientKey(r.Addr)
	}
	for name, value := range e.Headers {
		if !httpsyntax.IsToken(name) || strings.ContainsFunc(value, isControl) {
			return wrong("headers", fmt.Sprintf("%.80q is no header field with such a value", name), "write names and values as HTTP has them")
		}
		r.Header.Set(name, value) // callers refuse names that differ in case alone
	}
	if e.Length != nil {
		if r.Length = *e.Length; r.Length < 0 {
			return wrong("length", "a body has no negative length", "write the length of the body in bytes, or leave it out")
		}
	}
	return r, nil
}

// isControl reports whether a character cannot be in the value of a header field.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
