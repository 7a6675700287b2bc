package proof

import (
	"math"
	"math/big"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/weirflow/weir"
)

const (
	// century is the longest time over which a limit may count.
	century = 36525 * 24 * time.Hour

	// endless is a reading beyond which waits reach the end of the clock. Queues are safe there,
	// but their results are not specified.
	endless = math.MaxInt64 - 2*int64(century)
)

// A kind draws limits of one algorithm.
type kind struct {
	name string
	// draw draws a limit, up to the most extreme parameters. fill bounds the time in which it
	// fills.
	draw func(t *rapid.T, tick, fill time.Duration) weir.Limit
	// small draws a limit of few units, for clocks that advance by a few of its periods.
	small func(t *rapid.T, length time.Duration) weir.Limit
}

var kinds = []kind{
	{"TokenBucket", tokenBucket, func(t *rapid.T, length time.Duration) weir.Limit {
		return weir.TokenBucket{Rate: weir.Rate{N: 1, Per: length}, Burst: upTo(4).Draw(t, "size")}
	}},
	{"LeakyBucket", leakyBucket, func(t *rapid.T, length time.Duration) weir.Limit {
		size := upTo(4).Draw(t, "size")
		return weir.LeakyBucket{Rate: weir.Rate{N: 1, Per: length}, Queue: size - 1, DelayAfter: min(size, upTo(size+2).Draw(t, "passes")) - 1}
	}},
	{"IntervalBucket", intervalBucket, func(t *rapid.T, length time.Duration) weir.Limit {
		return weir.IntervalBucket{Burst: upTo(4).Draw(t, "size"), Refill: upTo(4).Draw(t, "refill"), Every: length * time.Duration(upTo(3).Draw(t, "every"))}
	}},
	{"FixedWindow", fixedWindow, func(t *rapid.T, length time.Duration) weir.Limit {
		return weir.FixedWindow{
			Limit: upTo(4).Draw(t, "size"), Window: length * time.Duration(upTo(3).Draw(t, "window")),
			Align: rapid.SampledFrom([]weir.Align{weir.AlignEpoch, weir.AlignFirst}).Draw(t, "align"),
		}
	}},
	{"SlidingLog", slidingLog, func(t *rapid.T, length time.Duration) weir.Limit {
		return weir.SlidingLog{Limit: upTo(4).Draw(t, "size"), Window: length * time.Duration(upTo(5).Draw(t, "window"))}
	}},
	{"SlidingWindow", slidingWindow, func(t *rapid.T, length time.Duration) weir.Limit {
		slots := upTo(4).Draw(t, "slots") + 1
		size := upTo(4).Draw(t, "size")
		return weir.SlidingWindow{
			Limit: size, Window: length * time.Duration(slots*upTo(3).Draw(t, "width")), Slots: int(slots),
			SlotLimit: min(upTo(5).Draw(t, "slot_limit")-1, size),
		}
	}},
	{"SlidingCounter", slidingCounter, func(t *rapid.T, length time.Duration) weir.Limit {
		return weir.SlidingCounter{Limit: upTo(4).Draw(t, "size"), Window: length * time.Duration(upTo(5).Draw(t, "window"))}
	}},
	guavaKinds[0], guavaKinds[1],
	{"NginxBucket", nginxBucket, func(t *rapid.T, length time.Duration) weir.Limit {
		return weir.NginxBucket{Rate: weir.PerSecond(max(1, int64(time.Second/length))), Queue: upTo(4).Draw(t, "size") - 1}
	}},
	{"FixedWindow,calendar", calendarWindow, func(t *rapid.T, length time.Duration) weir.Limit {
		return calendarWindow(t, 1, 0)
	}},
}

// bucketKinds have a rate and a capacity only.
var bucketKinds = kinds[:2]

// rateKinds have a rate.
var rateKinds = slices.Concat(bucketKinds, guavaKinds)

// either draws a limit of any algorithm, except for calendar windows, which need present-day
// readings.
func either(t *rapid.T, tick, fill time.Duration) weir.Limit {
	return kinds[rapid.IntRange(0, len(kinds)-2).Draw(t, "kind")].draw(t, tick, fill)
}

// drawRate draws common, fractional and extreme rates: from one in a century to the fastest that
// can be counted.
func drawRate(t *rapid.T, tick, fill time.Duration) weir.Rate {
	r := weir.Rate{
		N: rapid.OneOf(
			rapid.Int64Range(1, 12),
			rapid.SampledFrom([]int64{100, 333, 12345, 999983, 999999937, 1e9, 1e12, math.MaxInt64}),
			rapid.Int64Min(1),
		).Draw(t, "n"),
		Per: time.Duration(rapid.OneOf(
			rapid.Int64Range(1, 12),
			rapid.SampledFrom([]int64{
				int64(time.Microsecond), 999999937, int64(time.Second), int64(time.Minute), int64(time.Hour), 24 * int64(time.Hour),
			}),
			rapid.Int64Range(1, int64(century)),
		).Draw(t, "per")),
	}
	r.N, r.Per = min(r.N, math.MaxInt64/int64(tick)), min(r.Per, fill)
	return r
}

// drawSize draws a capacity, up to what the rate brings within the time.
func drawSize(t *rapid.T, r weir.Rate, fill time.Duration) int64 {
	largest := int64(math.MaxInt64)
	if q := new(big.Int).Mul(big.NewInt(int64(fill)), big.NewInt(r.N)); q.Div(q, big.NewInt(int64(r.Per))).IsInt64() {
		largest = q.Int64()
	}
	return rapid.OneOf(
		rapid.Int64Range(1, min(6, largest)),
		rapid.Int64Range(1, min(30, largest)),
		rapid.Int64Range(1, largest),
		rapid.Just(largest),
	).Draw(t, "size")
}

func tokenBucket(t *rapid.T, tick, fill time.Duration) weir.Limit {
	l := weir.TokenBucket{Rate: drawRate(t, tick, fill)}
	l.Burst = drawSize(t, l.Rate, fill)
	if rapid.IntRange(0, 3).Draw(t, "full") == 3 {
		l.Initial = rapid.OneOf(rapid.Just(weir.InitialEmpty), rapid.Int64Range(1, l.Burst)).Draw(t, "initial")
	}
	return l
}

func leakyBucket(t *rapid.T, tick, fill time.Duration) weir.Limit {
	l := weir.LeakyBucket{Rate: drawRate(t, tick, fill)}
	l.Queue = drawSize(t, l.Rate, fill) - 1
	l.DelayAfter = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, l.Queue), rapid.Just(l.Queue)).Draw(t, "delay_after")
	return l
}

func nginxBucket(t *rapid.T, _, fill time.Duration) weir.Limit {
	l := weir.NginxBucket{Rate: weir.Rate{
		N:   rapid.OneOf(rapid.Int64Range(1, 100), rapid.SampledFrom([]int64{333, 1000, 1_000_003}), rapid.Int64Range(1, math.MaxInt64/1000)).Draw(t, "n"),
		Per: rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "per"),
	}}
	l.Queue = min(drawSize(t, weir.Rate{N: thousandths(l), Per: 1000 * time.Second}, fill), math.MaxInt64/1000) - 1
	l.DelayAfter = rapid.Int64Range(0, l.Queue).Draw(t, "delay_after")
	return l
}

// drawSpan draws a length of time in whole clock units.
func drawSpan(t *rapid.T, tick, longest time.Duration) time.Duration {
	most := int64(longest / tick)
	return tick * time.Duration(rapid.OneOf(
		rapid.Int64Range(1, min(12, most)),
		rapid.Int64Range(1, min(1000, most)),
		rapid.Int64Range(1, most),
		rapid.SampledFrom([]int64{min(int64(time.Second/tick), most), min(int64(time.Hour/tick), most), most}),
	).Draw(t, "span"))
}

// drawCount draws a capacity for limits without a rate.
func drawCount(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.Int64Range(1, 6), rapid.Int64Range(1, 6), rapid.Int64Range(1, 30), rapid.Int64Min(1), rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1}),
	).Draw(t, "count")
}

func intervalBucket(t *rapid.T, tick, fill time.Duration) weir.Limit {
	l := weir.IntervalBucket{Refill: drawCount(t), Every: drawSpan(t, tick, fill)}
	most := new(big.Int).Mul(big.NewInt(l.Refill), big.NewInt(int64(fill/l.Every)))
	l.Burst = drawCount(t)
	if most.IsInt64() {
		l.Burst = min(l.Burst, most.Int64())
	}
	return l
}

func fixedWindow(t *rapid.T, tick, fill time.Duration) weir.Limit {
	return weir.FixedWindow{
		Limit: drawCount(t), Window: drawSpan(t, tick, fill),
		Align: rapid.SampledFrom([]weir.Align{"", weir.AlignEpoch, weir.AlignFirst}).Draw(t, "align"),
	}
}

func slidingLog(t *rapid.T, tick, fill time.Duration) weir.Limit {
	return weir.SlidingLog{
		Limit: drawCount(t), Window: drawSpan(t, tick, fill), MaxEntries: rapid.SampledFrom([]int{0, 0, 0, 2, 3, 7}).Draw(t, "max_entries"),
	}
}

func slidingWindow(t *rapid.T, tick, fill time.Duration) weir.Limit {
	slots := rapid.SampledFrom([]int{2, 2, 3, 4, 5, 10, 60}).Draw(t, "slots")
	l := weir.SlidingWindow{Limit: drawCount(t), Slots: slots, Window: time.Duration(slots) * drawSpan(t, tick, fill/time.Duration(slots))}
	if rapid.Bool().Draw(t, "slot_limited") {
		l.SlotLimit = min(drawCount(t), l.Limit)
	}
	return l
}

func slidingCounter(t *rapid.T, tick, fill time.Duration) weir.Limit {
	return weir.SlidingCounter{Limit: drawCount(t), Window: drawSpan(t, tick, fill)}
}

func calendarWindow(t *rapid.T, _, _ time.Duration) weir.Limit {
	period := rapid.SampledFrom([]string{"day", "day", "week", "week-sunday", "month", "year"}).Draw(t, "period")
	zone := rapid.SampledFrom([]string{
		"", ":Europe/Berlin", ":America/Sao_Paulo", ":America/St_Johns", ":America/Havana", ":Pacific/Apia", ":Asia/Kolkata",
	}).Draw(t, "zone")
	return weir.FixedWindow{Limit: drawCount(t), Align: weir.Align(period + zone)}
}

// dated reports whether a limit uses a calendar.
func dated(l weir.Limit) bool {
	w, ok := l.(weir.FixedWindow)
	return ok && w.Window == 0
}

// dates has times near changes of civil time, in seconds: Sao Paulo 2018-11-04, St. John's
// 2006-10-29, Havana 2012-11-04, Apia 2011-12-30, Berlin 2024-03-31, and 1970-01-01.
var dates = []int64{1541300400, 1162092660, 1352005200, 1325239200, 1711846800, 0}

// A walker draws calls. It keeps just enough of the past to draw calls that matter.
type walker struct {
	limit weir.Limit
	tick  time.Duration
	now   int64
	floor int64 // no reading is earlier

	back bool // readings may step back
	wild bool // and jump anywhere
	ones bool // all costs are 1

	prompt bool // no reservation is delayed

	dated bool // readings are present-day times

	extremes []int64 // also extreme actual costs

	set func(*rapid.T) weir.Limit // draws the next limit

	retry        time.Duration // RetryAfter of the last refusal
	reservations int           // the number of reservations so far
	places       int
	kept         int  // places that are kept after their turns
	waiting      bool // a caller waits: the clock then stays where queues are specified
}

// walkerAt draws the first reading of the clock.
func walkerAt(t *rapid.T, l weir.Limit, tick time.Duration) *walker {
	w := &walker{limit: l, tick: tick, floor: earliest, extremes: []int64{-1, 0, math.MaxInt64}, dated: dated(l)}
	w.set = func(t *rapid.T) weir.Limit {
		if w.dated && rapid.Bool().Draw(t, "dated") {
			return calendarWindow(t, tick, century)
		}
		return either(t, tick, century)
	}
	if w.dated {
		second := rapid.SampledFrom(dates).Draw(t, "date") + rapid.Int64Range(-3*86400, 3*86400).Draw(t, "seconds")
		w.now = second * int64(time.Second/tick)
		return w
	}
	w.now = rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, -5, 1_700_000_000_000_000_000, earliest, math.MaxInt64 - int64(time.Hour)}),
		rapid.Int64Min(earliest),
	).Draw(t, "origin")
	return w
}

// earliest is the earliest reading of a clock. States have times before the present one, such as the
// start of the last window, and the earliest of all stands for none.
const earliest = math.MinInt64 + int64(time.Hour)

// linesAt is walkerAt for walks with queues.
func linesAt(t *rapid.T, l weir.Limit, tick time.Duration) *walker {
	w := walkerAt(t, l, tick)
	w.now = min(w.now, endless/2)
	return w
}

// move draws the next reading: mostly forward by a time that matters to the limit.
func (w *walker) move(t *rapid.T) int64 {
	interval, drain := rhythm(w.limit, w.tick)
	span := func(from, to float64) int64 {
		return rapid.Int64Range(int64(from*interval), int64(min(to*interval, float64(century/w.tick)))+1).Draw(t, "units")
	}
	moves := []string{"stay", "stay", "stay", "one", "some", "drain", "units", "retry"}
	if w.back {
		moves = append(moves, "back", "back units")
	}
	if w.wild && !w.waiting && !w.dated {
		moves = append(moves, "leap", "anywhere")
	}
	next := w.now
	switch rapid.SampledFrom(moves).Draw(t, "move") {
	case "one":
		next = plus(w.now, int64(interval))
	case "some":
		next = plus(w.now, span(0, 3))
	case "drain":
		next = plus(w.now, span(0, 2*drain/interval))
	case "units":
		next = plus(w.now, rapid.Int64Range(0, 3).Draw(t, "units"))
	case "retry":
		next = plus(w.now, int64(w.retry/w.tick)-rapid.Int64Range(0, 1).Draw(t, "sooner"))
	case "back":
		next = minus(w.now, span(0, 5))
	case "back units":
		next = minus(w.now, rapid.Int64Range(0, 3).Draw(t, "units"))
	case "leap":
		next = plus(w.now, int64(1)<<rapid.IntRange(0, 62).Draw(t, "power"))
		if w.back && rapid.Bool().Draw(t, "leap back") {
			next = minus(w.now, int64(1)<<rapid.IntRange(0, 62).Draw(t, "power"))
		}
	case "anywhere":
		next = rapid.Int64Min(earliest).Draw(t, "reading")
	}
	if !w.back {
		next = max(next, w.now)
	}
	if year := int64(366 * 24 * time.Hour / w.tick); w.dated {
		next = max(min(next, 250*year), -70*year)
	}
	if w.waiting {
		next = max(min(next, endless), minus(w.now, int64(century/w.tick)))
	}
	w.now = max(next, w.floor)
	return w.now
}

// cost draws a cost: mostly one that fits, sometimes any.
func (w *walker) cost(t *rapid.T) int64 {
	if w.ones {
		return 1
	}
	size := max(sizeOf(w.limit), 1)
	return rapid.OneOf(
		rapid.Int64Range(1, min(3, size)),
		rapid.Int64Range(1, min(3, size)),
		rapid.Int64Range(1, size),
		rapid.SampledFrom([]int64{0, size, size - 1, plus(size, 1), -1}),
		rapid.Int64(),
	).Draw(t, "cost")
}

// within draws the longest accepted delay, in clock units.
func (w *walker) within(t *rapid.T) int64 {
	return rapid.OneOf(rapid.Just(int64(-1)), rapid.Just(int64(0)), rapid.Int64Range(0, 30), rapid.Int64Min(-1)).Draw(t, "within")
}

// next draws a call.
func (w *walker) next(t *rapid.T, v verb) call {
	c := call{verb: v}
	switch v {
	case settle:
		c.ref = w.choose(t, w.reservations)
	case leave:
		c.ref = w.choose(t, w.places)
	case release:
		c.ref = w.choose(t, w.kept)
	}
	c.now = w.move(t)
	switch v {
	case take, peek, keep:
		c.cost = w.cost(t)
	case reserve, join:
		if c.cost = w.cost(t); v == join || !w.prompt {
			c.within = w.within(t)
		}
	case settle, release:
		c.cost = rapid.OneOf(
			rapid.Just(int64(0)), rapid.Int64Range(0, 4), rapid.Int64Range(0, max(sizeOf(w.limit), 1)), rapid.SampledFrom(w.extremes),
		).Draw(t, "actual")
	case set:
		w.limit = w.set(t)
		c.limit = w.limit
	}
	return c
}

// choose draws one of n things, mostly a recent one.
func (w *walker) choose(t *rapid.T, n int) int {
	if n == 0 {
		t.Skip("nothing is open")
	}
	return n - 1 - rapid.IntRange(0, n-1).Draw(t, "back from the last")
}

// saw records the outcome of a call.
func (w *walker) saw(c call, o outcome) {
	switch {
	case !o.d.Allowed && o.d.RetryAfter > 0:
		w.retry = o.d.RetryAfter
	case c.verb == reserve && o.ok:
		w.reservations++
	case c.verb == join && o.place:
		w.places++
	case c.verb == keep && o.ok:
		w.kept++
	}
}

// walk makes random calls. A verb that is listed twice is twice as likely.
func walk(t *rapid.T, w *walker, verbs []verb, do func(*rapid.T, call) outcome) {
	actions := map[string]func(*rapid.T){}
	for _, v := range verbs {
		name := v.String()
		for actions[name] != nil {
			name += "'"
		}
		actions[name] = func(t *rapid.T) {
			c := w.next(t, v)
			w.saw(c, do(t, c))
		}
	}
	t.Repeat(actions)
}

// plus and minus saturate at the ends of the clock.
func plus(a, b int64) int64 {
	if s := a + b; b < 0 || s >= a {
		return s
	}
	return math.MaxInt64
}

func minus(a, b int64) int64 {
	if d := a - b; b < 0 || d <= a {
		return d
	}
	return math.MinInt64
}
