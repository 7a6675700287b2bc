package main

import (
	"context"
	"runtime"
	"slices"
	"time"

	window "github.com/RussellLuo/slidingwindow"
	failsafe "github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	store "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
)

// The rows of peers.
const (
	jujuBucket     = "juju/ratelimit"
	jujuSteps      = "juju/ratelimit, with a quantum"
	throttledGCRA  = "throttled, GCRA in its memstore"
	failsafeBursty = "failsafe-go, bursty"
	failsafeSmooth = "failsafe-go, smooth"
	uberPacer      = "go.uber.org/ratelimit"
	sethvargoStore = "sethvargo/go-limiter, memorystore"
	slidingPeer    = "RussellLuo/slidingwindow"
)

// long is a window that does not end during a measurement. A table of refusals must not admit in a
// new window.
const long = 20 * 365 * 24 * time.Hour

// slack is how many calls a limiter that spaces out work may admit closer together than its rate:
// calls come from two cores.
const slack = 100_000

// A contender is a limit of Weir's, with the most similar peers.
type contender struct {
	name  string
	limit weir.Limit
	loop  func(*weir.Limiter) loop // default: takeLoop
	peers []string                 // empty if no Go library has a similar limit
}

// contenders returns all limits with Take, either admitting or refusing everything. (Concurrency
// has tables of its own.)
func contenders(admit bool) []contender {
	buckets, windows := []string{xtime, jujuBucket, throttledGCRA, failsafeBursty}, []string{sethvargoStore}
	nearest, sliding := []string{xtime, jujuBucket}, []string{slidingPeer}
	first := weir.FixedWindow{Limit: 1, Window: long, Align: weir.AlignFirst}
	if !admit {
		per := weir.PerDay(1)
		return []contender{
			{"TokenBucket", weir.TokenBucket{Rate: per, Burst: 1}, nil, buckets},
			{"LeakyBucket", weir.LeakyBucket{Rate: per}, nil, []string{failsafeSmooth}},
			{"LeakyBucket as a meter", weir.LeakyBucket{Rate: per, Queue: 1, DelayAfter: 1}, nil, buckets},
			{"NginxBucket", weir.NginxBucket{Rate: weir.PerMinute(1)}, nil, nil},
			{"IntervalBucket", weir.IntervalBucket{Burst: 1, Refill: 1, Every: long}, nil, []string{jujuSteps}},
			{"FixedWindow, epoch", weir.FixedWindow{Limit: 1, Window: long}, nil, windows},
			{"FixedWindow, first", first, nil, append(windows, failsafeBursty)},
			{"FixedWindow, year:UTC", weir.FixedWindow{Limit: 1, Align: "year:UTC"}, nil, windows},
			{"SlidingWindow, 10 slots", weir.SlidingWindow{Limit: 1, Window: long, Slots: 10}, nil, sliding},
			{"SlidingCounter", weir.SlidingCounter{Limit: 1, Window: long}, nil, sliding},
			{"SlidingLog", weir.SlidingLog{Limit: 1000, Window: long}, nil, nil},
			{"SmoothBursty", weir.SmoothBursty{Rate: per}, nil, nearest},
			{"WarmUp", weir.WarmUp{Rate: per, Period: time.Second}, nil, nil},
		}
	}
	per := weir.PerSecond(1e9) // tokens refill as fast as they are taken
	pacer := weir.LeakyBucket{Rate: per, Queue: many, DelayAfter: slack}
	first.Limit = many
	return []contender{
		{"TokenBucket", weir.TokenBucket{Rate: per, Burst: many}, nil, buckets},
		{"LeakyBucket", pacer, nil, []string{failsafeSmooth}},
		{"LeakyBucket, Wait", pacer, waitLoop, []string{uberPacer, failsafeSmooth}},
		{"LeakyBucket as a meter", weir.LeakyBucket{Rate: per, Queue: many, DelayAfter: many}, nil, buckets},
		{"NginxBucket", weir.NginxBucket{Rate: per, Queue: many, DelayAfter: many}, nil, nil},
		{"IntervalBucket", weir.IntervalBucket{Burst: many, Refill: 1e6, Every: time.Millisecond}, nil, []string{jujuSteps}},
		{"FixedWindow, epoch", weir.FixedWindow{Limit: many, Window: long}, nil, windows},
		{"FixedWindow, 1s, epoch", weir.FixedWindow{Limit: many, Window: time.Second}, nil, windows},
		{"FixedWindow, first", first, nil, append(windows, failsafeBursty)},
		{"FixedWindow, year:UTC", weir.FixedWindow{Limit: many, Align: "year:UTC"}, nil, windows},
		{"SlidingWindow, 10 slots", weir.SlidingWindow{Limit: many, Window: time.Second, Slots: 10}, nil, sliding},
		{"SlidingCounter", weir.SlidingCounter{Limit: many, Window: time.Second}, nil, sliding},
		{"SlidingLog", weir.SlidingLog{Limit: 10_000, Window: time.Microsecond}, nil, nil},
		{"SmoothBursty", weir.SmoothBursty{Rate: per}, nil, nearest},
		{"WarmUp", weir.WarmUp{Rate: per, Period: time.Second}, nil, nil},
	}
}

// peerLoops returns the peers, each new, or with nothing left if they should refuse. Their
// parameters are those of the contenders beside them. Peers that block instead of refusing are left
// out of tables of refusals.
func peerLoops(admit bool) []peerLoop {
	every, fill, period, hold := 24*time.Hour, 24*time.Hour, long, 1
	quota := throttled.RateQuota{MaxRate: throttled.PerDay(1)}
	if admit {
		every, fill, period, hold = 1, 1, time.Hour, many
		quota = throttled.RateQuota{MaxRate: throttled.PerDuration(1e9, time.Second), MaxBurst: many}
	}
	all := []peerLoop{
		{xtime, func() loop { return emptied(xtimeAllow(rate.NewLimiter(rate.Every(every), hold)), admit) }},
		{jujuBucket, func() loop { return emptied(jujuLoop(juju.NewBucket(fill, int64(hold))), admit) }},
		{throttledGCRA, func() loop { return emptied(throttledLoop(quota), admit) }},
		{failsafeBursty, func() loop { return emptied(failsafeLoop(failsafe.NewBursty[any](uint(hold), period)), admit) }},
		{failsafeSmooth, func() loop { return emptied(failsafeLoop(failsafe.NewSmooth[any](1, every)), admit) }},
		{jujuSteps, func() loop {
			if admit {
				return jujuLoop(juju.NewBucketWithQuantum(time.Millisecond, many, 1e6))
			}
			return emptied(jujuLoop(juju.NewBucketWithQuantum(long, 1, 1)), admit)
		}},
		{sethvargoStore, func() loop { return emptied(sethvargoLoop(uint64(hold), period), admit) }},
		{slidingPeer, func() loop {
			size := long
			if admit {
				size = time.Second
			}
			l, _ := window.NewLimiter(size, int64(hold), func() (window.Window, window.StopFunc) { return window.NewLocalWindow() })
			return emptied(slidingLoop(l), admit)
		}},
	}
	if admit {
		all = append(all, peerLoop{uberPacer, func() loop { return uberLoop(uber.New(1e9, uber.WithSlack(slack))) }})
	}
	return all
}

// A peerLoop is a peer by its name.
type peerLoop struct {
	name  string
	fresh func() loop
}

// emptied takes until nothing is left, if calls should be refused.
func emptied(l loop, admit bool) loop {
	for !admit && l(1) == 1 {
	}
	return l
}

// paces are the limiters that space out work. When two goroutines call at once, the earlier clock
// reading may arrive last, and is then refused.
var paces = []string{"LeakyBucket", "SmoothBursty", failsafeSmooth}

// limits measures a decision of each limit beside the floor and its most similar peers.
func limits(r *report) error {
	for _, admit := range []bool{true, false} {
		for _, procs := range crews() {
			c := limitsContest(admit, procs)
			c.facts = sizes(admit)
			if err := r.contest(c); err != nil {
				return err
			}
		}
	}
	return concurrency(r)
}

// limitsContest is one of the four settings.
func limitsContest(admit bool, procs int) contest {
	says := "admitted"
	if !admit {
		says = "refused"
	}
	answers := func(name string) answers {
		switch {
		case !admit:
			return allNo
		case procs > 1 && slices.Contains(paces, name):
			return either
		}
		return allYes
	}
	c := contest{
		title:   says + ", " + where(procs),
		procs:   procs,
		against: []string{floor},
		rivals:  map[string][]string{},
		notes: []string{
			"Take of one limiter, shared by all goroutines, and the peers below; / peer: beside the fastest of its own",
			"bytes: what one limiter keeps in memory; state: the part of it that a table or a store keeps for each key",
		},
		subjects: []subject{
			{floor, floorShared, either, nil},
			{"floor, wall clock", floorWall, either, nil},
		},
	}
	for _, p := range contenders(admit) {
		loopOf := p.loop
		if loopOf == nil {
			loopOf = takeLoop
		}
		c.subjects = append(c.subjects, subject{p.name, func() loop { return loopOf(limiter(p.limit, admit)) }, answers(p.name), []target{{"", 0}}})
		c.rivals[p.name] = p.peers
	}
	for _, p := range peerLoops(admit) {
		c.subjects = append(c.subjects, subject{p.name, p.fresh, answers(p.name), nil})
	}
	return c
}

// sizes are the columns about memory.
func sizes(admit bool) []fact {
	whole, state := map[string]float64{}, map[string]float64{}
	for _, c := range contenders(admit) {
		whole[c.name], state[c.name] = limiterBytes(func() any { return limiter(c.limit, admit) }), stateBytes(c.limit)
	}
	for _, p := range peerLoops(admit) {
		whole[p.name] = limiterBytes(func() any {
			l := p.fresh()
			l(1)
			return l
		})
	}
	return []fact{{column{"bytes", 0}, whole}, {column{"state", 0}, state}}
}

// limiterBytes returns how much the heap grows for each limiter: the median of several
// measurements over many, as the heap may shrink meanwhile by what was used before.
func limiterBytes(fresh func() any) float64 {
	const n = 200
	var grown [3]float64
	for i := range grown {
		all := make([]any, n)
		before := heap()
		for i := range all {
			all[i] = fresh()
		}
		grown[i] = heap() - before
		runtime.KeepAlive(all)
	}
	slices.Sort(grown[:])
	return max(0, grown[len(grown)/2]/n)
}

// heap returns the heap in use after a collection, without objects that only wait for their
// finalizers.
func heap() float64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
		<-time.After(time.Millisecond)
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// stateBytes returns the length of a state after its first charge.
func stateBytes(l weir.Limit) float64 {
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil {
		panic(err) // these limits are constants
	}
	state, _ := p.Step(nil, time.Now().UnixNano(), 1)
	return float64(8 * len(state))
}

// floorWall is the floor for limits that use the time of day, which takes longer to read.
func floorWall() loop {
	w := new(word)
	return func(n int) (yes int) {
		for range n {
			now := time.Now().UnixNano()
			if old := w.Load(); w.CompareAndSwap(old, now) {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func waitLoop(l *weir.Limiter) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			if l.Wait(ctx, 1) == nil {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func jujuLoop(b *juju.Bucket) loop {
	return func(n int) (yes int) {
		for range n {
			if b.TakeAvailable(1) == 1 {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func failsafeLoop(l failsafe.RateLimiter[any]) loop {
	return func(n int) (yes int) {
		for range n {
			if l.TryAcquirePermit() {
				yes++
			}
		}
		return yes
	}
}

// throttledLoop uses one key. If many goroutines use one key at once, throttled gives up with an
// error after a few tries. That counts as a decision, as if it had admitted or refused.
func throttledLoop(q throttled.RateQuota) loop {
	s, err := memstore.NewCtx(0)
	if err != nil {
		panic(err) // a map of any size
	}
	l, err := throttled.NewGCRARateLimiterCtx(s, q)
	if err != nil {
		panic(err) // the parameters are constants
	}
	refuses := q.MaxBurst == 0
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			limited, _, err := l.RateLimitCtx(ctx, "key", 1)
			if err != nil {
				limited = refuses
			}
			if !limited {
				yes++
			}
		}
		return yes
	}
}

// sethvargoLoop uses one key.
func sethvargoLoop(tokens uint64, interval time.Duration) loop {
	s, err := memorystore.New(&memorystore.Config{Tokens: tokens, Interval: interval, InitialAlloc: 1})
	if err != nil {
		panic(err) // the parameters are constants
	}
	runtime.AddCleanup(&s, func(s store.Store) { _ = s.Close(context.Background()) }, s)
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			if _, _, _, ok, err := s.Take(ctx, "key"); ok && err == nil {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func slidingLoop(l *window.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if l.Allow() {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func uberLoop(l uber.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			l.Take()
			yes++
		}
		return yes
	}
}
