package regions

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// The protocol between the regions is five counts of each limit at the home, in windows of a Term by
// the home's clock. What a region charges to shares in one window is in force for it in the next one,
// so a FixedWindow of the home bounds the sum, whatever the regions know of each other:
//
//	clock:REGION         tells when the home's window ends
//	demand:REGION:LIMIT  what callers wanted; each node adds its own
//	shares:LIMIT         the units that all regions have claimed, of those that follow demand
//	claimed:REGION:LIMIT that this region has claimed, and how much: a second claim does not fit
//	recent:REGION:LIMIT  the units claimed in this window and in the one before, for nodes that start
//
// Every node does so by itself: it reports its demand before the middle of a window, and reads and
// claims after it. The first node of a region that claims does so for all.

// homeName is the name of the home's limits, for each Term another one: a count is for one window.
func (o *Options) homeName() string { return "weir.regions." + o.Term.String() }

// The limits at the home. unbounded is a limit that only counts.
const unbounded = 1 << 50

func (s *Store) counting() weir.Limit {
	return weir.FixedWindow{Limit: unbounded, Window: s.opts.Term}
}

func (s *Store) sharesLimit() weir.Limit {
	return weir.FixedWindow{Limit: max(s.pool(), 1), Window: s.opts.Term}
}

// A claim of n units costs claimMark+n, and only one fits.
const claimMark = whole + 1

func (s *Store) claimedLimit() weir.Limit {
	return weir.FixedWindow{Limit: claimMark + whole, Window: s.opts.Term}
}

func (s *Store) recentLimit() weir.Limit {
	return weir.SlidingWindow{Limit: 4 * whole, Window: 2 * s.opts.Term, Slots: 2}
}

// homeKey is the key of a count. Names of regions have no colon, so no two counts have one key.
func homeKey(parts ...string) string { return strings.Join(parts, ":") }

// A window is the home's present window, as this node knows it.
type window struct {
	lo, hi int64 // it ends between these times of this node's clock; 0: nothing is known

	reported, claimed int64 // the end of the window in which this node did so
}

// done reports whether a step was taken in the window that ends at end.
func done(step, end, term int64) bool {
	return step != 0 && end-step < term/2 && step-end < term/2
}

// wake sets the timer for the next call of the home. s.mu is held.
func (s *Store) wake(now int64) {
	if s.closed || s.busy || len(*s.shares.Load()) == 0 || s.opts.fixed() {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = s.after(time.Duration(max(s.due(now)-now, 0)), s.call)
}

// due returns when the home is to be called next.
func (s *Store) due(now int64) int64 {
	w, term := &s.window, int64(s.opts.Term)
	if w.lo == 0 || s.unlearned() {
		return max(now, s.again)
	}
	for now >= w.hi { // nothing was heard: the windows go on
		w.lo, w.hi = w.lo+term, w.hi+term
	}
	begin := w.hi - term
	switch {
	case !done(w.reported, w.hi, term) && now < begin+term/2:
		return max(begin+s.reportAt, s.again)
	case !done(w.claimed, w.hi, term) && now < begin+term*7/8:
		return max(begin+s.claimAt, s.again)
	default:
		return max(w.hi+s.reportAt, s.again)
	}
}

// unlearned reports whether the present term of a limit is not known.
func (s *Store) unlearned() bool {
	for _, h := range *s.shares.Load() {
		h.mu.Lock()
		learned := h.learned
		h.mu.Unlock()
		if !learned {
			return true
		}
	}
	return false
}

// An exchange is a call of the home.
type exchange struct {
	batch      []weir.Charge
	out        []weir.Decision
	sent       int64
	err        error
	then       func(x *exchange, now int64) (next *exchange) // takes in the reply
	reports    bool
	claims     bool
	firstSent  int64            // when the counts of recent were read
	recent     map[*share]int64 // these
	recentEnds map[*share]int64
	shares     []*share // in the order of the batch
}

// call begins what is due.
func (s *Store) call() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.busy {
		return
	}
	now := s.clock()
	if at := s.due(now); at > now {
		s.wake(now)
		return
	}
	s.busy = true
	s.inFlight.Add(1)
	s.send(s.begin(now), now)
}

func (s *Store) send(x *exchange, now int64) {
	x.sent, x.out = now, make([]weir.Decision, len(x.batch))
	s.stats.calls.Add(1)
	s.run(x)
}

// runInBackground carries out a call, and takes in its reply.
func (s *Store) runInBackground(x *exchange) {
	go func() {
		s.transmit(x)
		s.receive(x)
	}()
}

// transmit carries out a call.
func (s *Store) transmit(x *exchange) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
	defer cancel()
	x.err = s.home.Do(ctx, x.batch, x.out)
	if down := x.err != nil; down != s.homeDown && s.opts.OnHome != nil {
		s.opts.OnHome(x.err)
	}
	s.homeDown = x.err != nil
}

// receive takes in a reply, and makes the call that follows from it.
func (s *Store) receive(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, term := s.clock(), int64(s.opts.Term)
	var next *exchange
	err := x.err
	s.stats.latest.Store(&err)
	if x.err != nil {
		s.stats.failures.Add(1)
		if x.reports {
			for _, h := range x.shares {
				h.unreport()
			}
		}
		s.again = now + term/32 + rand.Int64N(term/32)
	} else if !s.closed {
		next = x.then(x, now)
	}
	if next != nil {
		s.send(next, now)
		return
	}
	s.busy = false
	s.inFlight.Done()
	s.wake(now)
}

// begin returns the first call of what is due: nodes that start first read what their region claimed
// in the window before.
func (s *Store) begin(now int64) *exchange {
	x := &exchange{then: s.hearRecent}
	for _, h := range *s.shares.Load() {
		h.mu.Lock()
		if !h.learned {
			x.shares = append(x.shares, h)
			s.addCall(x, s.recentLimit(), weir.OpPeek, 0, "recent", s.opts.Here, h.name)
		}
		h.mu.Unlock()
	}
	if len(x.shares) == 0 {
		return s.reading(now)
	}
	return x
}

func (s *Store) addCall(x *exchange, l weir.Limit, op weir.Op, cost int64, key ...string) {
	x.batch = append(x.batch, weir.Charge{Name: s.opts.homeName(), Key: homeKey(key...), Limit: l, Op: op, Cost: cost})
}

func (s *Store) hearRecent(x *exchange, now int64) *exchange {
	next := s.reading(now)
	next.firstSent, next.recent, next.recentEnds = x.sent, map[*share]int64{}, map[*share]int64{}
	for i, h := range x.shares {
		next.recent[h], next.recentEnds[h] = 4*whole-x.out[i].Remaining, int64(x.out[i].ResetAfter)
	}
	return next
}

// reading returns the call that reports demand if that is due, and reads what this region has claimed.
// If a claim is due, it reads the demand of all regions too.
func (s *Store) reading(now int64) *exchange {
	w, term := &s.window, int64(s.opts.Term)
	begin := w.hi - term
	x := &exchange{then: s.hear}
	if w.lo != 0 && now < w.hi {
		x.reports = !done(w.reported, w.hi, term) && now >= begin+s.reportAt && now < begin+term/2
		x.claims = !done(w.claimed, w.hi, term) && now >= begin+s.claimAt && now < begin+term*7/8
	}
	s.addCall(x, s.counting(), weir.OpTake, 1, "clock", s.opts.Here)
	for _, h := range *s.shares.Load() {
		x.shares = append(x.shares, h)
		h.index = len(x.batch)
		s.addCall(x, s.sharesLimit(), weir.OpPeek, 0, "shares", h.name)
		s.addCall(x, s.claimedLimit(), weir.OpPeek, 0, "claimed", s.opts.Here, h.name)
		if x.reports {
			s.addCall(x, s.counting(), weir.OpTake, h.demand(now, term), "demand", s.opts.Here, h.name)
		}
		if x.claims {
			for _, r := range s.opts.Regions {
				s.addCall(x, s.counting(), weir.OpPeek, 0, "demand", r.Name, h.name)
			}
		}
	}
	return x
}

// demand returns what callers wanted since the latest report, for the length of a Term.
func (h *share) demand(now, term int64) int64 {
	h.took, h.since = h.offered.Swap(0), h.reported
	h.reported = now
	return int64(min(float64(h.took)*float64(term)/float64(max(now-h.since, term/8)), mostDemand))
}

// unreport is for a report that may not have arrived: it is made again.
func (h *share) unreport() {
	h.offered.Add(h.took)
	h.reported = h.since
}

// hear takes in what was read, and claims units if this region has none for the next window.
func (s *Store) hear(x *exchange, now int64) *exchange {
	lo, hi, ok := s.learnWindow(x, now, x.out[0])
	if !ok {
		return nil
	}
	w, term := &s.window, int64(s.opts.Term)
	if x.reports {
		w.reported = hi
	}
	claim := &exchange{then: s.hearClaim}
	for _, h := range x.shares {
		out := x.out[h.index:]
		units, hasClaimed := s.claimedUnits(x.out[0], out[0], out[1])
		h.mu.Lock()
		known := h.known.learn(lo, hi, term, units, hasClaimed)
		if recent, read := x.recent[h]; read && !h.learned {
			h.learned = x.firstSent > hi-term // the same window
			if h.learned && s.near(x.recentEnds[h], int64(x.out[0].ResetAfter)) {
				h.known.units = min(max(recent-units, 0), whole)
			}
		} else {
			h.learned = known
		}
		if !h.learned {
			s.again = now + term/64 // as when the window has just begun: not at once again
		}
		h.changed()
		h.mu.Unlock()
		if !x.claims || hasClaimed {
			continue
		}
		demand, here := make([]int64, len(s.opts.Regions)), 0
		for i, r := range s.opts.Regions {
			demand[i] = unbounded - out[2+i].Remaining
			if r.Name == s.opts.Here {
				here = i
			}
		}
		h.index = len(claim.batch)
		claim.shares = append(claim.shares, h)
		s.claim(claim, h, min(divide(s.pool(), s.guarantees(), demand)[here], out[0].Remaining))
	}
	if len(claim.batch) > 0 {
		return claim
	}
	if x.claims {
		w.claimed = hi
	}
	return nil
}

// claim adds a claim of units for the next window: all of it, or nothing.
func (s *Store) claim(x *exchange, h *share, units int64) {
	at, group := len(x.batch), len(x.shares)
	s.addCall(x, s.claimedLimit(), weir.OpTake, claimMark+units, "claimed", s.opts.Here, h.name)
	if units > 0 && s.pool() > 0 {
		s.addCall(x, s.sharesLimit(), weir.OpTake, units, "shares", h.name)
		s.addCall(x, s.recentLimit(), weir.OpTake, units, "recent", s.opts.Here, h.name)
	}
	for i := at; i < len(x.batch); i++ {
		x.batch[i].Group = group
	}
}

// hearClaim takes in the replies to claims. What was refused was claimed by another node of this
// region, or other regions left less: it is read again.
func (s *Store) hearClaim(x *exchange, now int64) *exchange {
	term, all := int64(s.opts.Term), true
	for i, h := range x.shares {
		end := len(x.batch)
		if i+1 < len(x.shares) {
			end = x.shares[i+1].index
		}
		allowed := true
		for _, d := range x.out[h.index:end] {
			allowed = allowed && d.Allowed
		}
		if !allowed {
			all = false
			continue
		}
		d := x.out[h.index]
		lo, hi, ok := s.learnWindow(x, now, d)
		if !ok || end-h.index > 1 && !s.near(int64(d.ResetAfter), int64(x.out[h.index+1].ResetAfter)) {
			continue
		}
		h.mu.Lock()
		h.learned = h.known.learn(lo, hi, term, x.batch[h.index].Cost-claimMark, true)
		h.changed()
		h.mu.Unlock()
	}
	if all {
		s.window.claimed = s.window.hi
	} else {
		s.again = now + term/64 + rand.Int64N(term/64)
	}
	return nil
}

// learnWindow takes in when the home's window ends. A reply of the last moment of a window is of no
// use.
func (s *Store) learnWindow(x *exchange, now int64, d weir.Decision) (lo, hi int64, ok bool) {
	term := int64(s.opts.Term)
	rest, slack := int64(d.ResetAfter), int64(s.opts.Margin)+term/1000 // clocks differ, and do not run equally fast
	if rest <= 0 || rest > term || now-x.sent > term/8 {
		s.again = now + term/32
		return 0, 0, false
	}
	lo, hi = x.sent+rest-slack, now+rest+slack
	s.window.lo, s.window.hi = lo, hi
	return lo, hi, true
}

// near reports whether two counts are in windows that end at the same time: after the home's clock
// has stepped back, each of its keys may have a clock of its own for a while.
func (s *Store) near(a, b int64) bool {
	term := int64(s.opts.Term)
	d := (a - b) % term
	d = min(max(d, -d), term-max(d, -d))
	return d <= int64(s.opts.Margin)
}

// claimedUnits returns what this region has claimed in the present window, if it has.
func (s *Store) claimedUnits(clock, shares, claimed weir.Decision) (units int64, hasClaimed bool) {
	count := claimMark + whole - claimed.Remaining
	if count < claimMark {
		return 0, false
	}
	units = count - claimMark
	if !s.near(int64(clock.ResetAfter), int64(claimed.ResetAfter)) || units > 0 && !s.near(int64(clock.ResetAfter), int64(shares.ResetAfter)) {
		return 0, true
	}
	return units, true
}

// String is for failures of tests.
func (t *terms) String() string {
	return fmt.Sprintf("%d until %d, %d from %d until %d", t.units, t.ends, t.next, t.begins, t.nextEnds)
}
