package rules

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// SlidingLog is the parameters of the limit of that name.
type SlidingLog struct {
	Limit      int64
	Window     time.Duration
	MaxEntries int // default: Limit, at most 4096
}

// maxEntries bounds the memory of a log without MaxEntries.
const maxEntries = 4096

// Normal fills in MaxEntries.
func (l SlidingLog) Normal() SlidingLog {
	if l.MaxEntries == 0 {
		l.MaxEntries = int(max(2, min(l.Limit, maxEntries)))
	}
	return l
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l SlidingLog) Compile(unit time.Duration) (Rule, error) {
	window, err := wholeUnits("Window", l.Window, unit)
	if err != nil {
		return nil, err
	}
	return &slidingLogRule{ruleBasics: basicsFor(unit), limit: l.Limit, window: window, most: l.Normal().MaxEntries}, nil
}

// slidingLogRule is the rule of SlidingLog. Charges are ordered by time. Expired charges are
// skipped at the next charge, and their memory is reused once they are half of all.
//
// A charge expires only once the clock says so. A charge that will have expired at a promised time
// does not count at that time, but stays in the log: the promise may be given back.
type slidingLogRule struct {
	ruleBasics
	limit, window int64
	most          int
}

// Words of a state of slidingLogRule. Each charge is two words: its time and its cost.
const (
	wordLatest  = iota // the latest promised time in the future; or none
	wordSum            // the sum of the remembered costs, saturated
	wordSkipped        // how many words of expired charges are skipped
	// the reading at which the latest charge that was given back had been made; or none. Charges that
	// had expired by then are forgotten, so an earlier reading counts as this one.
	wordFloor
	loggedWords
)

// Words of a Ticket of slidingLogRule.
const (
	ticketTime    = iota
	ticketAmount  // the part of the cost that was not given back
	ticketPromise // the latest promise before the charge
	// the two charges that were merged to make room for it, as in a state; two costs of 0 if none
	// were
	ticketJoined
	ticketNow = ticketJoined + 4 // the reading at which the charge was made
)

func (w *slidingLogRule) Kind() string       { return "sliding_log" }
func (w *slidingLogRule) Words() int         { return 0 }
func (w *slidingLogRule) Capacity() int64    { return w.limit }
func (w *slidingLogRule) LargestCost() int64 { return w.limit }

func (w *slidingLogRule) Valid(s []int64) bool {
	if len(s) == 0 {
		return true
	}
	n := int64(len(s) - loggedWords)
	if n < 0 || n%2 != 0 || s[wordSkipped] < 0 || s[wordSkipped] > n || s[wordSkipped]%2 != 0 {
		return false
	}
	for i := entries(s); i < len(s); i += 2 {
		if s[i+1] < 0 || i+2 < len(s) && s[i] > s[i+2] {
			return false
		}
	}
	return sumFrom(s, entries(s)) == s[wordSum]
}

// entries is the index of the first remembered charge.
func entries(s []int64) int {
	if len(s) == 0 {
		return 0
	}
	return loggedWords + int(s[wordSkipped])
}

// sumFrom adds up the costs from one charge on.
func sumFrom(s []int64, first int) (sum int64) {
	for i := first; i < len(s); i += 2 {
		sum = plus(sum, s[i+1])
	}
	return sum
}

// at is the time that counts at now: the latest promised time if it is in the future, or, for an
// earlier reading, the time of the newest charge or the floor.
func (w *slidingLogRule) at(s []int64, now int64) (t, wait int64) {
	if len(s) == 0 {
		return now, 0
	}
	wait = pending(s[wordLatest], now)
	if t = max(now, s[wordLatest], s[wordFloor]); entries(s) < len(s) {
		t = max(t, s[len(s)-2])
	}
	return t, wait
}

// gone reports whether a charge has expired by t. It adds the window to the charge's time, as t
// minus the window may underflow.
func (w *slidingLogRule) gone(charge, t int64) bool {
	return charge <= t && uint64(t)-uint64(charge) >= uint64(w.window)
}

// leaves is how long after now a charge expires.
func (w *slidingLogRule) leaves(charge, now int64) int64 {
	switch {
	case charge > now:
		return plus(Until(charge, now), w.window)
	case w.gone(charge, now):
		return 0
	}
	return w.window - Until(now, charge)
}

// live is the first charge that has not expired at t, and the sum from there on.
func (w *slidingLogRule) live(s []int64, t int64) (first int, sum int64) {
	if len(s) == 0 {
		return 0, 0
	}
	first, sum = entries(s), s[wordSum]
	for ; first < len(s) && w.gone(s[first], t); first += 2 {
		sum -= s[first+1]
	}
	if s[wordSum] == math.MaxInt64 {
		sum = sumFrom(s, first)
	}
	return first, sum
}

// DecideDirect reads the log once. It leaves the decision to the general path if a promise lies
// ahead, or if the clock was set back.
func (w *slidingLogRule) DecideDirect(s []int64, now, cost int64, charge bool) (next []int64, v DirectVerdict, ok bool) {
	if s[wordLatest] != none && s[wordLatest] > now || s[wordFloor] > now || entries(s) < len(s) && s[len(s)-2] > now {
		return s, v, false
	}
	first, sum := w.live(s, now)
	if sum > w.limit-cost {
		at, named := w.when(s, first, sum, now, cost)
		if v.Retry = Until(at, now); !named || v.Retry > w.horizon {
			return s, v, false
		}
	} else if charge {
		sum += cost
		s[wordSkipped], s[wordSum], s[wordLatest] = int64(first-loggedWords), sum, none
		s, _ = w.bounded(s, first, 1)
		s = append(s, now, cost)
	}
	if sum > 0 {
		v.Reset = w.leaves(s[len(s)-2], now)
	}
	v.Remaining = max(Minus(w.limit, sum), 0)
	return s, v, true
}

// Plan finds the charge whose expiry makes room. Behind a queue it goes by volume: it may name too
// early a time, but never too late a one.
func (w *slidingLogRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	t, wait := w.at(s, now)
	first, sum := w.live(s, t)
	at, named := w.when(s, first, sum, t, cost)
	if ahead > 0 {
		whole, rest := inLimits(ahead, cost, w.limit)
		behind, ok := w.when(s, first, sum, t, rest)
		if whole > 0 {
			ok = ok && whole <= ClockLeft(behind)/uint64(w.window)
			behind = PlusTimes(behind, whole, w.window)
		}
		at, named = max(at, behind), named && ok
	}
	if at > t {
		wait = Until(at, now)
	}
	if !named || wait > w.horizon {
		return Plan{Never, Never}
	}
	return Plan{Wait: wait}
}

// inLimits divides the queue ahead, plus a cost, into whole limits and a rest from 1 to the limit.
func inLimits(ahead uint64, cost, limit int64) (whole uint64, rest int64) {
	// no overflow: no cost is above the limit
	whole, last, _ := u128.From(ahead).Add(u128.From(uint64(cost - 1))).Div(uint64(limit))
	return whole, int64(last) + 1
}

// when is the time, at t or later, at which a cost fits. It reports false if that is after the end
// of the clock.
func (w *slidingLogRule) when(s []int64, first int, sum, t, cost int64) (at int64, named bool) {
	room := w.limit - cost
	if sum <= room {
		return t, true
	}
	last := first // the last charge that has to expire
	if sum == math.MaxInt64 {
		for last = len(s) - 2; s[last+1] <= room; last -= 2 {
			room -= s[last+1]
		}
	} else {
		for sum -= s[last+1]; sum > room; sum -= s[last+1] {
			last += 2
		}
	}
	return PlusTimes(s[last], 1, w.window), uint64(w.window) <= ClockLeft(s[last])
}

func (w *slidingLogRule) Charge(s []int64, now, cost int64) []int64 {
	s, _ = w.Book(s, now, now, cost)
	return s
}

func (w *slidingLogRule) Book(s []int64, now, due, cost int64) ([]int64, Ticket) {
	if len(s) == 0 {
		s = append(s, none, 0, 0, none)
	}
	due = max(due, s[wordLatest])
	t, _ := w.at(s, due)
	mark := Ticket{ticketTime: t, ticketAmount: cost, ticketPromise: s[wordLatest], ticketNow: now}
	first, sum := w.live(s, now)
	s[wordSkipped], s[wordSum] = int64(first-loggedWords), plus(sum, cost)
	first, _ = w.live(s, t)
	s, joined := w.bounded(s, first, 1)
	copy(mark[ticketJoined:], joined[:])
	if s[wordLatest] = none; due > now {
		s[wordLatest] = due
	}
	return append(s, t, cost), mark
}

// bounded makes room for more charges by merging the oldest ones. counting is the first charge that
// counts at the promised time. At most MaxEntries charges may count, and at most twice as many may
// be in the log. It also frees skipped words once they are half of all. For one new charge it
// merges at most two Others, which it returns.
func (w *slidingLogRule) bounded(s []int64, counting, more int) (_ []int64, joined [4]int64) {
	first := entries(s)
	from, over := counting, (len(s)-counting)/2+more-w.most
	if over <= 0 {
		from, over = first, (len(s)-first)/2+more-2*w.most
	}
	if over > 0 {
		s, joined = join(s, from, over)
	}
	if first = entries(s); (len(s)-first)/2+more > 2*w.most { // after a change of the bound
		s, _ = join(s, first, (len(s)-first)/2+more-2*w.most)
	}
	if 2*s[wordSkipped] >= int64(len(s)-loggedWords) {
		s = append(s[:loggedWords], s[entries(s):]...)
		s[wordSkipped] = 0
	}
	return s, joined
}

// join merges n charges with those after them, from one on, and returns the last two that it
// merged.
func join(s []int64, from, n int) (_ []int64, joined [4]int64) {
	to := from + 2*n
	for i := from; i < to; i += 2 {
		copy(joined[:], s[i:i+4])
		s[i+3] = plus(s[i+3], s[i+1])
	}
	if from == entries(s) {
		s[wordSkipped] += int64(2 * n)
		return s, joined
	}
	return slices.Delete(s, from, to), joined
}

// unjoin undoes the merge of two charges.
func unjoin(s []int64, joined []int64) []int64 {
	if joined[1] == 0 {
		return s
	}
	for i := entries(s); i < len(s) && s[i] <= joined[2]; i += 2 {
		if s[i] != joined[2] || s[i+1] != plus(joined[1], joined[3]) {
			continue
		}
		if i > entries(s) && s[i-2] > joined[0] {
			return s // another charge with the same time and cost
		}
		s = append(s, 0, 0)
		copy(s[i+2:], s[i:])
		copy(s[i:], joined[:4])
		return s
	}
	return s
}

// Refund lowers a charge that is still remembered unmerged. If it was the latest, the merge that
// made room for it is undone, and the promise before it is the latest again. Charges with the same
// time and cost cannot be told apart: while one of them is left, its time stays promised.
func (w *slidingLogRule) Refund(_ *Memory, s []int64, _ int64, t Ticket, amount int64) []int64 {
	for i := len(s) - 2; i >= entries(s) && i > 0 && s[i] >= t[ticketTime]; i -= 2 {
		if s[i] != t[ticketTime] || s[i+1] != t[ticketAmount] {
			continue
		}
		full := s[wordSum] == math.MaxInt64
		s[wordSum] -= amount
		if s[i+1] -= amount; s[i+1] == 0 {
			if s = slices.Delete(s, i, i+2); i == len(s) {
				s = w.withoutLatest(s, t)
			}
		}
		if full {
			s[wordSum] = sumFrom(s, entries(s))
		}
		return s
	}
	return s
}

// withoutLatest is the state after its latest charge was removed.
func (w *slidingLogRule) withoutLatest(s []int64, t Ticket) []int64 {
	s[wordFloor] = max(s[wordFloor], t[ticketNow])
	switch newest := len(s) - 2; {
	case newest < entries(s):
		s[wordLatest] = none
	case s[newest] < t[ticketTime]: // the promise before may have been given back too
		s[wordLatest] = min(t[ticketPromise], s[newest])
	}
	return unjoin(s, t[ticketJoined:ticketNow])
}

func (w *slidingLogRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	t, wait := w.at(s, now)
	_, sum := w.live(s, t)
	switch {
	case ahead > 0:
		reset = w.leaves(t, now)
	case sum > 0:
		reset = w.leaves(s[len(s)-2], now)
	}
	left := Minus(w.limit, sum)
	if reset = max(reset, wait); wait > 0 || left <= 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// Convert keeps the charges that have not expired: a longer window does not bring expired ones
// back.
func (w *slidingLogRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	next, ok := to.(*slidingLogRule)
	switch {
	case !ok:
		return convertAcross(w, s, now, to, then)
	case len(s) == 0:
		return s
	}
	first, sum := w.live(s, now)
	s[wordSkipped], s[wordSum] = int64(first-loggedWords), sum
	t, _ := next.at(s, now)
	first, _ = next.live(s, t)
	s, _ = next.bounded(s, first, 0)
	return s
}

func (w *slidingLogRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	_, ok := to.(*slidingLogRule)
	return t, ok
}

func (w *slidingLogRule) Spent(s []int64, now int64) int64 {
	t, _ := w.at(s, now)
	_, sum := w.live(s, t)
	return sum
}

func (w *slidingLogRule) Load(now, spent int64) []int64 {
	return w.Charge(nil, now, min(spent, w.limit))
}

var slidingLogKind = Kind{
	Name:    "sliding_log",
	GoName:  "SlidingLog",
	Doc:     "Sliding window log: never more than limit in any window. It remembers each request of the window.",
	Returns: "a request comes back one window after it was admitted",
	Page:    "SlidingLog",
	Zero:    SlidingLog{},
	Script:  Script{Name: "log", Number: 6, Lists: true},
	Fields: []Field{
		{Name: "limit", Type: CountField, Required: true, Doc: "How many requests in any window; at least 1."},
		{Name: "window", Type: DurationField, Required: true, Doc: "The length of the window, like 1m."},
		{Name: "max_entries", Type: CountField, Default: "limit",
			Doc: "How many requests are remembered per key, up to 4096. Beyond it, the oldest two are merged: the limit is never exceeded, but capacity returns later."},
	},
	NoLease:   "it promises never more than limit in any window, and tokens that were taken ahead are used later than they were charged",
	NoRegions: "it promises never more than limit in any window, and the windows of several regions have no common clock",
	NoZone:    "the number of charges that its state keeps depends on the limit",
}

// Kind implements Params.
func (l SlidingLog) Kind() *Kind { return &slidingLogKind }

// MostPerRequest implements Params.
func (l SlidingLog) MostPerRequest() (int64, string) { return l.Limit, "limit" }

// QuotaWindow implements Params.
func (l SlidingLog) QuotaWindow() time.Duration { return l.Window }

// MostWords implements Params: the largest state, including skipped words.
func (l SlidingLog) MostWords() int64 {
	if l.MaxEntries == 0 {
		return 8 * min(l.Limit, maxEntries)
	}
	return 8 * int64(l.MaxEntries)
}

// Resets implements Params.
func (l SlidingLog) Resets() bool { return true }

// Share implements Shared.
func (l SlidingLog) Share(n int64) Params {
	l.Limit = part(l.Limit, n)
	return l
}

// UsedUp implements Shared.
func (l SlidingLog) UsedUp(time.Duration) []Use { return spread(l.Limit, l.Window, pieces) }

// StoreNumbers implements Stored.
func (l SlidingLog) StoreNumbers(c Counting) ([]int64, error) {
	entries := int64(l.Normal().MaxEntries)
	if entries > c.MostEntries {
		return nil, &FieldError{"MaxEntries", fmt.Errorf("%d are too many for %s, where each charge copies them all: at most %d", entries, c.Store, c.MostEntries)}
	}
	return []int64{l.Limit, c.units(l.Window), entries}, nil
}
