package weirhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// A Response says what a middleware has decided about a request.
type Response struct {
	Limit    string // the name of the limit that decided
	Key      string // the key that was counted; with Policy only of requests that a limit refused or delayed
	Cost     int64  // 0 with Policy, whose limits have costs of their own
	Decision weir.Decision
	Waited   time.Duration // how long the request has waited
	Missing  bool          // refused because it has no key, see MissingRefuse
	Shadow   bool          // the decision is not enforced
	Err      error         // the error of a Limiter or a store that did not decide

	Outcome policy.Outcome // Allow, Deny, or Left for a request whose client left the queue
	Route   int            // with Policy, the index of the route that matched; otherwise -1
}

type responseKey struct{}

// ResponseFrom returns what the innermost middleware has decided about a request, from its context.
// It is there in handlers given to Refused, and with the option InContext in all others.
func ResponseFrom(ctx context.Context) (Response, bool) {
	r, ok := ctx.Value(responseKey{}).(*Response)
	if !ok {
		return Response{}, false
	}
	return *r, true
}

// DecisionFrom is ResponseFrom for the decision alone.
func DecisionFrom(ctx context.Context) (weir.Decision, bool) {
	r, ok := ResponseFrom(ctx)
	return r.Decision, ok
}

// with returns the request with the response in its context.
func (m Response) with(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), responseKey{}, &m))
}
