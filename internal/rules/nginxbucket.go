package rules

import (
	"fmt"
	"math"
	"time"

	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/u128"
)

// NginxBucket is the parameters of the limit of that name.
type NginxBucket struct {
	Rate       Rate
	Queue      int64
	DelayAfter int64 // the caller has to delay requests itself, see Delay
}

// Thousand is nginx's unit: it counts in thousandths of a request.
const Thousand = 1000

// Thousandths is the rate in whole thousandths of a request a second.
func (l NginxBucket) Thousandths() uint64 {
	return uint64(l.Rate.N * Thousand / int64(l.Rate.Per/time.Second))
}

// DrainsInTime reports whether a full queue drains within the longest span that a limit may count
// over.
func (l NginxBucket) DrainsInTime() bool {
	return !u128.Mul(uint64(MaxSpan/time.Second), l.Thousandths()).Less(u128.Mul(uint64(l.Queue+1), Thousand))
}

// Delay implements Delayed: how long nginx delays an admitted request of that cost, which left the
// bucket at level.
func (l NginxBucket) Delay(level, cost int64) time.Duration {
	if cost < 1 {
		return 0
	}
	above := level - (cost+l.DelayAfter)*Thousand // by the first unit of the cost
	if above <= 0 {
		return 0
	}
	ms, _, fits := u128.Mul(uint64(above), Thousand).Div(l.Thousandths())
	if !fits || ms > uint64(MaxSpan/time.Millisecond) {
		return MaxSpan
	}
	return time.Duration(ms) * time.Millisecond
}

// Compile returns the rule for clock units of length unit. The parameters have been validated.
func (l NginxBucket) Compile(unit time.Duration) (Rule, error) {
	if time.Millisecond%unit != 0 {
		return nil, &FieldError{"Rate", fmt.Errorf("a millisecond is not a whole number of clock units of %v", unit)}
	}
	return &nginxBucketRule{
		ruleBasics: basicsFor(unit), rate: l.Thousandths(), size: l.Queue + 1, full: uint64(l.Queue+1) * Thousand, ms: int64(time.Millisecond / unit),
	}, nil
}

// nginxBucketRule is the rule of NginxBucket. The level is the content of the bucket, a Thousand
// per request: nginx's excess is the level without the request that was admitted last.
//
// Nginx treats a reading more than a minute before the last one as 1 ms after it, as only a wrapped
// 32-bit clock can show that. Here every earlier reading counts as the last one, as for all limits.
type nginxBucketRule struct {
	ruleBasics
	rate uint64 // thousandths that drain in a second
	size int64
	full uint64 // in thousandths
	ms   int64  // clock units of a millisecond
}

// Words of a state.
const (
	wordLevel = iota // in thousandths
	wordLast         // the millisecond of the last charge
	thousandthsWords
)

func (b *nginxBucketRule) Kind() string       { return "nginx_bucket" }
func (b *nginxBucketRule) Words() int         { return thousandthsWords }
func (b *nginxBucketRule) Capacity() int64    { return b.size }
func (b *nginxBucketRule) LargestCost() int64 { return b.size }
func (b *nginxBucketRule) CanBook() bool      { return false }

func (b *nginxBucketRule) ConvertTicket(t Ticket, to Rule) (Ticket, bool) {
	_, ok := to.(*nginxBucketRule)
	return t, ok
}

func (b *nginxBucketRule) ConvertMemory(m *Memory, now int64, to Rule, _ []int64) {
	_, ok := to.(*nginxBucketRule)
	m.changeJournal(ok, now, b, to)
}

func (b *nginxBucketRule) Valid(s []int64) bool {
	first, _ := b.millisecond(math.MinInt64)
	return len(s) == 0 || len(s) == thousandthsWords && s[wordLevel] >= 0 && s[wordLast] >= first && s[wordLast] <= math.MaxInt64/b.ms
}

// millisecond returns the millisecond of a reading, and how far the reading is into it.
func (b *nginxBucketRule) millisecond(now int64) (ms, into int64) {
	ms, into = now/b.ms, now%b.ms
	if into < 0 {
		ms, into = ms-1, into+b.ms
	}
	return ms, into
}

// Level is the level with more requests.
func (b *nginxBucketRule) Level(s []int64, now, more int64) int64 {
	return plus(b.level(s, now), more*Thousand) // more is at most the size
}

func (b *nginxBucketRule) level(s []int64, now int64) int64 {
	if len(s) == 0 {
		return 0
	}
	ms, _ := b.millisecond(now)
	if ms <= s[wordLast] {
		return s[wordLevel]
	}
	// on overflow it is the largest number
	drained, _, _ := u128.Mul(b.rate, uint64(ms)-uint64(s[wordLast])).Div(Thousand)
	return s[wordLevel] - int64(min(drained, uint64(s[wordLevel])))
}

// until is how long after now the excess over what the bucket may hold has drained: since the last
// charge, or from now on if the bucket is empty.
func (b *nginxBucketRule) until(s []int64, now int64, tooMuch u128.Uint) int64 {
	ms, into := b.millisecond(now)
	last := ms
	if b.level(s, now) > 0 {
		last = s[wordLast]
	}
	if tooMuch.Hi > 0 && tooMuch.Hi >= math.MaxUint64/Thousand {
		return Never
	}
	times := u128.Mul(tooMuch.Lo, Thousand).Add(u128.Uint{Hi: tooMuch.Hi * Thousand})
	wait := u128.From(times.DivCeil(b.rate))
	if last >= ms {
		wait = wait.Add(u128.From(uint64(last) - uint64(ms)))
	} else {
		wait = wait.Sub(u128.From(uint64(ms) - uint64(last)))
	}
	if wait.Hi > 0 {
		return Never
	}
	units := u128.Mul(wait.Lo, uint64(b.ms)).Sub(u128.From(uint64(into)))
	if units.Hi > 0 || units.Lo > uint64(b.horizon) || units.Lo > ClockLeft(now) {
		return Never
	}
	return int64(units.Lo)
}

// behind is the level behind a queue: since the last charge, or from now on if the bucket is empty
// without the queue.
func (b *nginxBucketRule) behind(s []int64, now int64, ahead uint64, cost int64) (sum u128.Uint) {
	if b.level(s, now) > 0 {
		sum = u128.From(uint64(s[wordLevel]))
	}
	return sum.Add(u128.Mul(ahead, Thousand)).Add(u128.Mul(uint64(cost), Thousand))
}

// Plan goes by volume behind a queue, and may name too early a time: each charge of the queue
// truncates less than a thousandth.
func (b *nginxBucketRule) Plan(s []int64, now int64, ahead uint64, cost int64) Plan {
	level := u128.From(uint64(b.level(s, now))).Add(u128.Mul(ahead, Thousand)).Add(u128.Mul(uint64(cost), Thousand))
	if !u128.From(b.full).Less(level) {
		return Plan{}
	}
	wait := b.until(s, now, b.behind(s, now, ahead, cost).Sub(u128.From(b.full)))
	if wait == Never {
		return Plan{Never, Never}
	}
	return Plan{Wait: wait}
}

func (b *nginxBucketRule) Charge(s []int64, now, cost int64) []int64 {
	ms, _ := b.millisecond(now)
	if len(s) == 0 {
		s = append(s, 0, ms)
	}
	level := b.level(s, now)
	// a debt beyond that is lost
	more := u128.Mul(uint64(cost), Thousand).Min(u128.From(uint64(math.MaxInt64 - level)))
	s[wordLevel], s[wordLast] = level+int64(more.Lo), max(s[wordLast], ms)
	return s
}

func (b *nginxBucketRule) Book(s []int64, now, _, cost int64) ([]int64, Ticket) {
	return b.Charge(s, now, cost), Ticket{}
}

// Note keeps the charge in the journal. Each charge truncates what has drained, so the remaining
// effect of an older charge is only known by making the later ones again. Charges from before the
// bucket was last empty have no effect any more.
func (b *nginxBucketRule) Note(m *Memory, s []int64, n Note) {
	if b.level(s, n.At) == 0 {
		m.journal.Clear()
	}
	m.journal.Charged(s, outstanding.Charge{ID: n.ID, Cost: n.Cost, Goes: [5]int64{n.At}, By: b})
}

// Again repeats a charge of the journal.
func (b *nginxBucketRule) Again(s []int64, c outstanding.Charge) []int64 {
	return b.Charge(s, c.Goes[0], c.Cost)
}

func (b *nginxBucketRule) NeedsMemory() bool { return true }

func (b *nginxBucketRule) Drop(m *Memory, t Ticket) { m.journal.Drop(t.id()) }

func (b *nginxBucketRule) Refund(m *Memory, s []int64, _ int64, t Ticket, amount int64) []int64 {
	if m == nil {
		return s
	}
	return m.journal.GiveBack(s, t.id(), amount)
}

func (b *nginxBucketRule) Look(s []int64, now int64, ahead uint64) (remaining, reset int64) {
	level := u128.From(uint64(b.level(s, now))).Add(u128.Mul(ahead, Thousand))
	if !level.IsZero() {
		if reset = b.until(s, now, b.behind(s, now, ahead, 0)); reset == Never {
			reset = math.MaxInt64
		}
	}
	return int64(u128.From(b.full).Sub(level).Lo / Thousand), reset
}

// Convert keeps the level.
func (b *nginxBucketRule) Convert(s []int64, now int64, to Rule, then int64) []int64 {
	if _, ok := to.(*nginxBucketRule); !ok {
		return convertAcross(b, s, now, to, then)
	}
	if len(s) == 0 {
		return s
	}
	return b.Charge(s, now, 0)
}

func (b *nginxBucketRule) Spent(s []int64, now int64) int64 {
	level := b.level(s, now)
	return level/Thousand + min(level%Thousand, 1)
}

func (b *nginxBucketRule) Load(now, spent int64) []int64 { return b.Charge(nil, now, spent) }

var nginxBucketKind = Kind{
	Name:    "nginx_bucket",
	GoName:  "NginxBucket",
	Doc:     "nginx's limit_req in nginx's own arithmetic: thousandths of a request, and milliseconds. leaky_bucket is the same algorithm in exact arithmetic.",
	Returns: "the excess goes down at the rate",
	Page:    "NginxBucket",
	Zero:    NginxBucket{},
	Fields: []Field{
		{Name: "rate", Type: RateField, Required: true, Doc: "A count per second or per minute: 10/s, 30/m."},
		{Name: "queue", Type: CountField, Default: "0", Doc: "nginx's burst."},
		{Name: "delay_after", Type: CountField, Default: "0",
			Doc: "nginx's delay: how many queued requests pass without delay. The value of queue is nginx's nodelay."},
	},
	NoLease:    "no store keeps it",
	NoRegions:  "no store keeps it",
	NoStore:    "nginx keeps it in the memory of one machine: use leaky_bucket, which is the same algorithm in exact arithmetic",
	NoOverride: "nginx has one rate for all keys of a zone",

	KeepsCharge: true,
}

// Kind implements Params.
func (l NginxBucket) Kind() *Kind { return &nginxBucketKind }

// MostPerRequest implements Params.
func (l NginxBucket) MostPerRequest() (int64, string) {
	return l.Queue + 1, "queue (and one that is served)"
}

// QuotaWindow implements Params.
func (l NginxBucket) QuotaWindow() time.Duration { return filling(l) }

// MostWords implements Params.
func (l NginxBucket) MostWords() int64 { return 8 }

// Resets implements Params.
func (l NginxBucket) Resets() bool { return true }

// Share implements Shared. nginx only has whole requests a second or a minute: the rate is rounded
// down to a whole number a minute, and is at least one a minute.
func (l NginxBucket) Share(n int64) Params {
	if l.Rate.Per == time.Second && l.Rate.N%n == 0 {
		l.Rate.N /= n
	} else if l.Rate.N > 0 {
		perMinute := u128.Mul(uint64(l.Rate.N), uint64(time.Minute/max(l.Rate.Per, 1)))
		whole, _, _ := perMinute.Div(uint64(n))
		l.Rate = Rate{max(1, int64(min(whole, math.MaxInt64/Thousand))), time.Minute}
	}
	l.Queue = part(l.Queue+1, n) - 1
	l.DelayAfter = min(l.DelayAfter/n, l.Queue)
	return l
}

// UsedUp implements Shared: the key has used all requests that would go without delay.
func (l NginxBucket) UsedUp(time.Duration) []Use { return usedAll(l.Queue - l.DelayAfter) }
