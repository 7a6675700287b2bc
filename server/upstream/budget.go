package upstream

import (
	"sync/atomic"

	"github.com/weirflow/weir"
)

// budget limits retries to a share of all requests. It is a token bucket whose clock counts
// requests: every hundred requests add a fixed number of tokens.
type budget struct {
	requests atomic.Int64
	limiter  *weir.Limiter
}

// burst is the most retries at once, enough for the requests in flight when a target dies.
const burst = 100

func newBudget(percent int) (b *budget, err error) {
	b = &budget{}
	b.limiter, err = weir.New(weir.TokenBucket{Rate: weir.Rate{N: int64(percent), Per: 100}, Burst: burst}, weir.WithClock(b.requests.Load))
	return b, err
}

// request counts a request.
func (b *budget) request() { b.requests.Add(1) }

// spend takes one token, and reports whether there was one.
func (b *budget) spend() bool { return b.limiter.Allow() }
