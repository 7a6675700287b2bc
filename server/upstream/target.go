package upstream

import (
	"context"
	"net/url"
	"slices"
	"time"
)

// A Target is one server of an upstream. All but its URL is guarded by the upstream's lock.
type Target struct {
	url    *url.URL
	addr   string
	weight int64
	turn   int64 // whose it is among those that are equally loaded: see Pick

	inFlight         int64
	requests, failed uint64

	row   int       // requests in a row that failed
	until time.Time // it is out until then, and on trial from then on until a request has been answered; zero where it is neither
	tried bool      // a request is under way that is the trial
	times int       // how often it went out without having been in for long
	last  time.Duration
	since time.Time // when it came back
	era   int       // counts how often it went out and came back: what was begun before says nothing about now

	up     bool // by the checks; true where there are none
	checks int  // checks in a row that said otherwise
	stop   context.CancelFunc
}

// URL returns where the target is. It is not to be changed.
func (t *Target) URL() *url.URL { return t.url }

// An Exchange is one request at one target, counted there until Done. It is for one goroutine at a time.
type Exchange struct {
	Target *Target
	u      *Upstream
	era    int
	trial  bool
	calm   bool // the target was in when it was picked: an answer says nothing new
	done   bool
}

// An Outcome is how an exchange ended.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota // completely
	Failed                  // for a reason of the target's: it could not be reached, or did not answer, or not completely
	Left                    // for another reason, as that the client is gone
)

// Pick chooses a target and counts a request there: of those that are in, the one with the fewest requests under way for its weight. Those that
// are equal take turns by their weights. A target that has been out gets one request; the others follow when that is answered. While all are
// out, either all count as in, or the error is ErrOut, as the policy says. Where a request was sent before, and MayRetry has allowed another try, those targets are left out, and
// only targets that are in remain.
func (u *Upstream) Pick(not ...*Target) (Exchange, error) {
	s := u.settings.Load()
	if len(not) == 0 {
		s.budget.request()
	}
	most := int64(s.spec.MaxRequests)
	now := u.opts.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	full := false
	best := u.least(func(t *Target) bool {
		if !t.in(now) || slices.Contains(not, t) {
			return false
		}
		full = full || most > 0 && t.inFlight >= most
		return most == 0 || t.inFlight < most
	})
	switch {
	case best != nil:
	case full:
		return Exchange{}, ErrFull
	case len(not) > 0 || s.refuse:
		return Exchange{}, ErrOut
	default:
		if best = u.least(func(t *Target) bool { return most == 0 || t.inFlight < most }); best == nil {
			return Exchange{}, ErrFull
		}
	}
	e := Exchange{Target: best, u: u, era: best.era, calm: best.until.IsZero(), trial: !best.until.IsZero() && !now.Before(best.until)}
	best.tried = best.tried || e.trial
	best.inFlight++
	best.requests++
	return e, nil
}

// in reports whether a target is given requests.
func (t *Target) in(now time.Time) bool {
	return t.up && (t.until.IsZero() || !t.tried && !now.Before(t.until))
}

// least returns the least loaded of the targets that may be picked. Equal ones take turns: each gets ahead by its weight, and who is
// furthest ahead goes, and falls behind by what the others got.
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

// Heard says that the header of an answer is there. It ends the trial of a target that was out.
func (e *Exchange) Heard() {
	t := e.Target
	e.u.mu.Lock()
	defer e.u.mu.Unlock()
	if e.done || e.era != t.era || t.until.IsZero() {
		return
	}
	t.until, t.tried, t.row, t.since = time.Time{}, false, 0, e.u.opts.Now()
	t.era++
	e.era, e.trial = t.era, false
	e.u.opts.Log.Info("upstream target is up", "upstream", e.u.name, "target", t.url.Host, "why", "it answered a request")
}

// Done ends the exchange, once; further calls do nothing. why is for the log, and must name no client.
func (e *Exchange) Done(o Outcome, why string) {
	t, u := e.Target, e.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.done {
		return
	}
	e.done = true
	t.inFlight--
	if o == Failed {
		t.failed++
	}
	if e.era != t.era {
		return
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
		// A target that is out and was tried nevertheless goes out anew only by its trial.
		if s.failures > 0 && (e.trial || t.row >= s.failures && t.until.IsZero()) {
			u.putOut(t, s.out, why)
		}
	}
}

// maxDoublings bounds how much longer a target stays out each time.
const maxDoublings = 5

// putOut takes a target out for a while, longer each time, unless it has been in for as long as it was out.
func (u *Upstream) putOut(t *Target, base time.Duration, why string) {
	now := u.opts.Now()
	if t.until.IsZero() && now.Sub(t.since) > t.last {
		t.times = 0
	}
	t.last = base << min(t.times, maxDoublings)
	t.times++
	t.until, t.tried, t.row = now.Add(t.last), false, 0
	t.era++
	u.opts.Log.Warn("upstream target is down", "upstream", u.name, "target", t.url.Host, "for", t.last.String(), "why", why)
}
