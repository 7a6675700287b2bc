// Package hook decides about requests that a proxy describes before it forwards them: for the hooks of
// listen.http, and for Envoy's ext_authz of listen.rls. Both answer what the gateway would.
package hook

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/weirhttp"
)

// ClientField is the header field with the client's address, in canonical form.
func ClientField(p *policy.Policy) string {
	return http.CanonicalHeaderKey(cmp.Or(p.ClientHeader, "X-Forwarded-For"))
}

// A Description is what a proxy says of a request.
type Description struct {
	Method, Host string
	Target       string      // the path with the query
	Header       http.Header // that keys may read
	Length       int64       // of the body; -1 if it is not known

	// From has the address of the client, or of a proxy with the fields in which it names the client.
	From *http.Request
}

// ErrTarget is the error of a description whose request cannot be sent on.
var ErrTarget = errors.New("the request has no method, or a path that proxies and applications read in different ways")

// Request returns the request that a proxy describes.
func (d Description) Request(p *policy.Policy) (policy.Request, error) {
	if d.Method == "" || !strings.HasPrefix(d.Target, "/") || !httpsyntax.IsTarget(d.Target) {
		return policy.Request{}, ErrTarget
	}
	client := weirhttp.ClientIPFrom(d.From, p.TrustedProxies, ClientField(p))
	r := policy.Request{Method: d.Method, Host: d.Host, Header: d.Header, Client: policy.ClientKey(client), Addr: client, Length: d.Length}
	r.Trusted = weirhttp.Trusted(d.From, p.TrustedProxies)
	r.Path, r.Query, _ = strings.Cut(d.Target, "?")
	return r, nil
}

// A Response is for the client of the request, or, where it is admitted, for the response to it.
type Response struct {
	Admitted bool
	Limited  bool // a limit refused
	Status   int  // of a request that is not admitted
	Header   http.Header
	Body     []byte

	// Of a refusal by a limit: its name, and its decision.
	By       string
	Decision weir.Decision
}

// A Decider decides by the active policy. It is safe for concurrent use.
type Decider struct {
	log      *slog.Logger
	wait     time.Duration // the longest wait in the queue of a limit
	compiled atomic.Pointer[refusals]
}

// NewDecider returns a Decider, which writes the events of limits with a Log to the log.
func NewDecider(log *slog.Logger, wait time.Duration) *Decider { return &Decider{log: log, wait: wait} }

// Decide decides about a request. One that no route matches is admitted; one that a queue delays is
// decided when its turn has come. The error is that of a context that ended before a decision.
func (d *Decider) Decide(ctx context.Context, p *active.Snapshot, r policy.Request) (*Response, error) {
	response, _, err := d.decide(ctx, p, r, func(_ context.Context, v *policy.Verdict) error {
		_ = v.EndAtOnce() // the verdict becomes a refusal if a concurrency limit has no place
		return nil
	})
	return response, err
}

// Enter is Decide for a caller that says when the request has ended: an admitted request keeps its places at
// concurrency limits and adaptive limits until Done of the verdict, which is nil if there are none. Estimates of
// costs stay charged. claim is called before a request takes its places; its error ends the request without a charge,
// and is that of Enter.
func (d *Decider) Enter(ctx context.Context, p *active.Snapshot, r policy.Request, claim func() error) (*Response, *policy.Verdict, error) {
	var failed error
	response, v, err := d.decide(ctx, p, r, func(ctx context.Context, v *policy.Verdict) error {
		if v.Holds() {
			if failed = claim(); failed != nil {
				v.GiveUp(ctx)
				return failed
			}
		}
		v.KeepEstimates()
		if v.CountsBytes() {
			v.SettleBytes(max(r.Length, 0))
		}
		if err := v.Enter(ctx); err != nil && !errors.Is(err, weir.ErrLimited) {
			return err
		}
		return nil
	})
	if failed != nil {
		return nil, nil, failed
	}
	if response == nil || !response.Admitted || !v.Holds() {
		v = nil
	}
	return response, v, err
}

// decide decides about a request. end takes the places of an admitted one, or makes the verdict a refusal.
func (d *Decider) decide(ctx context.Context, p *active.Snapshot, r policy.Request, end func(context.Context, *policy.Verdict) error) (*Response, *policy.Verdict, error) {
	responses := d.compiled.Load()
	if responses == nil || responses.of != p {
		responses = compile(p)
		d.compiled.Store(responses)
	}
	verdict := p.Engine.DecideContext(ctx, r)
	v := &verdict
	defer func() {
		for _, e := range v.Events() {
			d.log.Log(context.Background(), e.LogLevel(), e.String(), "limit", e.Limit)
		}
	}()
	if v.Outcome == policy.Allow || v.Outcome == policy.Delay {
		turn, cancel := context.WithTimeout(ctx, d.wait)
		defer cancel()
		var err error
		if v.Outcome == policy.Delay {
			err = v.Wait(turn)
		}
		if err == nil {
			err = end(turn, v)
		}
		if err != nil {
			return plain(http.StatusServiceUnavailable, "the request waited too long for its turn"), v, ctx.Err()
		}
	}
	switch v.Outcome {
	case policy.NoRoute:
		return &Response{Admitted: true, Header: http.Header{}}, v, nil
	case policy.Allow, policy.Delay:
		return &Response{Admitted: true, Header: responses.fields(v)}, v, nil
	case policy.Invalid:
		return plain(http.StatusBadRequest, v.InvalidReason()), v, nil
	case policy.UnknownCustomer:
		return responses.unknown(&r), v, nil
	case policy.UnverifiedCustomer:
		return unverified(&r), v, nil
	case policy.Left:
		return nil, v, cmp.Or(ctx.Err(), v.Err)
	}
	refused := responses.refused(v, &r)
	refused.By, refused.Decision = v.Limit, v.Decision
	return refused, v, nil
}

// plain returns a response with a line of text.
func plain(status int, text string) *Response {
	return &Response{Status: status, Body: []byte(text + "\n"), Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "Cache-Control": {"no-store"}}}
}
