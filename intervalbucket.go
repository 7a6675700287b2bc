package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// IntervalBucket is a bucket that refills in whole steps: Refill tokens each Every, up to Burst. The first step comes Every after the
// charge that leaves a full bucket.
//
// In any interval of length D it admits at most Burst + Refill*ceil(D/Every). A TokenBucket of the same rate spreads the same tokens
// evenly and is the better choice where nothing else asks for steps: clients that are refused together come back together here. State:
// four words.
type IntervalBucket struct {
	Burst  int64         // how many it holds; at least 1
	Refill int64         // how many come at each step; at least 1
	Every  time.Duration // how long from step to step; at least 1ns, and full again within 100 years
}

// Validate reports what is wrong with the numbers.
func (l IntervalBucket) Validate() error {
	const name = "IntervalBucket"
	switch {
	case l.Burst < 1:
		return field(name, "Burst", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Burst))
	case l.Refill < 1:
		return field(name, "Refill", fmt.Errorf("%d never fills: it must be at least 1", l.Refill))
	case l.Every < 1 || l.Every > maxSpan:
		return field(name, "Every", fmt.Errorf("%v is not within 1ns and 100 years", l.Every))
	case u128.From(uint64(maxSpan)).Less(u128.Mul(stepsFor(u128.From(uint64(l.Burst)), l.Refill), uint64(l.Every))):
		return field(name, "Burst", fmt.Errorf("%d tokens take more than 100 years to come at %d each %v", l.Burst, l.Refill, l.Every))
	}
	return nil
}

func (l IntervalBucket) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	every, err := wholeUnits(l.Every, unit)
	if err != nil {
		return nil, field("IntervalBucket", "Every", err)
	}
	b := &interval{size: l.Burst, refill: l.Refill, every: every, tick: unit, horizon: int64(maxSpan / unit)}
	b.bits, b.latest = layout(b.size, 1, 1, b.horizon)
	b.slow = u128.From(uint64(b.horizon / 4)).Less(u128.Mul(stepsFor(u128.From(uint64(b.size)), b.refill), uint64(every)))
	return b, nil
}

func (l IntervalBucket) normal() Limit { return l }

// wholeUnits is a duration in clock units, of which it must be a whole number.
func wholeUnits(d, unit time.Duration) (int64, error) {
	if d%unit != 0 {
		return 0, fmt.Errorf("%v is not a whole number of clock units of %v", d, unit)
	}
	return int64(d / unit), nil
}

// stepsFor is how many steps bring that many tokens.
func stepsFor(tokens u128.Uint, refill int64) uint64 { return tokens.DivCeil(uint64(refill)) }

// interval is the rule of IntervalBucket. What was promised for a later step is taken off the tokens of that step, and the state is then
// one of the future: nothing goes before what was promised. (Tokens below zero instead, due when they are zero again, would let more
// than Burst go at one step: what is left of the tokens before it, and all that it brings.)
type interval struct {
	size, refill int64
	every        int64 // clock units
	tick         time.Duration
	horizon      int64

	bits   uint  // of the tokens in a word
	latest int64 // time in a word; 0 where there is none
	slow   bool  // too slow for one
}

// Words of a state of interval, and of a ticket: those of the state just after the charge, those of the state before, and the cost.
const (
	wordTokens   = iota // may be below 0: a debt
	wordAnchor          // the time of the last step that is counted
	wordGrid            // the time of the charge that began these steps
	wordPromised        // the latest time promised that lies ahead; none
	intervalWords

	ticketInterval = intervalWords
	ticketCost     = 2 * intervalWords
)

// none is a time that is not there.
const none = math.MinInt64

func (b *interval) capacity() int64     { return b.size }
func (b *interval) largest() int64      { return b.size }
func (b *interval) books() bool         { return true }
func (b *interval) wall() bool          { return false }
func (b *interval) unit() time.Duration { return b.tick }

func (b *interval) valid(s []int64) bool {
	return len(s) == 0 || len(s) == intervalWords && s[wordTokens] <= b.size && s[wordGrid] <= s[wordAnchor]
}

func (b *interval) contact(s []int64, _ int64) []int64 { return s }

// pending is how long after now the latest promised time is, or as long as can be said. none is before all times.
func pending(promised, now int64) int64 {
	if promised == none {
		return 0
	}
	return until(promised, now)
}

// at is the bucket at now, or at the latest time that was promised: its tokens, and the step that they are counted from. A bucket that
// is full counts from now.
func (b *interval) at(s []int64, now int64) (tokens, anchor, wait int64) {
	if len(s) == 0 {
		return b.size, now, 0
	}
	wait = pending(s[wordPromised], now)
	tokens, anchor = b.stepped(s[wordTokens], s[wordAnchor], max(now, s[wordPromised]))
	return tokens, anchor, wait
}

// stepped lets the steps up to t come.
func (b *interval) stepped(tokens, anchor, t int64) (int64, int64) {
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

// due is how long after now as many steps have come as bring the lacking tokens; never beyond the horizon.
func (b *interval) due(lacks u128.Uint, anchor, now int64) int64 {
	span := u128.Mul(stepsFor(lacks, b.refill), uint64(b.every))
	if anchor >= now {
		span = span.Add(u128.From(uint64(anchor) - uint64(now)))
	} else {
		span = span.Sub(u128.From(uint64(now) - uint64(anchor)))
	}
	if span.Hi != 0 || span.Lo > uint64(b.horizon) || span.Lo > clockLeft(now) {
		return never
	}
	return int64(span.Lo)
}

// lacking is how far tokens are from what is asked.
func lacking(tokens int64, ahead uint64, cost int64) u128.Uint {
	asked := u128.From(ahead).Add(u128.From(uint64(cost)))
	if tokens < 0 {
		return asked.Add(u128.From(-uint64(tokens)))
	}
	return asked.Sub(u128.From(uint64(tokens)))
}

func (b *interval) plan(s []int64, now int64, ahead uint64, cost int64) plan {
	tokens, anchor, wait := b.at(s, now)
	if lacks := lacking(tokens, ahead, cost); !lacks.IsZero() {
		wait = b.due(lacks, anchor, now)
	}
	if wait > b.horizon {
		wait = never
	}
	return plan{wait: wait}
}

func (b *interval) charge(s []int64, now, cost int64) []int64 {
	s, _ = b.book(s, now, now, cost)
	return s
}

func (b *interval) book(s []int64, now, due, cost int64) ([]int64, ticket) {
	if len(s) == 0 {
		s = append(s, b.size, now, now, none)
	}
	t := ticket{ticketCost: cost}
	copy(t[ticketInterval:ticketCost], s)
	due = max(due, s[wordPromised])
	tokens, anchor := b.stepped(s[wordTokens], s[wordAnchor], due)
	if tokens == b.size {
		s[wordGrid] = anchor
	}
	if s[wordTokens], s[wordAnchor] = tokens-cost, anchor; s[wordTokens] > tokens {
		s[wordTokens] = math.MinInt64
	}
	if s[wordPromised] = none; due > now {
		s[wordPromised] = due
	}
	copy(t[:], s)
	return s, t
}

func (b *interval) serve(s []int64, _, now, cost int64) []int64 { return b.charge(s, now, cost) }
func (b *interval) asOf(_, now int64) int64                     { return now }

// refund gives back what the steps since have not made up for: at each, the tokens may have been lost for want of room. Where nothing was
// charged since, the state is as it was before. Nothing is left to give of a charge from before the bucket was last full.
func (b *interval) refund(s []int64, now int64, t ticket, amount int64) []int64 {
	switch {
	case len(s) == 0:
		return s
	case amount == t[ticketCost] && [intervalWords]int64(s) == [intervalWords]int64(t[:]):
		copy(s, t[ticketInterval:ticketCost])
		return s
	case s[wordGrid] != t[wordGrid]:
		return s
	}
	tokens, anchor, _ := b.at(s, now)
	if tokens == b.size {
		return s
	}
	give := u128.From(uint64(amount))
	if anchor > t[wordAnchor] {
		steps := (uint64(anchor) - uint64(t[wordAnchor])) / uint64(b.every)
		give = give.Sub(u128.Mul(steps, uint64(b.refill)))
	}
	give = give.Min(u128.From(uint64(b.size) - uint64(tokens)))
	s[wordTokens], s[wordAnchor] = int64(uint64(tokens)+give.Lo), anchor
	return s
}

func (b *interval) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	tokens, anchor, wait := b.at(s, now)
	if lacks := lacking(tokens, ahead, b.size); !lacks.IsZero() {
		if reset = b.due(lacks, anchor, now); reset == never {
			reset = math.MaxInt64
		}
	}
	reset = max(reset, wait)
	if wait > 0 || tokens <= 0 || uint64(tokens) <= ahead {
		return 0, reset
	}
	return tokens - int64(ahead), reset
}

// convert keeps the tokens used, and the steps where they were; steps of the new length that would have been before the change do not
// count.
func (b *interval) convert(s []int64, now int64, to rule, then int64) []int64 {
	next, ok := to.(*interval)
	switch {
	case !ok:
		return transfer(b, s, now, to, then)
	case len(s) == 0:
		return s
	}
	tokens, anchor, _ := b.at(s, now)
	used := uint64(b.size) - uint64(tokens) // which may be more than an int64 holds
	tokens = minus(minus(next.size, int64(used/2)), int64(used-used/2))
	if t := max(now, s[wordPromised]); anchor < t {
		anchor = t - int64((uint64(t)-uint64(anchor))%uint64(next.every))
	}
	s[wordTokens], s[wordAnchor], s[wordGrid] = tokens, anchor, min(s[wordGrid], anchor)
	return s
}

// reticket brings a ticket along: it gives back by the same steps, as far as they are the same.
func (b *interval) reticket(t ticket, _ int64, to rule) (ticket, bool) {
	next, ok := to.(*interval)
	if !ok || next.every != b.every || next.refill != b.refill {
		return ticket{}, false
	}
	t[ticketCost] = none // a state from before the change is none of the new ones
	return t, true
}

func (b *interval) spent(s []int64, now int64) int64 {
	tokens, _, _ := b.at(s, now)
	return minus(b.size, tokens)
}

func (b *interval) load(now, spent int64) []int64 { return b.charge(nil, now, spent) }

// minus is a-b, or the end of the numbers that it would pass.
func minus(a, b int64) int64 {
	d := a - b
	switch {
	case b > 0 && d > a:
		return math.MinInt64
	case b < 0 && d < a:
		return math.MaxInt64
	}
	return d
}
