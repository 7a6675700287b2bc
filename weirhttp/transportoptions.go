package weirhttp

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/pacing"
)

// A TransportOption changes a Transport.
type TransportOption func(*transportSettings)

// transportSettings are what the options change.
type transportSettings struct {
	limits     []*paced
	pauseKey   KeyFunc
	gate       pacing.GateOptions
	store      weir.Store
	storeName  string
	retries    int
	percent    int64
	burst      int64
	floor      int64
	repeatable func(*http.Request) bool
	most       int
	throttle   float64 // its K; 0: none
	hedging    *pacing.Hedging
	adapt      *adaptive.Options
	observe    func(Attempt)
}

// The defaults of a Transport's options.
const (
	DefaultRetries    = 3
	DefaultMaxPause   = pacing.DefaultMaxPause
	DefaultMostQueued = 10_000

	defaultPercent = 10
	defaultBurst   = 10
)

// PauseBy names what a server's pause applies to: a refusal of one request holds back those with the
// same key. Use ByHeader("Authorization") joined with ByHost if the server limits each API key by
// itself. Requests without a key share one. default: ByHost()
func PauseBy(key KeyFunc) TransportOption {
	if key == nil {
		panic("weirhttp: PauseBy without a key: pass ByHost() or another KeyFunc")
	}
	return func(t *transportSettings) { t.pauseKey = key }
}

// MaxPause bounds how long a server can hold requests back, whatever its fields say. After it, one
// request goes first, and may be told to wait again. APIs with limits per hour or day need a longer
// one. default: DefaultMaxPause, 5 minutes
func MaxPause(longest time.Duration) TransportOption {
	if longest <= 0 {
		panic(fmt.Sprintf("weirhttp: MaxPause(%v): write a time above 0, like time.Hour", longest))
	}
	return func(t *transportSettings) { t.gate.MaxPause = longest }
}

// MaxPauseKeys bounds the memory for pauses: for how many keys without requests in flight a server's
// fields are remembered, at some hundred bytes each. Beyond it, the pause that ends first is
// forgotten. Throttle, Adapt and Hedge each keep as many keys, at some kilobytes, and forget the one that
// was used longest ago. default: 1024
func MaxPauseKeys(n int) TransportOption {
	if n < 1 {
		panic(fmt.Sprintf("weirhttp: MaxPauseKeys(%d): write a number above 0", n))
	}
	return func(t *transportSettings) { t.gate.MaxKeys = n }
}

// Processes says how many processes share the limits of the server. Each then has requests in flight
// for half of its share of what the server says remains, so that they do not use the same rest several
// times, and sends the last ones one by one and evenly until the reset. Of a limit below 4 for each
// process, each sends one request at a time, which may be refused. default: 1
func Processes(n int) TransportOption {
	if n < 1 {
		panic(fmt.Sprintf("weirhttp: Processes(%d): write a number above 0", n))
	}
	return func(t *transportSettings) { t.gate.Processes = int64(n) }
}

// NoLearnedRate lets requests go at once again after a pause, at whatever rate they come. Use it if a
// server refuses with 429 for another reason than the rate of requests with one key (PauseBy). default:
// the rate of a server that says nothing about its limit is learned from its refusals: see Transport
func NoLearnedRate() TransportOption {
	return func(t *transportSettings) { t.gate.NoRate = true }
}

// SharePauses tells other processes of pauses, through a store: those that use the same name keep to
// them too. A pause is known everywhere after two calls of the store and at most 25 ms; each process
// asks the store once in that time for each key in use. While the store is unavailable, each process
// keeps to the pauses that it was told itself. A call of the store takes at most 100 ms.
//
// Pauses by the fields RateLimit and the like, while requests are still admitted, are not shared: see
// Processes.
func SharePauses(store weir.Store, name string) TransportOption {
	if store == nil || name == "" {
		panic("weirhttp: SharePauses needs a store and a name, which is part of its keys")
	}
	return func(t *transportSettings) { t.store, t.storeName = store, name }
}

// Retries is how often a request is sent again at most, if it may be repeated: see Transport. 0 sends
// none again. default: DefaultRetries
func Retries(most int) TransportOption {
	if most < 0 {
		panic(fmt.Sprintf("weirhttp: Retries(%d): write a number of at least 0", most))
	}
	return func(t *transportSettings) { t.retries = most }
}

// RetryBudget bounds the retries of all requests to a host together: percent of their number, and burst
// more. Without it, a server that fails would get a multiple of its load, and get no rest to recover
// in. A request for which nothing is left gets its response or error as it is. With 0 of either, none is
// sent again, but for those of RetryFloor. default: 10 percent, and a burst of 10
func RetryBudget(percent, burst int) TransportOption {
	if percent < 0 || percent > 100 || burst < 0 {
		panic(fmt.Sprintf("weirhttp: RetryBudget(%d, %d): write 0 to 100 percent and a burst of at least 0, like RetryBudget(10, 10)", percent, burst))
	}
	return func(t *transportSettings) { t.percent, t.burst = int64(percent), int64(burst) }
}

// RetryFloor allows so many retries to each host in a second besides those of RetryBudget, for clients
// that send few requests. All clients of a server together can then send it so many more requests
// in each second. default: 0
func RetryFloor(perSecond int) TransportOption {
	if perSecond < 0 {
		panic(fmt.Sprintf("weirhttp: RetryFloor(%d): write a number of at least 0", perSecond))
	}
	return func(t *transportSettings) { t.floor = int64(perSecond) }
}

// Repeatable says which requests may be sent again, of those whose body can be read again. default:
// those with an idempotent method (GET, HEAD, OPTIONS, TRACE, PUT, DELETE), and those with the header
// field Idempotency-Key or X-Idempotency-Key
func Repeatable(may func(*http.Request) bool) TransportOption {
	if may == nil {
		panic("weirhttp: Repeatable without a function")
	}
	return func(t *transportSettings) { t.repeatable = may }
}

// MostQueued is how many requests wait at once. Further ones get an error. default:
// DefaultMostQueued
func MostQueued(n int) TransportOption {
	if n < 1 {
		panic(fmt.Sprintf("weirhttp: MostQueued(%d): write a number above 0", n))
	}
	return func(t *transportSettings) { t.most = n }
}

// OnAttempt calls a function after each attempt to send a request, for metrics and logs, from many
// goroutines at once. A panic of the function is the caller's of RoundTrip; about an attempt that is
// Lost, it is dropped.
func OnAttempt(f func(Attempt)) TransportOption {
	return func(t *transportSettings) { t.observe = f }
}

// An Attempt is what became of one attempt to send a request.
type Attempt struct {
	Request *http.Request // of a second attempt that is Lost: a copy
	Number  int           // 0, and counted up by retries
	Waited  time.Duration // for its turn
	Sent    bool          // it was sent; otherwise Err says why not
	Status  int           // of the response; 0 if there is none
	Pause   time.Duration // for how long the response holds back other requests
	Retried bool          // the request is sent again
	Hedge   bool          // it is a second attempt: see Hedge
	Lost    bool          // the caller got the result of the other attempt
	Err     error
}

type priorityKey struct{}

// WithPriority returns a context for requests of a level, from -10 to 10; default: 0. Of the requests
// that wait for the same limits and keys, that of the higher level goes first, unless the other has
// waited for 10 s longer for each level between them. So none waits for ever: a request waits only for
// those that came before it, or within that time after it. Adapt refuses requests of lower levels first.
func WithPriority(ctx context.Context, level int) context.Context {
	return context.WithValue(ctx, priorityKey{}, level)
}

func priorityOf(ctx context.Context) int {
	level, _ := ctx.Value(priorityKey{}).(int)
	return level
}
