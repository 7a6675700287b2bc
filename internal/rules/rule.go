// Package rules holds the algorithms: what each limit decides, as pure functions of the form
//
//	parameters + state (a few integers) + now + cost  ->  new state + verdict
//
// Each algorithm is in a file named after it. Nothing in this package reads a clock, takes a lock
// or does I/O, and a test holds it to that. Package weir turns its limits into the parameters here
// when a limit is compiled, keeps the states, and tells the time.
//
// Times are in clock units: one nanosecond in a process, usually one microsecond in a store.
package rules

import "time"

const day = 24 * time.Hour

// MaxSpan is the longest duration that a limit may count over: 100 years. It keeps every sum in the
// arithmetic far from overflow.
const MaxSpan = 36525 * day

// Lateness is how long after its turn a waiter is still charged as if its turn had been noticed on
// time. It lets a queue keep its pace although timers fire a millisecond or so late. Beyond it,
// unused capacity is lost, as it is with a full bucket: however long a process was stopped, it
// releases at most a burst and this much at once when it resumes. See docs/guarantees.md.
const Lateness = 10 * time.Millisecond

const (
	// Never is a wait that cannot be named.
	Never int64 = -1
	// Unnamed is a turn beyond the horizon.
	Unnamed = 1<<63 - 1
	// none is a time that is not there.
	none = -1 << 63
)

// A Rule is a limit compiled for a clock unit. Step, Limiter, the keyed table and replay all decide
// through this interface, so a new algorithm is a new Rule.
//
// A state is a slice of words that only its Rule reads; an empty one is untouched. A method that
// returns a state may have changed the one it was given.
type Rule interface {
	// Kind is the name of the algorithm in policy files, such as "token_bucket".
	Kind() string
	// Capacity is what the limit holds: Decision.Limit.
	Capacity() int64
	// LargestCost is the most that one charge may take: the capacity, except for algorithms that
	// allow debt.
	LargestCost() int64
	// CanBook reports whether work can be charged ahead of its time.
	CanBook() bool
	// ReadsWallTime reports whether readings are wall time since the Unix epoch. All other rules
	// accept any clock that only goes forward.
	ReadsWallTime() bool
	// Unit is the length of a clock unit.
	Unit() time.Duration
	// Words is how many words each touched state has; 0 where that differs from state to state.
	Words() int
	// Valid reports whether a state can be one of this rule's.
	Valid(state []int64) bool
	// StoresPermits reports whether permits accumulate from the moment a limiter is made, and not
	// from its first charge.
	StoresPermits() bool
	// MovesPromises reports whether a change of the limit recomputes the turns that waiters were
	// promised; Convert then carries over the state from before each of their charges. Otherwise
	// they keep the time they were promised.
	MovesPromises() bool

	// FirstCall returns the state of an unused limit after its first call, whether the call was
	// admitted or not. It stays empty for a limit that starts full.
	FirstCall(state []int64, now int64) []int64
	// Plan says when a cost could go, and when there is room for it in a queue, behind ahead units
	// that are still to be charged. cost is within 1 and LargestCost.
	Plan(state []int64, now int64, ahead uint64, cost int64) Plan
	// Charge takes a cost at now, whether or not Plan would admit it.
	Charge(state []int64, now, cost int64) []int64
	// Book charges now what may go at due, as Plan said. The Ticket identifies the charge to
	// Refund; where the rule needs a Memory for that, Note has been told of the charge, and of its
	// ID.
	Book(state []int64, now, due, cost int64) ([]int64, Ticket)
	// TurnTime is the time as of which a turn is charged that came at due and was noticed at now.
	TurnTime(due, now int64) int64
	// Refund gives back amount of the charge that a ticket stands for: the state is then as if that
	// had never been charged, as far as no work that was promised its time would have to move up.
	Refund(m *Memory, state []int64, now int64, t Ticket, amount int64) []int64
	// NeedsMemory reports whether Refund needs a Memory. Rules whose tickets say by themselves what
	// can be given back need none.
	NeedsMemory() bool
	// Note tells of a charge before it is made, as long as there is a Memory: of all charges, not
	// only of reservations.
	Note(m *Memory, state []int64, n Note)
	// Drop ends a reservation of which nothing is to be given back.
	Drop(m *Memory, t Ticket)
	// ConvertMemory carries a Memory over to another rule when the limit changes, after Convert has
	// made next of the state.
	ConvertMemory(m *Memory, now int64, to Rule, next []int64)
	// Look returns the largest cost that a Take would be given, and the clock units until the state
	// equals an untouched one.
	Look(state []int64, now int64, ahead uint64) (remaining, reset int64)
	// Level is what an NginxBucket holds, in thousandths of a request, with so many requests more;
	// 0 for all other rules.
	Level(state []int64, now, more int64) int64

	// Convert carries what has been used over to another rule when the limit changes. What cannot
	// be represented is rounded up, so that no change mints tokens. A rule of another kind is
	// loaded with what this one has spent. then is the same moment as now on the other rule's
	// clock: they differ where only one of them reads wall time.
	Convert(state []int64, now int64, to Rule, then int64) []int64
	// ConvertTicket does the same for a ticket, and rounds down, for the same reason. It reports
	// false where nothing can be given back across the change, as between two kinds.
	ConvertTicket(t Ticket, to Rule) (Ticket, bool)
	// Spent is what has been used, debt included, rounded up.
	Spent(state []int64, now int64) int64
	// Load is an untouched state charged with what another rule's state had spent: into debt where
	// the rule allows debt, else up to full.
	Load(now, spent int64) []int64
}

// A DirectRule decides in one pass over its state what Plan, Charge and Look say one after another.
// It is for rules with long states.
type DirectRule interface {
	Rule
	// DecideDirect is Take, or Peek where charge is false, with nobody queued before the caller.
	// cost is within 1 and LargestCost. ok is false, and nothing has happened, when the caller must
	// use the general path. Such a rule reads no wall time and starts full.
	DecideDirect(state []int64, now, cost int64, charge bool) (next []int64, v DirectVerdict, ok bool)
}

// A CountingRule has a state that is no more than a count, so that some of it can be given back without
// knowing which charges it is made of.
type CountingRule interface {
	Rule
	// GiveBack lowers what has been used by amount, at most to nothing.
	GiveBack(state []int64, now, amount int64) []int64
}

// A DirectVerdict is a Verdict without what no DirectRule says. It is small, so that it is returned
// in registers.
type DirectVerdict struct{ Remaining, Reset, Retry int64 }

// ruleBasics is what most rules have in common.
type ruleBasics struct {
	unit    time.Duration
	horizon int64 // MaxSpan in clock units
}

func basicsFor(unit time.Duration) ruleBasics                             { return ruleBasics{unit, int64(MaxSpan / unit)} }
func (b *ruleBasics) Unit() time.Duration                                 { return b.unit }
func (b *ruleBasics) CanBook() bool                                       { return true }
func (b *ruleBasics) ReadsWallTime() bool                                 { return false }
func (b *ruleBasics) StoresPermits() bool                                 { return false }
func (b *ruleBasics) MovesPromises() bool                                 { return false }
func (b *ruleBasics) FirstCall(state []int64, _ int64) []int64            { return state }
func (b *ruleBasics) TurnTime(_, now int64) int64                         { return now }
func (b *ruleBasics) Level([]int64, int64, int64) int64                   { return 0 }
func (b *ruleBasics) NeedsMemory() bool                                   { return false }
func (b *ruleBasics) Note(*Memory, []int64, Note)                         {}
func (b *ruleBasics) Drop(*Memory, Ticket)                                {}
func (b *ruleBasics) ConvertMemory(m *Memory, _ int64, _ Rule, _ []int64) { m.Reset() }

// lateTurn is the TurnTime of rules that keep a queue's pace although its timer fires late.
func (b *ruleBasics) lateTurn(due, now int64) int64 {
	late := int64(Lateness / b.unit)
	return max(due, max(now, none+late)-late)
}

// A Plan says how many clock units to wait: until the work may go, and until there is room for it
// in the queue. Either may be Never.
type Plan struct{ Wait, Room int64 }

// Retry is the wait until the same Take would be admitted.
func (p Plan) Retry() int64 {
	if p.Wait == Never || p.Room == Never {
		return Never
	}
	return max(p.Wait, p.Room)
}

// Accepts reports whether the work may be charged now and go when its time comes, at most limit
// units from now; limit < 0 is however long.
func (p Plan) Accepts(limit int64) bool {
	return p.Wait != Never && p.Room == 0 && (limit < 0 || p.Wait <= limit)
}

// RetryWithin is the wait until Accepts would be true.
func (p Plan) RetryWithin(limit int64) int64 {
	switch {
	case p.Wait == Never || p.Room == Never:
		return Never
	case limit < 0:
		return p.Room
	}
	return max(p.Room, p.Wait-limit)
}

// A Ticket identifies a charge made ahead, so that it can be given back. Its words belong to the
// rule.
type Ticket [9]int64

// convertAcross carries a state over to a rule of another kind: what has been used is charged once
// to an untouched state.
func convertAcross(from Rule, state []int64, now int64, to Rule, then int64) []int64 {
	if len(state) == 0 {
		return state[:0]
	}
	spent := from.Spent(state, now)
	if spent == 0 {
		return to.FirstCall(state[:0], then) // full, but not as fresh as one never seen
	}
	return append(state[:0], to.Load(then, spent)...)
}
