package upstream

import (
	"context"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/policy"
)

// A Target is one server of an upstream. The upstream's lock guards everything but the URL and http2.
type Target struct {
	url    *url.URL
	addr   string
	weight int64
	turn   int64       // decides among equally loaded targets: see least
	http2  atomic.Bool // the last response came over HTTP/2

	inFlight         int64
	requests, failed uint64

	row int // consecutive failures
	// The target is down until then. After that it is on trial until it responds to a request.
	// Zero: neither.
	until time.Time
	tried bool // the trial's request is in flight
	times int  // how often it went down without staying up for long in between
	last  time.Duration
	since time.Time // when it came up again
	// raised with each change between up and down. Results of exchanges that began in an earlier
	// generation are ignored.
	generation int

	adaptive policy.Adaptive   // the settings of limit
	limit    *adaptive.Limiter // nil for none
	queued   int               // requests that wait for a place at limit

	up     bool // according to the health checks; true without checks
	checks int  // consecutive checks with the opposite result
	stop   context.CancelFunc
}

// URL returns the URL of the target. Do not modify it.
func (t *Target) URL() *url.URL { return t.url }

// An Exchange is one request to one target. The target counts it as in flight until Done. An
// Exchange is not safe for concurrent use.
type Exchange struct {
	Target     *Target
	u          *Upstream
	generation int
	trial      bool
	calm       bool // the target was up when it was picked, so that a response is no news
	done       bool
	hold       adaptive.Hold // of the target's adaptive limit
	place      *Place        // that it belongs to; nil for none
}

// An Outcome says how an exchange ended.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota // the response was complete
	// the target failed: it could not be reached, or its response was missing or incomplete
	Failed
	Left // any other end, for example because the client disconnected
)

// Pick chooses a target and counts a request in flight there.
//
// Among the targets that are up, Pick chooses the one with the fewest requests in flight relative
// to its weight. Equal targets take turns, according to their weights. A target that was down gets
// one request as a trial; others follow after its response. While all targets are down, the policy
// decides: either all count as up, or the error is ErrOut. If all targets that may be chosen are at
// their limit of requests, the error is ErrFull. If the adaptive limit of some of them is why, it is
// ErrOverloaded.
//
// For a retry, pass the targets that were already tried, after MayRetry has allowed it. Pick then
// leaves them out and chooses only among targets that are up.
func (u *Upstream) Pick(not ...*Target) (Exchange, error) {
	return u.pick(adaptive.Request{}, false, not...)
}

func (u *Upstream) pick(as adaptive.Request, waits bool, not ...*Target) (Exchange, error) {
	s := u.settings.Load()
	if len(not) == 0 {
		s.budget.request()
	}
	now := u.opts.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	best, hold, err := u.find(s, now, as, waits, not...)
	if err != nil {
		return Exchange{}, err
	}
	return u.begin(best, hold, now), nil
}

// find chooses a target, and takes a place at its adaptive limit. The caller holds the upstream's lock.
func (u *Upstream) find(s *settings, now time.Time, as adaptive.Request, waits bool, not ...*Target) (*Target, adaptive.Hold, error) {
	most, full := int64(s.spec.MaxRequests), false
	best, hold, overloaded := u.choose(as, waits, func(t *Target) bool {
		if !t.in(now) || slices.Contains(not, t) {
			return false
		}
		full = full || most > 0 && t.inFlight >= most
		return most == 0 || t.inFlight < most
	})
	switch {
	case best != nil:
		return best, hold, nil
	case overloaded:
		return nil, hold, ErrOverloaded
	case full:
		return nil, hold, ErrFull
	case len(not) > 0 || s.refuse:
		return nil, hold, ErrOut
	}
	best, hold, overloaded = u.choose(as, waits, func(t *Target) bool { return most == 0 || t.inFlight < most })
	switch {
	case best != nil:
		return best, hold, nil
	case overloaded: // the limits are full of requests that get no response: an overload is not the reason
		return nil, hold, ErrOut
	}
	return nil, hold, ErrFull
}

// begin counts a request in flight to a target. The caller holds the upstream's lock.
func (u *Upstream) begin(t *Target, hold adaptive.Hold, now time.Time) Exchange {
	e := Exchange{Target: t, u: u, generation: t.generation, calm: t.until.IsZero(), trial: !t.until.IsZero() && !now.Before(t.until), hold: hold}
	t.tried = t.tried || e.trial
	t.inFlight++
	t.requests++
	return e
}

// in reports whether a target may get requests.
func (t *Target) in(now time.Time) bool {
	return t.up && (t.until.IsZero() || !t.tried && !now.Before(t.until))
}

// least returns the least loaded of the targets that may be picked. Equally loaded targets take
// turns by smooth weighted round robin: each gains its weight, the one with the most is picked, and
// it loses what all of them gained.
func (u *Upstream) least(may func(*Target) bool) (best *Target) {
	var total int64
	for _, t := range u.targets {
		if !may(t) {
			continue
		}
		if best != nil {
			switch mine, others := t.inFlight*best.weight, best.inFlight*t.weight; {
			case mine > others:
				continue
			case mine < others:
				best, total = nil, 0
			}
		}
		t.turn += t.weight
		total += t.weight
		if best == nil || t.turn > best.turn {
			best = t
		}
	}
	if best != nil {
		best.turn -= total
	}
	return best
}

// Heard records that the header of the response was received. It ends the trial of a target that
// was down.
func (e *Exchange) Heard() {
	t := e.Target
	e.u.mu.Lock()
	defer e.u.mu.Unlock()
	if e.done || e.generation != t.generation || t.until.IsZero() {
		return
	}
	t.until, t.tried, t.row, t.since = time.Time{}, false, 0, e.u.opts.Now()
	t.generation++
	e.generation, e.trial = t.generation, false
	e.u.opts.Log.Info("upstream target is up", "upstream", e.u.name, "target", t.url.Host, "why", "it responded to a request")
}

// Done ends the exchange. Only its first call counts. why goes to the log and must not name a
// client.
func (e *Exchange) Done(o Outcome, why string) {
	if e.end(o, why) {
		e.release(o)
	}
}

// end reports whether the exchange had not ended before.
func (e *Exchange) end(o Outcome, why string) bool {
	t, u := e.Target, e.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.done {
		return false
	}
	e.done = true
	t.inFlight--
	if o == Failed {
		t.failed++
	}
	if e.generation != t.generation {
		return true
	}
	if e.trial {
		t.tried = false
	}
	s := u.settings.Load()
	switch o {
	case Answered:
		t.row = 0
	case Failed:
		t.row++
		// A target that is down and got requests anyway, because all were down, extends its time
		// only when its trial fails.
		if s.failures > 0 && (e.trial || t.row >= s.failures && t.until.IsZero()) {
			u.putOut(t, s.out, why)
		}
	}
	return true
}

// maxDoublings limits how often the time that a target stays down doubles.
const maxDoublings = 5

// putOut marks a target as down. The time doubles with each failure in succession. It starts over
// at base if the target was up for longer than it was last down.
func (u *Upstream) putOut(t *Target, base time.Duration, why string) {
	now := u.opts.Now()
	if t.until.IsZero() && now.Sub(t.since) > t.last {
		t.times = 0
	}
	t.last = base << min(t.times, maxDoublings)
	t.times++
	t.until, t.tried, t.row = now.Add(t.last), false, 0
	t.generation++
	u.opts.Log.Warn("upstream target is down", "upstream", u.name, "target", t.url.Host, "for", t.last.String(), "why", why)
}
