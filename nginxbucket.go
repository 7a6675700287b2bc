package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/u128"
)

// NginxBucket decides as nginx's limit_req does, number by number: it counts in thousandths of a request and in milliseconds, and cuts off
// what is less. It is for those who come from nginx and must not notice; for everyone else LeakyBucket, with the same numbers, is the same
// limit in exact arithmetic. Of 10/m nginx makes 0.166 a second, and of two requests in one millisecond the second finds nothing drained.
//
// Take admits what nginx admits: Queue + 1 at once from idle (burst=Queue). How long nginx would hold a request back before it passes it on,
// Delay says; who asks has to see to it. DelayAfter is nginx's delay=, and nodelay is DelayAfter equal to Queue. As in nginx nothing is given back
// when a request that is held back is given up; Cancel gives back a reservation only where nothing was charged since. It cannot book ahead:
// Reserve succeeds only where nothing has to be delayed; Wait queues.
//
// In any interval of length D it admits at most Queue + 1 + r*(D + 1 ms), where r is the rate in whole thousandths a second. State: two words.
type NginxBucket struct {
	Rate       Rate  // in whole requests a second or a minute, as nginx has it
	Queue      int64 // nginx's burst; 0 or more
	DelayAfter int64 // how many of them are not held back; 0 to Queue
}

// thousand is how many parts nginx divides a request into.
const thousand = 1000

// Validate reports what is wrong with the numbers.
func (l NginxBucket) Validate() error {
	const name, most = "NginxBucket", math.MaxInt64 / thousand
	if err := l.Rate.validate(); err != nil {
		return field(name, "Rate", err)
	}
	switch {
	case l.Rate.Per != time.Second && l.Rate.Per != time.Minute:
		return field(name, "Rate", fmt.Errorf("%v is no rate for nginx: it must be so many a second or a minute, like 10/s or 30/m", l.Rate))
	case l.Rate.N > most:
		return field(name, "Rate", fmt.Errorf("%v is more than can be counted in thousandths: it must be at most %d", l.Rate, int64(most)))
	case l.Queue < 0 || l.Queue >= most:
		return field(name, "Queue", fmt.Errorf("%d is not a length: it must be at least 0 and below %d", l.Queue, int64(most)))
	case u128.Mul(uint64(maxSpan/time.Second), l.rate()).Less(u128.Mul(uint64(l.Queue+1), thousand)):
		return field(name, "Queue", fmt.Errorf("a queue of %d takes more than 100 years to drain at %v", l.Queue, l.Rate))
	case l.DelayAfter < 0 || l.DelayAfter > l.Queue:
		return field(name, "DelayAfter", fmt.Errorf("%d is not within 0 and the queue of %d", l.DelayAfter, l.Queue))
	}
	return nil
}

// rate is what drains in a second, in whole thousandths.
func (l NginxBucket) rate() uint64 {
	return uint64(l.Rate.N * thousand / int64(l.Rate.Per/time.Second))
}

// Excess is what nginx writes into its log about a request of that cost that got the decision: by how much it is above the rate, in
// thousandths.
func (l NginxBucket) Excess(d Decision, cost int64) int64 {
	if d.Allowed {
		return max(d.Level-thousand, 0)
	}
	return d.Level + (cost-1)*thousand
}

// Delay is how long nginx holds a request of that cost back that got the decision. It is a whole number of milliseconds, and 0 for one that was
// refused.
func (l NginxBucket) Delay(d Decision, cost int64) time.Duration {
	above := d.Level - (cost+l.DelayAfter)*thousand // by the first unit of the cost
	if !d.Allowed || cost < 1 || above <= 0 || l.Validate() != nil {
		return 0
	}
	ms, _, fits := u128.Mul(uint64(above), thousand).Div(l.rate())
	if !fits || ms > uint64(maxSpan/time.Millisecond) {
		return maxSpan
	}
	return time.Duration(ms) * time.Millisecond
}

func (l NginxBucket) compile(unit time.Duration) (rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if time.Millisecond%unit != 0 {
		return nil, field("NginxBucket", "Rate", fmt.Errorf("a millisecond is not a whole number of clock units of %v", unit))
	}
	return &thousandths{
		rate: l.rate(), size: l.Queue + 1, full: uint64(l.Queue+1) * thousand,
		ms: int64(time.Millisecond / unit), tick: unit, horizon: int64(maxSpan / unit),
	}, nil
}

// normal has the rate as it counts, so that limits are equal that decide alike.
func (l NginxBucket) normal() Limit {
	if l.Validate() == nil {
		l.Rate = normalRate(Rate{int64(l.rate()), thousand * time.Second})
	}
	return l
}

// thousandths is the rule of NginxBucket. The level is what is in the bucket, each request a thousand: nginx's excess is the level without
// the request that was admitted last.
//
// Nginx takes a reading more than a minute earlier than the last as 1 ms after it, which only a clock of 32 bits that has wrapped can show.
// Here every earlier reading is the last one, as for all limits.
type thousandths struct {
	rate    uint64 // thousandths that drain in a second
	size    int64
	full    uint64 // in thousandths
	ms      int64  // clock units of a millisecond
	tick    time.Duration
	horizon int64
}

// Words of a state, and of a ticket: the state just after the charge, that before it, when it was charged, and the cost.
const (
	wordLevel = iota // in thousandths
	wordLast         // the millisecond of the last charge
	thousandthsWords

	thousandthsBefore = thousandthsWords
	thousandthsNow    = 2 * thousandthsWords
	thousandthsOf     = thousandthsNow + 1
)

func (b *thousandths) capacity() int64                             { return b.size }
func (b *thousandths) largest() int64                              { return b.size }
func (b *thousandths) books() bool                                 { return false }
func (b *thousandths) wall() bool                                  { return false }
func (b *thousandths) unit() time.Duration                         { return b.tick }
func (b *thousandths) contact(s []int64, _ int64) []int64          { return s }
func (b *thousandths) serve(s []int64, _, now, cost int64) []int64 { return b.charge(s, now, cost) }
func (b *thousandths) asOf(_, now int64) int64                     { return now }
func (b *thousandths) reticket(ticket, int64, rule) (ticket, bool) { return ticket{}, false }

func (b *thousandths) valid(s []int64) bool {
	first, _ := b.millisecond(math.MinInt64)
	return len(s) == 0 || len(s) == thousandthsWords && s[wordLevel] >= 0 && s[wordLast] >= first && s[wordLast] <= math.MaxInt64/b.ms
}

// millisecond is the one that a reading is in, and how far it is into it.
func (b *thousandths) millisecond(now int64) (ms, into int64) {
	ms, into = now/b.ms, now%b.ms
	if into < 0 {
		ms, into = ms-1, into+b.ms
	}
	return ms, into
}

// level is what is in the bucket.
func (b *thousandths) level(s []int64, now int64) int64 {
	if len(s) == 0 {
		return 0
	}
	ms, _ := b.millisecond(now)
	if ms <= s[wordLast] {
		return s[wordLevel]
	}
	drained, _, _ := u128.Mul(b.rate, uint64(ms)-uint64(s[wordLast])).Div(thousand) // where it does not fit it is the largest number
	return s[wordLevel] - int64(min(drained, uint64(s[wordLevel])))
}

// until is how long after now so much more than the bucket may hold has drained: from the last charge on, or from now on where the bucket is
// empty.
func (b *thousandths) until(s []int64, now int64, tooMuch u128.Uint) int64 {
	ms, into := b.millisecond(now)
	last := ms
	if b.level(s, now) > 0 {
		last = s[wordLast]
	}
	if tooMuch.Hi > 0 && tooMuch.Hi >= math.MaxUint64/thousand {
		return never
	}
	times := u128.Mul(tooMuch.Lo, thousand).Add(u128.Uint{Hi: tooMuch.Hi * thousand})
	wait := u128.From(times.DivCeil(b.rate))
	if last >= ms {
		wait = wait.Add(u128.From(uint64(last) - uint64(ms)))
	} else {
		wait = wait.Sub(u128.From(uint64(ms) - uint64(last)))
	}
	if wait.Hi > 0 {
		return never
	}
	units := u128.Mul(wait.Lo, uint64(b.ms)).Sub(u128.From(uint64(into)))
	if units.Hi > 0 || units.Lo > uint64(b.horizon) || units.Lo > clockLeft(now) {
		return never
	}
	return int64(units.Lo)
}

// behind is what the bucket will hold, given what is ahead: from the last charge, or from now on where it is empty by itself.
func (b *thousandths) behind(s []int64, now int64, ahead uint64, cost int64) (sum u128.Uint) {
	if b.level(s, now) > 0 {
		sum = u128.From(uint64(s[wordLevel]))
	}
	return sum.Add(u128.Mul(ahead, thousand)).Add(u128.Mul(uint64(cost), thousand))
}

// plan behind others goes by volume: each of them that is served cuts off less than a thousandth, which makes it later.
func (b *thousandths) plan(s []int64, now int64, ahead uint64, cost int64) plan {
	level := u128.From(uint64(b.level(s, now))).Add(u128.Mul(ahead, thousand)).Add(u128.Mul(uint64(cost), thousand))
	if !u128.From(b.full).Less(level) {
		return plan{}
	}
	wait := b.until(s, now, b.behind(s, now, ahead, cost).Sub(u128.From(b.full)))
	if wait == never {
		return plan{never, never}
	}
	return plan{wait: wait}
}

func (b *thousandths) charge(s []int64, now, cost int64) []int64 {
	ms, _ := b.millisecond(now)
	if len(s) == 0 {
		s = append(s, 0, ms)
	}
	level := b.level(s, now)
	more := u128.Mul(uint64(cost), thousand).Min(u128.From(uint64(math.MaxInt64 - level))) // a debt beyond that is forgotten
	s[wordLevel], s[wordLast] = level+int64(more.Lo), max(s[wordLast], ms)
	return s
}

func (b *thousandths) book(s []int64, now, _, cost int64) ([]int64, ticket) {
	ms, _ := b.millisecond(now)
	t := ticket{thousandthsBefore + wordLast: ms, thousandthsNow: now, thousandthsOf: cost}
	copy(t[thousandthsBefore:thousandthsNow], s)
	s = b.charge(s, now, cost)
	copy(t[:], s)
	return s, t
}

// refund gives back what nothing was charged on top of: the state is then as if the charge had been of what is left of it.
func (b *thousandths) refund(s []int64, _ int64, t ticket, amount int64) []int64 {
	if len(s) == 0 || [thousandthsWords]int64(s) != [thousandthsWords]int64(t[:]) {
		return s
	}
	copy(s, t[thousandthsBefore:thousandthsNow])
	if left := t[thousandthsOf] - amount; left > 0 {
		s = b.charge(s, t[thousandthsNow], left)
	}
	return s
}

func (b *thousandths) look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	level := u128.From(uint64(b.level(s, now))).Add(u128.Mul(ahead, thousand))
	if !level.IsZero() {
		if reset = b.until(s, now, b.behind(s, now, ahead, 0)); reset == never {
			reset = math.MaxInt64
		}
	}
	return int64(u128.From(b.full).Sub(level).Lo / thousand), reset
}

// convert keeps what is in the bucket.
func (b *thousandths) convert(s []int64, now int64, to rule, then int64) []int64 {
	if _, ok := to.(*thousandths); !ok {
		return transfer(b, s, now, to, then)
	}
	if len(s) == 0 {
		return s
	}
	return b.charge(s, now, 0)
}

func (b *thousandths) spent(s []int64, now int64) int64 {
	level := b.level(s, now)
	return level/thousand + min(level%thousand, 1)
}

func (b *thousandths) load(now, spent int64) []int64 { return b.charge(nil, now, spent) }
