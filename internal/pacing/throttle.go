package pacing

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// A Throttle refuses requests before they are sent, while a server accepts too few of them. That is
// the adaptive throttling of Google's book on site reliability engineering (chapter 21, Handling
// Overload): of the requests within a time, a client counts all (requests) and those that the server
// accepted (accepts), and refuses the next one with the probability
//
//	max(0, (requests - K*accepts) / (requests + 1))
//
// Those that it refuses itself count as requests. So a server gets K times as many requests as it
// accepts, and not more: even to refuse costs it something. Of fewer than Least requests, none is
// refused, unlike in the book: there, one failure of a client that hardly calls refuses every second
// request for two minutes.
//
// The formula alone takes ten minutes to end after an outage of two, with 100 requests a second: what
// the client refused itself fills the window, and hardly a request is sent that could be accepted. So
// one request in a second is always sent, or one of 20 if those take longer. And if the server has
// accepted all that was sent within the last 5 seconds, the formula counts the last second alone, or the
// last 20 requests if they took longer: so K times as many are sent after each second that goes well.
//
// A request counts when its result is known: with those in flight, a burst at the start would look
// like an outage. It is safe for concurrent use.
type Throttle struct {
	o ThrottleOptions

	mu    sync.Mutex
	slots [throttleSlots]outcomes
	last  int64 // the number of the newest slot, counted from 0 at the beginning of time
	all   outcomes

	sent    int64 // the slot in which a request was admitted last
	refused int64 // requests since then
}

// outcomes are the requests of a time.
type outcomes struct {
	requests, accepts int64
	failed            int64 // of the requests, those that were sent and not accepted
}

// throttleSlots is how many parts the window has: the oldest is forgotten as a whole.
const throttleSlots = 120

const (
	// leastRecent is how many requests the last second has at least, or else it is longer.
	leastRecent = 20
	// cleanSlots is how many slots without a failure show that the server accepts all.
	cleanSlots = throttleSlots / 24
)

// ThrottleOptions are the parameters of a Throttle.
type ThrottleOptions struct {
	K      float64       // requests for each that is accepted; rounded to hundredths. default: 2
	Window time.Duration // default: 2 minutes
	Least  int64         // default: 10

	Now  func() time.Time        // replaces the clock
	Draw func(below int64) int64 // replaces the random numbers, from 0 up to but not including below
}

// The defaults of ThrottleOptions.
const (
	DefaultK      = 2
	DefaultWindow = 2 * time.Minute
	DefaultLeast  = 10
)

// MostK bounds K, so that no product overflows.
const MostK = 1000

func (o ThrottleOptions) complete() ThrottleOptions {
	if o.K == 0 {
		o.K = DefaultK
	}
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.Least <= 0 {
		o.Least = DefaultLeast
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Draw == nil {
		o.Draw = rand.Int64N
	}
	o.K = min(max(o.K, 1), MostK)
	o.Window = max(o.Window, throttleSlots)
	return o
}

// NewThrottle returns a Throttle that has seen nothing.
func NewThrottle(o ThrottleOptions) *Throttle {
	t := &Throttle{o: o.complete()}
	t.last = t.slot()
	return t
}

func (t *Throttle) slot() int64 { return t.o.Now().UnixNano() / int64(t.o.Window/throttleSlots) }

// forget drops what is older than the window.
func (t *Throttle) forget() {
	now := t.slot()
	if now < t.last { // the clock went back: what is counted lasts for a window from now
		t.last, t.sent = now, min(t.sent, now)
	}
	for range min(now-t.last, throttleSlots) {
		t.last++
		old := &t.slots[index(t.last)]
		t.all.requests -= old.requests
		t.all.accepts -= old.accepts
		t.all.failed -= old.failed
		*old = outcomes{}
	}
	t.last = now
}

func index(slot int64) int64 { return (slot%throttleSlots + throttleSlots) % throttleSlots }

// excess is how many hundredths of a request there are more than K for each accepted one; 0 or below
// if there are no more.
func (t *Throttle) excess(o outcomes) int64 {
	return 100*o.requests - int64(math.Round(100*t.o.K))*o.accepts
}

// recovered returns the latest requests if the server accepted all of them that were sent: those of the
// newest slot and the one before, and of as many more as it takes to have enough.
func (t *Throttle) recovered() (o outcomes, ok bool) {
	for i := range int64(throttleSlots) {
		s := &t.slots[index(t.last-i)]
		if s.failed > 0 {
			return o, false
		}
		if i <= 1 || o.requests < leastRecent {
			o.requests += s.requests
			o.accepts += s.accepts
		} else if i >= cleanSlots {
			break
		}
	}
	return o, o.accepts > 0
}

// refuses draws whether the next request is refused.
func (t *Throttle) refuses() bool {
	if !t.throttling() || t.refused >= leastRecent && t.last > t.sent {
		return false
	}
	of := t.all
	if latest, ok := t.recovered(); ok {
		of = latest
	}
	excess := t.excess(of)
	return excess > 0 && t.o.Draw(100*(of.requests+1)) < excess
}

func (t *Throttle) throttling() bool {
	t.forget()
	return t.all.requests >= t.o.Least && t.excess(t.all) > 0
}

// Admit reports whether a request may be sent. If not, it counts it, and returns what it knows of the
// window.
func (t *Throttle) Admit() (ok bool, requests, accepts int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	refused := t.refuses()
	if requests, accepts = t.all.requests, t.all.accepts; refused {
		t.count(outcomes{requests: 1})
		t.refused++
	} else {
		t.sent, t.refused = t.last, 0
	}
	return !refused, requests, accepts
}

// Done counts a request that was sent, and whether the server accepted it: it did anything but refuse
// it because of too much load, or fail to respond.
func (t *Throttle) Done(accepted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	if accepted {
		t.count(outcomes{requests: 1, accepts: 1})
	} else {
		t.count(outcomes{requests: 1, failed: 1})
	}
}

func (t *Throttle) count(o outcomes) {
	for _, of := range []*outcomes{&t.slots[index(t.last)], &t.all} {
		of.requests += o.requests
		of.accepts += o.accepts
		of.failed += o.failed
	}
}

// Throttling reports whether some requests are refused now.
func (t *Throttle) Throttling() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.throttling()
}

// Window returns the time that is counted over.
func (t *Throttle) Window() time.Duration { return t.o.Window }
