package transport

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A hidden limit decides about requests at a time since the start.
type hidden interface {
	// take admits a request or not. left is how much remains, reset the time until all is back, and
	// retry the time until a request is admitted.
	take(now time.Duration) (ok bool, left int64, reset, retry time.Duration)
	// rate is how many requests it admits per second in the long run.
	rate() float64
	// policy is its RateLimit-Policy.
	policy() string
}

// bucket is a token bucket, in floating point and without our code.
type bucket struct {
	perSecond, burst float64
	missing          float64
	last             time.Duration
}

func (b *bucket) take(now time.Duration) (bool, int64, time.Duration, time.Duration) {
	b.missing = max(0, b.missing-b.perSecond*(now-b.last).Seconds())
	b.last = now
	ok := b.burst-b.missing >= 1
	if ok {
		b.missing++
	}
	span := func(tokens float64) time.Duration {
		return time.Duration(math.Ceil(max(tokens, 0) / b.perSecond * float64(time.Second)))
	}
	return ok, int64(b.burst - b.missing), span(b.missing), span(1 - (b.burst - b.missing))
}

func (b *bucket) rate() float64 { return b.perSecond }

func (b *bucket) policy() string {
	return fmt.Sprintf(`"hidden";q=%.0f;w=%.0f`, b.burst, math.Ceil(b.burst/b.perSecond))
}

// window is a fixed window.
type window struct {
	limit  int64
	length time.Duration
	shift  time.Duration // of the first window's start, before the start
	number int64
	used   int64
}

func (w *window) take(now time.Duration) (bool, int64, time.Duration, time.Duration) {
	now += w.shift
	if n := int64(now / w.length); n != w.number {
		w.number, w.used = n, 0
	}
	end := w.length - now%w.length
	if w.used >= w.limit {
		return false, 0, end, end
	}
	w.used++
	return true, w.limit - w.used, end, 0
}

func (w *window) rate() float64 { return float64(w.limit) / w.length.Seconds() }

func (w *window) policy() string {
	return fmt.Sprintf(`"hidden";q=%d;w=%.0f`, w.limit, math.Ceil(w.length.Seconds()))
}

// fields says what the responses of an upstream tell of its limit.
type fields int

const (
	noFields   fields = iota // nothing
	retryAfter               // Retry-After with refusals
	allFields                // RateLimit, RateLimit-Policy, and Retry-After with refusals
)

func (f fields) String() string { return []string{"no fields", "Retry-After", "RateLimit"}[f] }

// upstream is a server with a hidden limit.
type upstream struct {
	limit hidden
	tells fields
	start time.Time

	mu       sync.Mutex
	admitted int64
	refused  int64
}

// respond decides about a request and sets the header fields of its response.
func (u *upstream) respond(h http.Header) (status int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ok, left, reset, retry := u.limit.take(time.Since(u.start))
	seconds := func(d time.Duration) string { return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10) }
	if u.tells == allFields {
		h.Set("RateLimit", `"hidden";r=`+strconv.FormatInt(left, 10)+";t="+seconds(reset))
		h.Set("RateLimit-Policy", u.limit.policy())
	}
	if ok {
		u.admitted++
		return http.StatusOK
	}
	u.refused++
	if u.tells != noFields {
		h.Set("Retry-After", seconds(max(retry, 1)))
	}
	return http.StatusTooManyRequests
}

// ServeHTTP is the upstream as a server.
func (u *upstream) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(u.respond(w.Header()))
}

// A result is what an upstream has counted of a client.
type result struct {
	goodput float64 // admitted requests, of the limit's rate
	refused float64 // refused requests, of all
	sent    int64
}

// forget lets the counts start over.
func (u *upstream) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.admitted, u.refused = 0, 0
}

func (u *upstream) result(d time.Duration) result {
	u.mu.Lock()
	defer u.mu.Unlock()
	sent := u.admitted + u.refused
	return result{float64(u.admitted) / (u.limit.rate() * d.Seconds()), float64(u.refused) / float64(max(sent, 1)), sent}
}

func (r result) String() string {
	return fmt.Sprintf("goodput %5.1f %%, refused %6.2f %% of %d", 100*r.goodput, 100*r.refused, r.sent)
}
