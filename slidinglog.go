package weir

import (
	"fmt"
	"math"
	"time"
)

// SlidingLog remembers each charge and is exact: never more than Limit in any interval shorter than Window, and in a closed interval of
// length D at most Limit*(floor(D/Window)+1). A charge leaves at exactly its time plus Window.
//
// It takes two words for each charge within the window, up to MaxEntries of them; where there are more, the oldest two become one that
// leaves with the later of them: still never over, but late. TokenBucket and SlidingCounter take less.
type SlidingLog struct {
	Limit      int64         // how many in any window; at least 1
	Window     time.Duration // how long it is
	MaxEntries int           // how many charges are remembered; 0 for Limit, or 4096 where that is less
}

// maxEntries bounds the memory of a log that does not say.
const maxEntries = 4096

// Validate reports what is wrong with the numbers.
func (l SlidingLog) Validate() error {
	const name = "SlidingLog"
	switch {
	case l.Limit < 1:
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	case l.Window < 1 || l.Window > maxSpan:
		return field(name, "Window", fmt.Errorf("%v is not within 1ns and 100 years", l.Window))
	case l.MaxEntries < 0 || l.MaxEntries == 1 || l.MaxEntries > 1<<24:
		return field(name, "MaxEntries", fmt.Errorf("%d is not within 2 and %d, nor 0", l.MaxEntries, 1<<24))
	}
	return nil
}

func (l SlidingLog) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	window, err := wholeUnits(l.Window, unit)
	if err != nil {
		return nil, field("SlidingLog", "Window", err)
	}
	l = l.normal().(SlidingLog)
	return &logged{limit: l.Limit, window: window, most: l.MaxEntries, tick: unit, horizon: int64(maxSpan / unit)}, nil
}

func (l SlidingLog) normal() Limit {
	if l.MaxEntries == 0 {
		l.MaxEntries = int(max(2, min(l.Limit, maxEntries)))
	}
	return l
}

// logged is the rule of SlidingLog. Its charges are in the order of their times; those that have left are skipped at the next charge, and
// their memory is used again once they are half of all.
type logged struct {
	limit, window int64
	most          int
	tick          time.Duration
	horizon       int64
}

// Words of a state of logged. Each charge is two words, its time and its cost.
const (
	wordLatest  = iota // the latest time that was promised and lies ahead; none
	wordSum            // of the costs that are remembered
	wordSkipped        // how many words of charges are skipped
	loggedWords
)

// Words of a ticket of logged.
const (
	ticketTime    = iota
	ticketAmount  // what is left of the cost
	ticketPromise // the latest promise before it
)

func (w *logged) capacity() int64     { return w.limit }
func (w *logged) largest() int64      { return w.limit }
func (w *logged) books() bool         { return true }
func (w *logged) wall() bool          { return false }
func (w *logged) unit() time.Duration { return w.tick }

func (w *logged) valid(s []int64) bool {
	if len(s) == 0 {
		return true
	}
	n := int64(len(s) - loggedWords)
	if n < 0 || n%2 != 0 || s[wordSkipped] < 0 || s[wordSkipped] > n || s[wordSkipped]%2 != 0 {
		return false
	}
	sum := int64(0)
	for i := loggedWords + int(s[wordSkipped]); i < len(s); i += 2 {
		if s[i+1] < 0 || i+2 < len(s) && s[i] > s[i+2] {
			return false
		}
		sum = plus(sum, s[i+1])
	}
	return sum == s[wordSum]
}

func (w *logged) contact(s []int64, _ int64) []int64 { return s }

// entries is where the charges that are remembered begin.
func entries(s []int64) int {
	if len(s) == 0 {
		return 0
	}
	return loggedWords + int(s[wordSkipped])
}

// at is the time that counts at now: that of the newest charge for an earlier reading, and the latest time promised where one lies ahead.
func (w *logged) at(s []int64, now int64) (t, wait int64) {
	if len(s) == 0 {
		return now, 0
	}
	wait = pending(s[wordLatest], now)
	if t = now + wait; entries(s) < len(s) {
		t = max(t, s[len(s)-2])
	}
	return t, wait
}

// live is the first charge that has not left at t, and the sum from there on.
func (w *logged) live(s []int64, t int64) (first int, sum int64) {
	if len(s) == 0 {
		return 0, 0
	}
	first, sum = entries(s), s[wordSum]
	for gone := minus(t, w.window); first < len(s) && s[first] <= gone; first += 2 {
		sum -= s[first+1]
	}
	return first, sum
}

// decide reads the log once. Where a promise lies ahead it leaves the matter to the others.
func (w *logged) decide(s []int64, now, cost int64, charge bool) (next []int64, v verdict, ok bool) {
	if s[wordLatest] != none && s[wordLatest] > now {
		return s, v, false
	}
	t, _ := w.at(s, now)
	first, sum := w.live(s, t)
	if sum > w.limit-cost {
		at := w.when(s, first, sum, t, cost)
		if v.wait = until(at, now); at == math.MaxInt64 || v.wait > w.horizon || v.wait == 0 {
			return s, v, false
		}
	} else if charge {
		sum += cost
		s[wordSkipped], s[wordSum], s[wordLatest] = int64(first-loggedWords), sum, none
		s = append(w.bounded(s, w.most-1), t, cost)
	}
	if sum > 0 {
		v.reset = until(plusTimes(s[len(s)-2], 1, w.window), now)
	}
	v.remaining = max(minus(w.limit, sum), 0)
	return s, v, true
}

// plan finds the charge whose leaving makes room. Behind others it goes by volume: it may then name too early a time, but never too late
// a one.
func (w *logged) plan(s []int64, now int64, ahead uint64, cost int64) plan {
	t, wait := w.at(s, now)
	first, sum := w.live(s, t)
	at := w.when(s, first, sum, t, cost)
	if ahead > 0 {
		if ahead > math.MaxUint64-uint64(cost) {
			return plan{never, never}
		}
		last := ahead + uint64(cost) - 1
		part := w.when(s, first, sum, t, int64(last%uint64(w.limit))+1)
		at = max(at, plusTimes(part, last/uint64(w.limit), w.window))
	}
	if at > t {
		wait = until(at, now)
	}
	if at == math.MaxInt64 || wait > w.horizon {
		return plan{never, never}
	}
	return plan{wait: wait}
}

// when is the time at which a cost fits, at t or later.
func (w *logged) when(s []int64, first int, sum, t, cost int64) int64 {
	for ; sum > w.limit-cost && first < len(s); first += 2 {
		t = plusTimes(s[first], 1, w.window)
		sum -= s[first+1]
	}
	return t
}

func (w *logged) charge(s []int64, now, cost int64) []int64 {
	s, _ = w.book(s, now, now, cost)
	return s
}

func (w *logged) book(s []int64, now, due, cost int64) ([]int64, ticket) {
	if len(s) == 0 {
		s = append(s, none, 0, 0)
	}
	due = max(due, now+pending(s[wordLatest], now))
	t, _ := w.at(s, due)
	mark := ticket{ticketTime: t, ticketAmount: cost, ticketPromise: s[wordLatest]}
	first, sum := w.live(s, t)
	s[wordSkipped], s[wordSum] = int64(first-loggedWords), plus(sum, cost)
	s = w.bounded(s, w.most-1)
	if s[wordLatest] = none; due > now {
		s[wordLatest] = due
	}
	return append(s, t, cost), mark
}

// bounded makes the oldest charges one until there are at most so many, and lets go of skipped words once they are half of all.
func (w *logged) bounded(s []int64, most int) []int64 {
	first := entries(s)
	for ; (len(s)-first)/2 > most; first += 2 {
		s[first+3] = plus(s[first+3], s[first+1])
	}
	if s[wordSkipped] = int64(first - loggedWords); 2*s[wordSkipped] >= int64(len(s)-loggedWords) {
		s[wordSkipped] = 0
		s = append(s[:loggedWords], s[first:]...)
	}
	return s
}

func (w *logged) serve(s []int64, _, now, cost int64) []int64 { return w.charge(s, now, cost) }
func (w *logged) asOf(_, now int64) int64                     { return now }

// refund takes back from a charge that is still remembered as it was made. Where it was the latest, and the only one of its time, what was
// promised before is the latest promise again.
func (w *logged) refund(s []int64, _ int64, t ticket, amount int64) []int64 {
	for i := len(s) - 2; i >= entries(s) && i > 0 && s[i] >= t[ticketTime]; i -= 2 {
		if s[i] != t[ticketTime] || s[i+1] != t[ticketAmount] {
			continue
		}
		s[i+1] -= amount
		if s[wordSum] -= amount; s[i+1] > 0 {
			return s
		}
		if alone := i == entries(s) || s[i-2] < s[i]; alone && i == len(s)-2 {
			s[wordLatest] = t[ticketPromise]
		}
		return append(s[:i], s[i+2:]...)
	}
	return s
}

func (w *logged) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	t, wait := w.at(s, now)
	_, sum := w.live(s, t)
	switch {
	case ahead > 0:
		reset = until(plusTimes(t, 1, w.window), now)
	case sum > 0:
		reset = until(plusTimes(s[len(s)-2], 1, w.window), now)
	}
	left := minus(w.limit, sum)
	if reset = max(reset, wait); wait > 0 || left <= 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// convert keeps what has not left: a longer window does not bring back what has.
func (w *logged) convert(s []int64, now int64, to rule, then int64) []int64 {
	next, ok := to.(*logged)
	switch {
	case !ok:
		return transfer(w, s, now, to, then)
	case len(s) == 0:
		return s
	}
	t, _ := w.at(s, now)
	first, sum := w.live(s, t)
	s[wordSkipped], s[wordSum] = int64(first-loggedWords), sum
	return next.bounded(s, next.most)
}

func (w *logged) reticket(t ticket, _ int64, to rule) (ticket, bool) {
	_, ok := to.(*logged)
	return t, ok
}

func (w *logged) spent(s []int64, now int64) int64 {
	t, _ := w.at(s, now)
	_, sum := w.live(s, t)
	return sum
}

func (w *logged) load(now, spent int64) []int64 { return w.charge(nil, now, min(spent, w.limit)) }
