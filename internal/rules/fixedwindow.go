package rules

import (
	"math"
	"time"

	"github.com/weirflow/weir/internal/outstanding"
)

// FixedWindow is the parameters of the limit of that name.
type FixedWindow struct {
	Limit  int64
	Window time.Duration
	Align  string

	Calendar Windows // the windows of a calendar Align; nil for other Aligns
}

// The alignments without a calendar.
const (
	AlignEpoch = "epoch"
	AlignFirst = "first"
)

// shortestSingle is the shortest window that a word may be about alone: a table renews its words with each such window.
const shortestSingle = time.Minute

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l FixedWindow) Compile(unit time.Duration) (Rule, error) {
	w := &fixedWindowRule{ruleBasics: basicsFor(unit), limit: l.Limit, windows: l.Calendar, single: l.Calendar != nil}
	w.bits, w.latest = divideWord(w.limit, 1, 1, w.horizon)
	if l.Calendar != nil {
		return w, nil
	}
	length, err := wholeUnits("Window", l.Window, unit)
	if err != nil {
		return nil, err
	}
	w.windows, w.length, w.hits = epochWindows(length), length, l.Align == AlignFirst
	if w.hits {
		w.windows = firstChargeWindows(length)
	}
	w.single = !w.hits && length > w.latest && l.Window >= shortestSingle
	return w, nil
}

// Unbounded implements Counted.
func (FixedWindow) Unbounded() (field string, most int64) { return "limit", NoBound }

// Windows is a division of time into windows. A window has an id, which rises with time.
type Windows interface {
	// Window returns the window that contains t.
	Window(t int64) (id int64)
	// Ends returns when the n-th window after the given one begins, and so for n = 1 when that one
	// ends; at most the end of the clock.
	Ends(id int64, n uint64) int64
	// Begins returns when a window begins.
	Begins(id int64) int64
	// ReadsWallTime reports whether t is wall time.
	ReadsWallTime() bool
	// Identity is equal for equal divisions of time.
	Identity() any
}

// epochWindows is windows at multiples of their length. The id is the time at which a window
// begins.
type epochWindows int64

func (g epochWindows) ReadsWallTime() bool   { return true }
func (g epochWindows) Begins(id int64) int64 { return id }
func (g epochWindows) Window(t int64) int64  { return floorTo(t, int64(g)) }

// Ends accounts for the first window of the clock, which begins before the clock does.
func (g epochWindows) Ends(id int64, n uint64) int64 {
	return PlusTimes(PlusTimes(id, 1, int64(g)-modulo(id, int64(g))), n-1, int64(g))
}

func (g epochWindows) Identity() any { return g }

// firstChargeWindows is windows that begin with a charge. The id is the time at which a window
// begins.
type firstChargeWindows int64

func (h firstChargeWindows) ReadsWallTime() bool           { return false }
func (h firstChargeWindows) Begins(id int64) int64         { return id }
func (h firstChargeWindows) Window(t int64) int64          { return t }
func (h firstChargeWindows) Ends(id int64, n uint64) int64 { return PlusTimes(id, n, int64(h)) }
func (h firstChargeWindows) Identity() any                 { return h }

// fixedWindowRule is the rule of FixedWindow. Work that is promised a later window is counted there
// at once, and the state is then about that window: nothing goes before promised work.
type fixedWindowRule struct {
	ruleBasics
	limit   int64
	windows Windows

	length int64 // of a window; 0 in a calendar
	hits   bool  // windows begin with a charge
	single bool  // a word represents one window, as windows differ in length, or one does not fit a word's time
	bits   uint  // bits of the count in a word
	latest int64 // the latest time in a word; 0 if there is no word form
}

// Words of a state of fixedWindowRule, and of a ticket. A ticket has the state just after the
// charge, the cost, and the state before the charge.
const (
	wordWindow  = iota // the id of the latest window with a count
	wordCount          // the count of that window
	wordPromise        // the latest promised time in the future; or none
	fixedWindowWords

	ticketCharge        = 3
	ticketWindowBefore  = 4 // with a count of 0 if there was no state
	ticketCountBefore   = 5
	ticketPromiseBefore = 6
)

func (w *fixedWindowRule) Capacity() int64     { return w.limit }
func (w *fixedWindowRule) LargestCost() int64  { return w.limit }
func (w *fixedWindowRule) ReadsWallTime() bool { return w.windows.ReadsWallTime() }

func (w *fixedWindowRule) Valid(s []int64) bool {
	return len(s) == 0 || len(s) == fixedWindowWords && s[wordCount] >= 0
}

// at returns the window that counts at now, or at the latest promised time, and its count. A
// reading before the window counts in it too.
func (w *fixedWindowRule) at(s []int64, now int64) (id, count, wait int64) {
	if len(s) == 0 {
		return w.windows.Window(now), 0, 0
	}
	wait = pending(s[wordPromise], now)
	if t := max(now, s[wordPromise]); s[wordCount] == 0 || ended(w.windows.Ends(s[wordWindow], 1), t) {
		return max(w.windows.Window(t), s[wordWindow]), 0, wait
	}
	return s[wordWindow], s[wordCount], wait
}

// ended reports whether t is past an end. A window that ends with the clock does not end before it.
func ended(end, t int64) bool { return t >= end && end != math.MaxInt64 }

// Plan goes by volume: behind costs that do not fill their windows, it may name too early a time,
// but never too late a one.
func (w *fixedWindowRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	id, count, wait := w.at(s, now)
	if taken := uint64(count) + ahead; taken < ahead || taken > uint64(w.limit-cost) || count > w.limit-cost {
		end := w.windows.Ends(id, windowsFor(uint64(count), ahead, uint64(cost), uint64(w.limit)))
		if end == math.MaxInt64 {
			return Plan{Never, Never}
		}
		wait = Until(end, now)
	}
	if wait > w.horizon {
		return Plan{Never, Never}
	}
	return Plan{Wait: wait}
}

// windowsFor returns how many windows later a cost goes that does not fit the current window with
// its count, if ahead goes before it and fills its windows.
func windowsFor(count, ahead, cost, limit uint64) uint64 {
	free := limit - min(count, limit)
	if ahead <= free {
		return 1
	}
	n := (ahead-free)/limit + 1
	if (ahead-free)%limit > limit-cost {
		n++
	}
	return n
}

func (w *fixedWindowRule) Charge(s []int64, now, cost int64) []int64 {
	s, _ = w.Book(s, now, now, cost)
	return s
}

func (w *fixedWindowRule) Book(s []int64, now, due, cost int64) ([]int64, Ticket) {
	t := Ticket{ticketCharge: cost, ticketPromiseBefore: none}
	if len(s) == 0 {
		s = append(s, w.windows.Window(now), 0, none)
	}
	t[ticketWindowBefore], t[ticketCountBefore], t[ticketPromiseBefore] = s[wordWindow], s[wordCount], s[wordPromise]
	due = max(due, s[wordPromise])
	id, count, _ := w.at(s, due)
	s[wordWindow], s[wordCount] = id, plus(count, cost)
	if s[wordPromise] = none; due > now {
		s[wordPromise] = due
	}
	copy(t[:], s)
	return s, t
}

// NeedsMemory is for windows that begin with a charge: if that is given back, its window begins with
// the charge after it.
func (w *fixedWindowRule) NeedsMemory() bool { return w.hits }

// Note records with which charge the window begins.
func (w *fixedWindowRule) Note(m *Memory, s []int64, n Note) {
	if !w.hits {
		return
	}
	if m.begins == nil {
		m.begins = new(outstanding.Beginning)
		m.begins.Within(m.budget)
	}
	due := max(n.At, n.Due)
	if len(s) > 0 {
		due = max(due, s[wordPromise])
	}
	if id, count, _ := w.at(s, due); count == 0 {
		m.begins.Opens(n.ID, id)
	} else {
		m.begins.Charged(n.ID, due)
	}
}

// Refund lowers the count of the charge's window while it is open. If nothing was charged since,
// the state is as it was before.
func (w *fixedWindowRule) Refund(m *Memory, s []int64, now int64, t Ticket, amount int64) []int64 {
	moved := m != nil && m.begins.Has(t[wordWindow])
	switch {
	case len(s) == 0:
	case amount == t[ticketCharge] && [fixedWindowWords]int64(s) == [fixedWindowWords]int64(t[:]):
		s[wordWindow], s[wordCount], s[wordPromise] = t[ticketWindowBefore], t[ticketCountBefore], t[ticketPromiseBefore]
	case s[wordWindow] == t[wordWindow] || moved:
		s[wordCount] = max(0, s[wordCount]-amount)
	}
	if moved {
		m.begins.Ends(t.id(), amount < t[ticketCharge])
		w.begin(m, s, now)
	}
	return s
}

// GiveBack lowers the count of the current window, or of the one of promised work.
func (w *fixedWindowRule) GiveBack(s []int64, now, amount int64) []int64 {
	if len(s) == 0 {
		return s
	}
	if id, count, _ := w.at(s, now); id == s[wordWindow] {
		s[wordCount] = max(0, count-max(amount, 0))
	}
	return s
}

// begin moves an open window to the first charge that is left in it.
func (w *fixedWindowRule) begin(m *Memory, s []int64, now int64) {
	at, ok := m.begins.Begins()
	if !ok || len(s) == 0 || s[wordCount] == 0 || at <= s[wordWindow] || !m.begins.Has(s[wordWindow]) {
		return
	}
	if ended(w.windows.Ends(s[wordWindow], 1), max(now, s[wordPromise])) {
		return // what was decided since then counts from the end
	}
	s[wordWindow] = at
	m.begins.Moved(at)
}

// Drop ends a reservation of which nothing is given back.
func (w *fixedWindowRule) Drop(m *Memory, t Ticket) {
	if m.begins.Has(t[wordWindow]) {
		m.begins.Ends(t.id(), true)
	}
}

// ConvertMemory keeps what is known of the window if it stays.
func (w *fixedWindowRule) ConvertMemory(m *Memory, _ int64, to Rule, _ []int64) {
	if next, ok := to.(*fixedWindowRule); !ok || next.windows.Identity() != w.windows.Identity() {
		m.Reset()
	}
}

func (w *fixedWindowRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	id, count, wait := w.at(s, now)
	if count > 0 || ahead > 0 {
		reset = Until(w.windows.Ends(id, 1+ahead/uint64(w.limit)), now)
	}
	reset = max(reset, wait)
	left := w.limit - min(count, w.limit)
	if wait > 0 || uint64(left) <= ahead {
		return 0, reset
	}
	return left - int64(ahead), reset
}

// Convert keeps the count. If the windows change, it counts in the window of now, or of the latest
// promised time.
func (w *fixedWindowRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	next, ok := to.(*fixedWindowRule)
	switch {
	case !ok || next.ReadsWallTime() != w.ReadsWallTime():
		return convertAcross(w, s, now, to, then)
	case len(s) == 0 || next.windows.Identity() == w.windows.Identity():
		return s
	}
	_, count, wait := w.at(s, now)
	s[wordWindow], s[wordCount] = next.windows.Window(then+wait), count
	return s
}

func (w *fixedWindowRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	next, ok := to.(*fixedWindowRule)
	return t, ok && next.windows.Identity() == w.windows.Identity()
}

func (w *fixedWindowRule) Spent(s []int64, now int64) int64 {
	_, count, _ := w.at(s, now)
	return count
}

func (w *fixedWindowRule) Load(now, spent int64) []int64 {
	return w.Charge(nil, now, min(spent, w.limit))
}

// The word of a FixedWindow is when its window began, and its count. With a calendar, or if windows are too
// long, it represents a single window, which begins at the base and ends with its reach.

func (w *fixedWindowRule) Rebase(s []int64, now int64) (base, reach int64, kept bool) {
	if w.latest == 0 || w.length > w.horizon/4 {
		return 0, 0, false
	}
	if len(s) > 0 && s[wordPromise] != none {
		return 0, 0, false
	}
	id := w.windows.Window(now)
	if kept = len(s) == 0 || s[wordCount] == 0 || now >= w.windows.Ends(s[wordWindow], 1); !kept {
		id = s[wordWindow]
	} else if len(s) > 0 {
		id = max(id, s[wordWindow])
	}
	base, reach = w.windows.Begins(id), w.latest
	if w.single {
		reach = w.windows.Ends(id, 1) - base - 1
	}
	return base, reach, kept
}

func (w *fixedWindowRule) Pack(f *WordRange, s []int64) int64 {
	at := w.windows.Begins(s[wordWindow]) - f.Base
	if at < 0 || at > w.latest || w.single && at > 0 || s[wordCount] > w.limit || s[wordPromise] != none {
		return askRule
	}
	return at<<w.bits | s[wordCount]
}

func (w *fixedWindowRule) Unpack(f *WordRange, word int64, s []int64) []int64 {
	id := f.Base + word>>w.bits
	if w.single {
		id = w.windows.Window(f.Base)
	}
	return append(s[:0], id, word&(1<<w.bits-1), none)
}

func (w *fixedWindowRule) StepWord(f *WordRange, word, now, cost int64, charge bool) (next, remaining, reset, retry int64) {
	at, count, length := word>>w.bits, word&(1<<w.bits-1), w.length
	if w.single {
		length = f.Reach + 1
	}
	if count == 0 || now-at >= length {
		begins := now
		if !w.hits {
			begins -= now % length
		}
		if at, count = max(at, begins), 0; at > w.latest {
			return 0, 0, 0, askRule
		}
	}
	switch left := w.limit - count; {
	case cost > left:
		retry = at + length - now
	case charge:
		count += cost
	}
	if count > 0 {
		reset = at + length - now
	}
	return at<<w.bits | count, w.limit - count, reset, retry
}

// OneWindow implements WordRule.
func (w *fixedWindowRule) OneWindow() bool { return w.single }
func (w *fixedWindowRule) Kind() string    { return "fixed_window" }
func (w *fixedWindowRule) Words() int      { return fixedWindowWords }

var fixedWindowKind = Kind{
	Name:    "fixed_window",
	GoName:  "FixedWindow",
	Doc:     "Fixed window: a quota for each window of time. Around the boundary between two windows, twice the limit may come at once.",
	Returns: "all come back when the next window starts",
	Page:    "FixedWindow",
	Zero:    FixedWindow{},
	Script:  Script{Name: "fixed", Number: 3},
	Fields: []Field{
		{Name: "limit", Type: CountField, Required: true, Doc: "How many requests in each window; at least 1."},
		{Name: "window", Type: DurationField, Required: true, Unless: &Unless{"align", "^(day|week|month|year)"},
			Doc: "The length of a window, like 1m or 1d. Leave it out with a calendar."},
		{Name: "align", Type: AlignField, Default: "epoch; default time zone: UTC",
			Doc: "Where windows start: epoch (multiples of window since 1970), first (a key's first request), or a calendar with a time zone: day:Europe/Berlin, week, week-sunday, month, year."},
	},
	NoZone: "nginx has no window to import, and no other use of a shared window is known",
}

// Kind implements Params.
func (l FixedWindow) Kind() *Kind { return &fixedWindowKind }

// MostPerRequest implements Params.
func (l FixedWindow) MostPerRequest() (int64, string) { return l.Limit, "limit" }

// QuotaWindow implements Params.
func (l FixedWindow) QuotaWindow() time.Duration {
	if l.Window > 0 {
		return l.Window
	}
	return LongestOf(l.Align)
}

// MostWords implements Params.
func (l FixedWindow) MostWords() int64 { return 8 }

// Resets implements Params.
func (l FixedWindow) Resets() bool { return true }

// Share implements Shared.
func (l FixedWindow) Share(n int64) Params {
	l.Limit = part(l.Limit, n)
	return l
}

// UsedUp implements Shared: a key keeps the share of the rest of the window, rounded down. A window
// that begins with a charge is taken to have begun half a window ago.
func (l FixedWindow) UsedUp(fresh time.Duration) []Use {
	length := l.QuotaWindow()
	switch {
	case l.Align == AlignFirst:
		return []Use{{Before: l.Window / 2, Cost: l.Limit - l.Limit/2}}
	case length <= 0:
		return usedAll(0)
	}
	return usedAll(mulDiv(l.Limit, int64(min(fresh, length)), int64(length)))
}

// LeaseEnds implements Leased: with the window.
func (l FixedWindow) LeaseEnds(reset, unit time.Duration) (time.Duration, bool) {
	return reset - unit, true
}

// LongestLease implements Leased.
func (l FixedWindow) LongestLease() time.Duration {
	if l.Window > 0 {
		return l.Window
	}
	return math.MaxInt64
}

// LeasePause implements Leased.
func (l FixedWindow) LeasePause(time.Duration) time.Duration { return 0 }

// MoreWait implements Leased: the next window has room for any cost.
func (l FixedWindow) MoreWait(int64) (time.Duration, bool) { return 0, true }

// LeaseResets implements Leased.
func (l FixedWindow) LeaseResets() bool { return true }

// StoreNumbers implements Stored. In a calendar, its name follows them.
func (l FixedWindow) StoreNumbers(c Counting) ([]int64, error) {
	switch {
	case l.CalendarAlign() != "":
		return []int64{2, l.Limit}, nil
	case l.Align == AlignFirst:
		return []int64{1, l.Limit, c.units(l.Window)}, nil
	}
	return []int64{0, l.Limit, c.units(l.Window)}, nil
}

// CalendarAlign implements Calendared.
func (l FixedWindow) CalendarAlign() string {
	switch l.Align {
	case "", AlignEpoch, AlignFirst:
		return ""
	}
	return l.Align
}
