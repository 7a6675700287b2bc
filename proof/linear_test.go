package proof

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

const (
	threads   = 6
	perThread = 210 // calls of each thread
	perRound  = 3   // after so many calls each thread waits for the others, so that the checker has few orders to try
	step      = 400 // how far the clock advances at a time
)

// linearBuckets has limits that the threads change between. One clock step brings less than a
// token.
var linearBuckets = []weir.Limit{
	weir.TokenBucket{Rate: weir.Rate{N: 1, Per: 1000}, Burst: 6},
	weir.TokenBucket{Rate: weir.Rate{N: 3, Per: 2000}, Burst: 4},
	weir.LeakyBucket{Rate: weir.Rate{N: 1, Per: 1000}, Queue: 5, DelayAfter: 2},
	weir.LeakyBucket{Rate: weir.Rate{N: 7, Per: 9000}, Queue: 3, DelayAfter: 3},
}

// linearOthers has the other limits, each with one of the same algorithm to change to.
var linearOthers = [][]weir.Limit{
	{weir.IntervalBucket{Burst: 6, Refill: 2, Every: 3000}, weir.IntervalBucket{Burst: 4, Refill: 3, Every: 3000}},
	{weir.FixedWindow{Limit: 5, Window: 6000}, weir.FixedWindow{Limit: 3, Window: 4000}},
	{weir.FixedWindow{Limit: 5, Window: 6000, Align: weir.AlignFirst}, weir.FixedWindow{Limit: 3, Window: 4000, Align: weir.AlignFirst}, weir.FixedWindow{Limit: 3, Window: 6000, Align: weir.AlignFirst}},
	{weir.SlidingWindow{Limit: 6, Window: 8000, Slots: 4, SlotLimit: 3}, weir.SlidingWindow{Limit: 4, Window: 6000, Slots: 3}},
	{weir.SlidingCounter{Limit: 5, Window: 6000}, weir.SlidingCounter{Limit: 3, Window: 4000}},
	{weir.SlidingLog{Limit: 5, Window: 6000}, weir.SlidingLog{Limit: 4, Window: 5000, MaxEntries: 2}},
	{weir.SmoothBursty{Rate: weir.Rate{N: 1, Per: 1000}, MaxBurst: 5000}, weir.SmoothBursty{Rate: weir.Rate{N: 3, Per: 2000}, MaxBurst: 2000}},
	{weir.WarmUp{Rate: weir.Rate{N: 1, Per: 1000}, Period: 4000}, weir.WarmUp{Rate: weir.Rate{N: 3, Per: 2000}, Period: 4000, ColdFactor: 2}},
	{
		weir.All(linearBuckets[0], weir.SlidingLog{Limit: 5, Window: 6000}, weir.SlidingWindow{Limit: 6, Window: 8000, Slots: 4}),
		weir.All(linearBuckets[1], weir.SlidingLog{Limit: 4, Window: 5000}),
	},
}

// An op is one call of a thread.
type op struct {
	call
	key string
	id  int // of this reservation, or of the one that is settled
	// reading is the last one that the thread took during the call, which is the one that counts; 0
	// for a call that read no clock.
	reading int64
}

// A subject is a limiter whose calls must be linearizable.
type subject interface {
	do(key string, c call, r reservation) (outcome, reservation)
}

// ofKeys is a keyed.Limiter as a subject, single a weir.Limiter.
type (
	ofKeys struct{ *keyed.Limiter[string] }
	single struct{ *weir.Limiter }
)

func (s ofKeys) do(key string, c call, r reservation) (outcome, reservation) {
	return doOn(ofKey{s.Limiter, key}, c, r)
}

func (s single) do(_ string, c call, r reservation) (outcome, reservation) {
	return doOn(one(s), c, r)
}

func doOn(l limiter, c call, r reservation) (o outcome, made reservation) {
	switch c.verb {
	case take:
		o.d = l.Take(c.cost)
	case peek:
		o.d = l.Peek(c.cost)
	case reserve:
		made, o.ok = l.reserve(c.cost, time.Duration(c.within))
		o.d, o.delay = made.Decision(), made.Delay()
	case settle:
		r.Settle(c.cost)
	case set:
		if err := l.SetLimit(c.limit); err != nil {
			panic(err)
		}
	}
	return o, made
}

// sharedClock is a clock that all threads read and move. A reading may be old when it is used: between the two another thread may run.
//
// It knows which thread took which reading. Were that unknown, the checker would have to try each that a call can have taken.
type sharedClock struct {
	now   atomic.Int64
	reads atomic.Uint64
	took  sync.Map // by goroutine: *readings
}

// readings are those that one thread has taken during its current call.
type readings struct {
	last int64
	// once makes all readings of this call equal to the first. A change of the limit for all keys
	// reads the clock for each key, and settling a key reads it twice. The checker could not know
	// which reading belongs to which key.
	once bool
}

func (r *readings) begin(v verb) { *r = readings{once: v == set || v == settle} }

func (c *sharedClock) read() int64 {
	now := c.now.Load()
	if took, ok := c.took.Load(goroutine()); ok {
		r := took.(*readings)
		if r.once && r.last > 0 {
			now = r.last
		}
		r.last = now
	}
	if c.reads.Add(1)%2 == 0 {
		runtime.Gosched()
	}
	return now
}

// goroutine returns the name of the calling goroutine, the only way for a clock to know its reader.
func goroutine() [24]byte {
	var name [24]byte // "goroutine 18 [running]:"
	runtime.Stack(name[:], false)
	if i := bytes.IndexByte(name[:], '['); i >= 0 {
		clear(name[i:])
	}
	return name
}

// asleep is a timer that never fires.
type asleep struct{}

func (asleep) Reset(time.Duration) bool { return false }
func (asleep) Stop() bool               { return false }

func noTimers(time.Duration, func()) weir.Timer { return asleep{} }

// barriers make each thread wait for the others after perRound calls.
type barriers [perThread / perRound]sync.WaitGroup

func (r *barriers) init() {
	for i := range r {
		r[i].Add(threads)
	}
}

// each thread calls end after its call i.
func (r *barriers) end(i int) {
	if (i+1)%perRound == 0 {
		r[i/perRound].Done()
		r[i/perRound].Wait()
	}
}

// calls has threads call a subject concurrently, and returns the calls with their results.
func calls(clock *sharedClock, s subject, limits []weir.Limit, keys []string, seed uint64, verbs []verb) []porcupine.Operation {
	var tick atomic.Int64
	all := make([][]porcupine.Operation, threads)
	var wg sync.WaitGroup
	start := make(chan struct{})
	var rounds barriers
	rounds.init()
	for thread := range threads {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(thread)))
			took := new(readings)
			clock.took.Store(goroutine(), took)
			type held struct {
				r   reservation
				id  int
				key string
			}
			var open []held
			<-start
			for i := range perThread {
				o := op{key: keys[r.IntN(len(keys))], id: thread*perThread + i}
				o.verb, o.cost, o.within = verbs[r.IntN(len(verbs))], 1+r.Int64N(2), r.Int64N(8000)-1
				var h held
				switch {
				case o.verb == set && r.IntN(8) != 0: // changes of the limit are rare
					o.verb = peek
				case o.verb == set:
					o.limit = limits[r.IntN(len(limits))]
				case o.verb == settle && len(open) == 0:
					o.verb = take
				case o.verb == settle:
					n := r.IntN(len(open))
					h, o.cost = open[n], max(0, r.Int64N(6)-3)
					open = slices.Delete(open, n, n+1)
					o.key, o.id = h.key, h.id
				}
				if r.IntN(2) == 0 {
					clock.now.Add(step)
				}
				took.begin(o.verb)
				called := tick.Add(1)
				out, made := s.do(o.key, o.call, h.r)
				returned := tick.Add(1)
				o.reading = took.last
				if out.ok {
					open = append(open, held{made, o.id, o.key})
				}
				all[thread] = append(all[thread], porcupine.Operation{
					ClientId: thread, Input: o, Call: called, Output: out, Return: returned,
				})
				rounds.end(i)
			}
		})
	}
	close(start)
	wg.Wait()
	return slices.Concat(all...)
}

// linear is the state of the reference model within a history. It is immutable: a call returns a
// new one.
type linear struct {
	m     *weirtest.Model
	ids   map[int]int // of the reservations that are not settled, by the id of the op
	print string      // identifies the state
}

func newLinear(l weir.Limit) linear {
	m := weirtest.NewModel(l, 1)
	m.Contact(0) // at the limiter's creation
	return linear{m, nil, textOf(m, nil)}
}

// at makes a call at its reading, and reports whether the outcome is the recorded one.
func (s linear) at(o op, seen outcome) (linear, bool) {
	now := o.reading
	next := linear{m: s.m.Clone(), ids: s.ids}
	if o.verb == reserve || o.verb == settle {
		next.ids = clone(s.ids)
	}
	var got outcome
	switch o.verb {
	case take:
		got.d = next.m.Take(now, o.cost)
	case peek:
		got.d = next.m.Peek(now, o.cost)
	case reserve:
		var id int
		if id, got.delay, got.d = next.m.Reserve(now, o.cost, o.within); got.d.Allowed {
			got.ok, next.ids[o.id] = true, id
		}
	case settle:
		next.m.Settle(now, s.ids[o.id], o.cost)
		delete(next.ids, o.id)
	case set:
		next.m.SetLimit(now, o.limit)
	}
	if got != seen {
		return s, false
	}
	next.print = textOf(next.m, next.ids)
	return next, true
}

func clone(m map[int]int) map[int]int {
	c := make(map[int]int, len(m)+1)
	for k, v := range m {
		c[k] = v
	}
	return c
}

// linearModel returns the model for the checker.
func linearModel(l weir.Limit) porcupine.Model {
	m := linearRules
	m.Init = func() any { return newLinear(l) }
	return m
}

var linearRules = porcupine.Model{
	Step: func(state, input, output any) (bool, any) {
		next, ok := state.(linear).at(input.(op), output.(outcome))
		return ok, next
	},
	Equal: func(a, b any) bool { return a.(linear).print == b.(linear).print },
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string][]porcupine.Operation{}
		for _, o := range history {
			byKey[o.Input.(op).key] = nil
		}
		for key := range byKey {
			for _, o := range history { // a change of the limit affects all keys
				if in := o.Input.(op); in.key == key || in.verb == set {
					byKey[key] = append(byKey[key], o)
				}
			}
			parts = append(parts, byKey[key])
		}
		return parts
	},
}

// If the checker cannot decide about a history, because too many orders could explain it, another
// one is played: threads interleave differently each time.
const (
	mostHistories = 8
	searchTime    = time.Minute // a history needs a second or less on a quiet machine
)

// checkHistories plays a history and checks it. If the checker cannot decide, it plays another one.
func checkHistories(t *testing.T, l weir.Limit, play func(seed uint64) []porcupine.Operation) {
	t.Helper()
	first := seeds.Of(t.Name()).Uint64()
	for seed := first; seed < first+mostHistories; seed++ {
		switch linearizable(t, l, play(seed)) {
		case porcupine.Ok:
			return
		case porcupine.Illegal:
			t.Fatalf("seed %d: no order of the calls explains what was seen", seed)
		}
	}
	t.Fatalf("the checker did not get to an answer about any of %d histories", mostHistories)
}

// linearizable checks a history, and describes it.
func linearizable(t *testing.T, l weir.Limit, history []porcupine.Operation) porcupine.CheckResult {
	t.Helper()
	refused, overlapping, changes, returned := 0, 0, 0, int64(0)
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range history {
		in, out := o.Input.(op), o.Output.(outcome)
		if in.verb != settle && in.verb != set && !out.d.Allowed {
			refused++
		}
		if in.verb == set {
			changes++
		}
		if o.Call < returned {
			overlapping++
		}
		returned = max(returned, o.Return)
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(linearModel(l), history, searchTime)
	t.Logf("%d calls of %d threads, %d of them refused, %d overlapping, %d changes of the limit: %v in %v",
		len(history), threads, refused, overlapping, changes, result, time.Since(began).Round(time.Millisecond))
	if len(history) < 1000 || refused < 100 || overlapping < 100 {
		t.Errorf("the history is too tame")
	}
	return result
}

var linearVerbs = []verb{take, take, take, peek, reserve, reserve, settle, settle, set}

// TestLimitersAreLinearizable: threads that call concurrently see the results of some order of
// their calls, in which no call comes before one that had ended when it began. So no charge is lost
// or counted twice, and no decision comes from a state that never existed.
func TestLimitersAreLinearizable(t *testing.T) {
	for name, c := range map[string]struct {
		keys  []string
		verbs []verb
		open  func(*sharedClock) (subject, error)
	}{
		"Limiter":           {[]string{""}, linearVerbs, openSingle},
		"Limiter,lock-free": {[]string{""}, []verb{take, take, take, peek}, openSingle},
		"keyed": {[]string{"a", "b", "c"}, linearVerbs, func(clock *sharedClock) (subject, error) {
			k, err := keyed.New[string](linearBuckets[0], keyed.Options{MaxKeys: 8, Clock: clock.read, Timers: noTimers})
			return ofKeys{k}, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			checkHistories(t, linearBuckets[0], func(seed uint64) []porcupine.Operation {
				clock := new(sharedClock)
				s, err := c.open(clock)
				if err != nil {
					t.Fatal(err)
				}
				return calls(clock, s, linearBuckets, c.keys, seed, c.verbs)
			})
		})
	}
}

// TestEachLimitIsLinearizable is the same for every other limit, on a limiter: both with the fast
// word and with the lock.
func TestEachLimitIsLinearizable(t *testing.T) {
	for _, limits := range linearOthers {
		t.Run(fmt.Sprintf("%T", limits[0]), func(t *testing.T) {
			checkHistories(t, limits[0], func(seed uint64) []porcupine.Operation {
				clock := new(sharedClock)
				l, err := weir.New(limits[0], weir.WithClock(clock.read), weir.WithTimers(noTimers))
				if err != nil {
					t.Fatal(err)
				}
				return calls(clock, single{l}, limits, []string{""}, seed, linearVerbs)
			})
		})
	}
}

func openSingle(clock *sharedClock) (subject, error) {
	l, err := weir.New(linearBuckets[0], weir.WithClock(clock.read), weir.WithTimers(noTimers))
	return single{l}, err
}
