package rules

import (
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// IntervalBucket is the parameters of the limit of that name.
type IntervalBucket struct {
	Burst  int64
	Refill int64
	Every  time.Duration
}

// FillsInTime reports whether Burst tokens come within the longest span that a limit may count
// over.
func (l IntervalBucket) FillsInTime() bool {
	return !u128.From(uint64(MaxSpan)).Less(u128.Mul(stepsFor(u128.From(uint64(l.Burst)), l.Refill), uint64(l.Every)))
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l IntervalBucket) Compile(unit time.Duration) (Rule, error) {
	every, err := wholeUnits("Every", l.Every, unit)
	if err != nil {
		return nil, err
	}
	b := &intervalBucketRule{ruleBasics: basicsFor(unit), size: l.Burst, refill: l.Refill, every: every}
	b.bits, b.latest = divideWord(b.size, 1, 1, b.horizon)
	b.slow = u128.From(uint64(b.horizon / 4)).Less(u128.Mul(stepsFor(u128.From(uint64(b.size)), b.refill), uint64(every)))
	return b, nil
}

// stepsFor is how many steps bring n tokens.
func stepsFor(tokens u128.Uint, refill int64) uint64 { return tokens.DivCeil(uint64(refill)) }

// intervalBucketRule is the rule of IntervalBucket. Work that is promised for a later step takes
// the tokens of that step, and the state is then about that future step: nothing goes before
// promised work. The alternative, a negative balance that is due when it is 0 again, would admit
// more than Burst at one step: the tokens left before the step, and all tokens of the step.
type intervalBucketRule struct {
	ruleBasics
	size, refill int64
	every        int64 // clock units

	bits   uint  // bits of the tokens in a word
	latest int64 // the latest time in a word; 0 if there is no word form
	slow   bool  // the steps are too slow for a word
}

// Words of a state of intervalBucketRule. A ticket has the cost of the reservation, the states just
// after and before the charge, and what had been given back of other reservations by then.
const (
	wordTokens   = iota // may be below 0: a debt
	wordAnchor          // the time of the last counted step
	wordPromised        // the latest promised time in the future; or none
	intervalWords

	ticketIntervalAfter  = ticketCost + 1
	ticketIntervalBefore = ticketIntervalAfter + intervalWords
	ticketIntervalEnd    = ticketIntervalBefore + intervalWords
	ticketReturned       = ticketIntervalEnd
)

func (b *intervalBucketRule) Kind() string       { return "interval_bucket" }
func (b *intervalBucketRule) Words() int         { return intervalWords }
func (b *intervalBucketRule) Capacity() int64    { return b.size }
func (b *intervalBucketRule) LargestCost() int64 { return b.size }

func (b *intervalBucketRule) Valid(s []int64) bool {
	return len(s) == 0 || len(s) == intervalWords && s[wordTokens] <= b.size
}

// at returns the bucket at now, or at the latest promised time: its tokens, and the step from which
// they are counted. A full bucket counts from now.
func (b *intervalBucketRule) at(s []int64, now int64) (tokens, anchor, wait int64) {
	if len(s) == 0 {
		return b.size, now, 0
	}
	wait = pending(s[wordPromised], now)
	tokens, anchor = b.stepped(s[wordTokens], s[wordAnchor], max(now, s[wordPromised]))
	return tokens, anchor, wait
}

// stepped adds the tokens of the steps up to t.
func (b *intervalBucketRule) stepped(tokens, anchor, t int64) (int64, int64) {
	if tokens >= b.size {
		return b.size, max(anchor, t)
	}
	if t <= anchor {
		return tokens, anchor
	}
	steps := (uint64(t) - uint64(anchor)) / uint64(b.every)
	lacks := u128.From(uint64(b.size) - uint64(tokens)) // both fit, as tokens are at most size
	if steps >= stepsFor(lacks, b.refill) {
		return b.size, t
	}
	return tokens + int64(steps)*b.refill, anchor + int64(steps)*b.every
}

// due is how long after now the missing tokens have come; Never if that is beyond the end of the
// clock.
func (b *intervalBucketRule) due(lacks u128.Uint, anchor, now int64) int64 {
	span := u128.Mul(stepsFor(lacks, b.refill), uint64(b.every))
	if anchor >= now {
		span = span.Add(u128.From(uint64(anchor) - uint64(now)))
	} else {
		span = span.Sub(u128.From(uint64(now) - uint64(anchor)))
	}
	if span.Hi != 0 || span.Lo > ClockLeft(now) || span.Lo > math.MaxInt64 {
		return Never
	}
	return int64(span.Lo)
}

// lacking is how many tokens a cost lacks.
func lacking(tokens int64, ahead uint64, cost int64) u128.Uint {
	asked := u128.From(ahead).Add(u128.From(uint64(cost)))
	if tokens < 0 {
		return asked.Add(u128.From(-uint64(tokens)))
	}
	return asked.Sub(u128.From(uint64(tokens)))
}

func (b *intervalBucketRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	tokens, anchor, wait := b.at(s, now)
	if lacks := lacking(tokens, ahead, cost); !lacks.IsZero() {
		wait = b.due(lacks, anchor, now)
	}
	if wait > b.horizon {
		wait = Never
	}
	return Plan{Wait: wait}
}

func (b *intervalBucketRule) Charge(s []int64, now, cost int64) []int64 {
	s, _ = b.Book(s, now, now, cost)
	return s
}

func (b *intervalBucketRule) Book(s []int64, now, due, cost int64) ([]int64, Ticket) {
	if len(s) == 0 {
		s = append(s, b.size, now, none)
	}
	t := Ticket{ticketCost: cost}
	copy(t[ticketIntervalBefore:ticketIntervalEnd], s)
	due = max(due, s[wordPromised])
	tokens, anchor := b.stepped(s[wordTokens], s[wordAnchor], due)
	if s[wordTokens], s[wordAnchor] = tokens-cost, anchor; s[wordTokens] > tokens {
		s[wordTokens] = math.MinInt64
	}
	if s[wordPromised] = none; due > now {
		s[wordPromised] = due
	}
	copy(t[ticketIntervalAfter:ticketIntervalBefore], s)
	return s, t
}

// Note tells the ledger how many tokens are lacking when the work of a charge goes, or when the
// last promised work goes, if that is later.
func (b *intervalBucketRule) Note(m *Memory, s []int64, n Note) {
	tokens, _, _ := b.at(s, max(n.At, n.Due))
	if m.ledger.Charged(u128.From(uint64(b.size) - uint64(tokens))); n.ID != 0 {
		m.ledger.Add(n.ID)
	}
}

func (b *intervalBucketRule) NeedsMemory() bool { return true }

func (b *intervalBucketRule) Drop(m *Memory, t Ticket) { m.ledger.Drop(t.id()) }

// Refund puts tokens back. The steps stay where they are, even if the cancelled charge began them.
// If nothing was charged since, or all of it was given back, the state is as it was before, with its
// steps and promises. That needs no memory: a later charge that found the bucket full ends the
// reservation there, but may have been given back.
func (b *intervalBucketRule) Refund(m *Memory, s []int64, now int64, t Ticket, amount int64) []int64 {
	if len(s) == 0 {
		return s
	}
	if amount == t[ticketCost] && [intervalWords]int64(s) == [intervalWords]int64(t[ticketIntervalAfter:]) {
		if m != nil {
			m.ledger.Restored(t.id(), uint64(amount))
		}
		copy(s, t[ticketIntervalBefore:ticketIntervalEnd])
		return s
	}
	if m == nil {
		return s
	}
	tokens, anchor, wait := b.at(s, now)
	lacking := u128.From(uint64(b.size) - uint64(tokens))
	var least u128.Uint
	if wait == 0 && m.ledger.IsCoarse() {
		least = b.least(m, t, anchor).Min(u128.From(uint64(amount)))
	}
	if given := m.ledger.GiveBack(t.id(), u128.From(uint64(amount)), least, lacking); !given.IsZero() {
		s[wordTokens], s[wordAnchor] = int64(uint64(tokens)+given.Lo), anchor
	}
	return s
}

// least is the rule of a state alone, as of outstanding.Bucket: of what was lacking just after the
// charge, what the steps until the last one have not brought, and what was not given back since.
func (b *intervalBucketRule) least(m *Memory, t Ticket, anchor int64) u128.Uint {
	tokens, since := t[ticketIntervalAfter+wordTokens], t[ticketIntervalAfter+wordAnchor]
	if t[ticketCost] == none || anchor < since {
		return u128.Uint{}
	}
	steps := (uint64(anchor) - uint64(since)) / uint64(b.every)
	left := u128.From(uint64(b.size) - uint64(tokens)).Sub(u128.Mul(steps, uint64(b.refill)))
	return left.Sub(u128.From(m.ledger.Returned() - uint64(t[ticketReturned])))
}

func (b *intervalBucketRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	tokens, anchor, wait := b.at(s, now)
	if lacks := lacking(tokens, ahead, b.size); !lacks.IsZero() {
		if reset = b.due(lacks, anchor, now); reset == Never {
			reset = math.MaxInt64
		}
	}
	reset = max(reset, wait)
	if wait > 0 || tokens <= 0 || uint64(tokens) <= ahead {
		return 0, reset
	}
	return tokens - int64(ahead), reset
}

// Convert keeps the tokens used, and the last step. Steps of the new length that would have come
// before the change do not count.
func (b *intervalBucketRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	next, ok := to.(*intervalBucketRule)
	switch {
	case !ok:
		return convertAcross(b, s, now, to, then)
	case len(s) == 0:
		return s
	}
	tokens, anchor, _ := b.at(s, now)
	used := uint64(b.size) - uint64(tokens) // may be more than an int64 holds
	tokens = Minus(Minus(next.size, int64(used/2)), int64(used-used/2))
	if t := max(now, s[wordPromised]); anchor < t {
		anchor = t - int64((uint64(t)-uint64(anchor))%uint64(next.every))
	}
	s[wordTokens], s[wordAnchor] = tokens, anchor
	return s
}

func (b *intervalBucketRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	_, ok := to.(*intervalBucketRule)
	t[ticketCost] = none // a state from before the change is not valid afterwards
	return t, ok
}

// ConvertMemory keeps the ledger: the lacking tokens stay the same.
func (b *intervalBucketRule) ConvertMemory(m *Memory, _ int64, to Rule, _ []int64) {
	if _, ok := to.(*intervalBucketRule); !ok {
		m.Reset()
	}
}

func (b *intervalBucketRule) Spent(s []int64, now int64) int64 {
	tokens, _, _ := b.at(s, now)
	return Minus(b.size, tokens)
}

func (b *intervalBucketRule) Load(now, spent int64) []int64 { return b.Charge(nil, now, spent) }

// The word of an IntervalBucket is the time of the last counted step, and the number of used
// tokens.

func (b *intervalBucketRule) Rebase(s []int64, now int64) (base, reach int64, kept bool) {
	if b.latest == 0 || b.slow || len(s) > 0 && s[wordPromised] != none {
		return 0, 0, false
	}
	tokens, anchor, _ := b.at(s, now)
	if kept = tokens == b.size; kept {
		return anchor, b.latest, true
	}
	return s[wordAnchor], b.latest, false
}

func (b *intervalBucketRule) Pack(f *WordRange, s []int64) int64 {
	at, taken := s[wordAnchor]-f.Base, Minus(b.size, s[wordTokens])
	if at < 0 || at > b.latest || taken > b.size || s[wordPromised] != none {
		return askRule
	}
	return at<<b.bits | taken
}

func (b *intervalBucketRule) Unpack(f *WordRange, word int64, s []int64) []int64 {
	return append(s[:0], b.size-word&(1<<b.bits-1), f.Base+word>>b.bits, none)
}

func (b *intervalBucketRule) StepWord(_ *WordRange, word, now, cost int64, charge bool) (next, remaining, reset, retry int64) {
	at, taken := word>>b.bits, word&(1<<b.bits-1)
	if past := now - at; taken > 0 && past >= b.every {
		if steps := past / b.every; steps >= b.steps(taken) {
			taken = 0
		} else {
			taken -= steps * b.refill
			at += steps * b.every
		}
	}
	if taken == 0 {
		at = max(at, now)
	}
	switch lacks := cost - (b.size - taken); {
	case lacks > 0:
		retry = at + b.steps(lacks)*b.every - now
	case charge:
		if taken += cost; at > b.latest {
			return 0, 0, 0, askRule
		}
	}
	if taken > 0 {
		reset = at + b.steps(taken)*b.every - now
	}
	return at<<b.bits | taken, b.size - taken, reset, retry
}

// steps is how many steps bring n tokens; n is above 0.
func (b *intervalBucketRule) steps(tokens int64) int64 {
	if tokens <= b.refill {
		return 1
	}
	return (tokens-1)/b.refill + 1
}

// OneWindow implements WordRule.
func (b *intervalBucketRule) OneWindow() bool { return false }

var intervalBucketKind = Kind{
	Name:    "interval_bucket",
	GoName:  "IntervalBucket",
	Doc:     "A bucket that refills in whole steps, for contracts that say so. token_bucket spreads the same tokens evenly.",
	Returns: "tokens come back in whole steps: refill of them, every so long",
	Page:    "IntervalBucket",
	Zero:    IntervalBucket{},
	Script:  Script{Name: "interval", Number: 2},
	Fields: []Field{
		{Name: "burst", Type: CountField, Required: true, Doc: "The bucket's capacity; at least 1."},
		{Name: "refill", Type: CountField, Required: true, Doc: "How many tokens each step adds; at least 1."},
		{Name: "every", Type: DurationField, Required: true, Doc: "The time between steps, like 1m. Steps are counted from the charge that leaves a full bucket."},
	},
	NoLease:   "steps begin with the charge that leaves a full bucket, and a lease would move that",
	NoRegions: "steps begin with the charge that leaves a full bucket, and parts of a step are not whole tokens",
	Lists:     true,
	NoZone:    "steps begin with the charge that leaves a full bucket, and limits of different bursts are full at different times",
}

// Kind implements Params.
func (l IntervalBucket) Kind() *Kind { return &intervalBucketKind }

// MostPerRequest implements Params.
func (l IntervalBucket) MostPerRequest() (int64, string) { return l.Burst, "burst" }

// QuotaWindow implements Params.
func (l IntervalBucket) QuotaWindow() time.Duration { return filling(l) }

// MostWords implements Params.
func (l IntervalBucket) MostWords() int64 { return 8 }

// Resets implements Params.
func (l IntervalBucket) Resets() bool { return true }

// Share implements Shared: Refill/n at each step, or where that is below 1, 1 at each n/Refill-th.
func (l IntervalBucket) Share(n int64) Params {
	if l.Burst < 1 || l.Refill < 1 || l.Every < 1 {
		return l
	}
	l.Burst = part(l.Burst, n)
	if l.Refill >= n {
		l.Refill /= n
	} else {
		every := u128.Mul(uint64(l.Every), uint64(n)).DivCeil(uint64(l.Refill))
		l.Refill, l.Every = 1, time.Duration(min(every, uint64(MaxSpan)))
	}
	// It has to be full within MaxSpan, also where it fills more slowly than the limit for what was
	// rounded down.
	if steps := max(1, int64(MaxSpan/l.Every)); l.Burst/l.Refill >= steps {
		l.Burst = min(l.Burst, steps*l.Refill)
	}
	return l
}

// UsedUp implements Shared.
func (l IntervalBucket) UsedUp(time.Duration) []Use { return usedAll(0) }

// StoreNumbers implements Stored.
func (l IntervalBucket) StoreNumbers(c Counting) ([]int64, error) {
	return []int64{l.Burst, l.Refill, c.units(l.Every)}, nil
}
