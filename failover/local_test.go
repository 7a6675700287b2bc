package failover

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// whileOut runs a test in a bubble, with a store that is unavailable and a Store whose limits all
// fall back to Local.
func whileOut(t *testing.T, o Options, test func(t *testing.T, s *Store, f *fake)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		f := newFake()
		if o.OnFailure = Local; o.Nodes == 0 {
			o.Nodes = 2
		}
		s := open(t, f, o)
		breakIt(t, s, f)
		test(t, s, f)
	})
}

// TestALocalShare: it starts empty, refills at the share's rate, and is kept between outages.
func TestALocalShare(t *testing.T) {
	whileOut(t, Options{}, func(t *testing.T, s *Store, f *fake) {
		if d := take(t, s, "a", 1); d.Allowed || d.Source != weir.SourceShare || d.Limit != 10 || d.RetryAfter != 200*time.Millisecond || d.By != "api" {
			t.Errorf("at once: %+v", d)
		}
		wait(time.Second)
		for _, key := range []string{"a", "first seen now"} { // both have what refilled since the outage began
			if d := take(t, s, key, 3); !d.Allowed || d.Remaining != 2 {
				t.Errorf("%s after a second: %+v", key, d)
			}
		}
		if d := take(t, s, "a", 11); d.RetryAfter != weir.Never {
			t.Errorf("more than the share: %+v", d)
		}
		wait(time.Minute)
		if d := take(t, s, "a", 10); !d.Allowed {
			t.Errorf("after a minute: %+v", d)
		}
		mend(t, s, f)
		breakIt(t, s, f)
		if d := take(t, s, "a", 1); d.Allowed { // used, and emptied
			t.Errorf("in the next outage: %+v", d)
		}
		if d := take(t, s, "another", 1); d.Allowed {
			t.Errorf("in the next outage: %+v", d)
		}
		wait(400 * time.Millisecond)
		if d := take(t, s, "another", 2); !d.Allowed || d.Remaining != 0 {
			t.Errorf("later: %+v", d)
		}
	})
}

// TestUsedTokensSurviveOutages: tokens used in one outage count in the next.
func TestUsedTokensSurviveOutages(t *testing.T) {
	whileOut(t, Options{}, func(t *testing.T, s *Store, f *fake) {
		day := weir.FixedWindow{Limit: 1000, Window: 1000 * time.Hour}
		count := func() (n int) {
			for do(t, s, weir.Charge{Name: "quota", Key: "a", Limit: day, Cost: 1}).Allowed {
				n++
			}
			return n
		}
		first := count()
		if first == 0 {
			t.Fatal("nothing was left of the window")
		}
		for range 3 {
			mend(t, s, f)
			breakIt(t, s, f)
			if n := count(); n != 0 {
				t.Errorf("%d, and then %d more", first, n)
			}
		}
	})
}

func TestStartFull(t *testing.T) {
	whileOut(t, Options{StartFull: true}, func(t *testing.T, s *Store, f *fake) {
		if d := take(t, s, "a", 10); !d.Allowed {
			t.Errorf("%+v", d)
		}
		mend(t, s, f)
		breakIt(t, s, f)
		if d := take(t, s, "a", 10); d.Allowed {
			t.Errorf("the next outage gives the burst again: %+v", d)
		}
	})
}

// TestAnOutageBeginsWithTheFirstFailedCall: the calls that fail before the breaker opens find an
// empty share, which refills from then on. When the breaker opens, the share is not emptied again.
func TestAnOutageBeginsWithTheFirstFailedCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Local, Nodes: 2})
		take(t, s, "a", 1)
		f.set(down)
		for range 2 {
			if d := take(t, s, "a", 1); d.Allowed || d.Source != weir.SourceShare || d.RetryAfter != 200*time.Millisecond {
				t.Errorf("the first failed calls: %+v", d)
			}
		}
		wait(time.Second)
		if d := take(t, s, "a", 2); !d.Allowed || d.Remaining != 3 {
			t.Errorf("a second later: %+v", d)
		}
		for s.State() == Closed {
			take(t, s, "another", 0)
		}
		if d := take(t, s, "a", 3); !d.Allowed || d.Remaining != 0 {
			t.Errorf("the breaker has opened: %+v", d)
		}
	})
}

// TestAnOutageThatOpensNoBreaker: failures within a second of each other are one outage, and
// callers can spend what refills in it. A failure after a second without failures begins another
// outage, with an empty share.
func TestAnOutageThatOpensNoBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Local, Nodes: 2})
		fails := func() weir.Decision {
			f.set(down)
			defer f.set(nil)
			return take(t, s, "a", 1)
		}
		answers := func() {
			for range 3 {
				take(t, s, "b", 0)
			}
		}
		if d := fails(); d.Allowed {
			t.Errorf("the first one: %+v", d)
		}
		for range 10 { // 5 tokens per second refill
			answers()
			wait(200 * time.Millisecond)
			if d := fails(); !d.Allowed || d.Remaining != 0 {
				t.Errorf("200 ms later: %+v", d)
			}
		}
		answers()
		wait(time.Minute)
		if d := fails(); d.Allowed {
			t.Errorf("after a minute without failures: %+v", d)
		}
		for range 2 { // without a response in between it is the same outage, however long it lasts
			wait(time.Minute)
			if f.set(down); !take(t, s, "a", 10).Allowed {
				t.Error("a minute later, without an answer in between, the share is not full")
			}
		}
		if s.State() != Closed {
			t.Errorf("the breaker is %v", s.State())
		}
		// Calls succeeded since the outage began, so the breaker's opening begins another one.
		answers2 := func() { f.set(nil); take(t, s, "b", 0) }
		answers2()
		wait(500 * time.Millisecond)
		breakIt(t, s, f)
		if d := take(t, s, "c", 1); d.Allowed {
			t.Errorf("a key that saved up before the breaker opened: %+v", d)
		}
	})
}

// TestAFallbackThatIsStillDeciding: a fallback that decides while the breaker closes does not use a
// full share.
func TestAFallbackThatIsStillDeciding(t *testing.T) {
	whileOut(t, Options{}, func(t *testing.T, s *Store, f *fake) {
		mend(t, s, f)
		batch, out := []weir.Charge{{Name: "api", Key: "a", Limit: perSecond, Cost: 10}}, make([]weir.Decision, 1)
		if err := s.decide(batch, out, true, nil); err != nil || out[0].Allowed {
			t.Errorf("%+v %v", out[0], err)
		}
	})
}

func TestLocalVerbs(t *testing.T) {
	whileOut(t, Options{}, func(t *testing.T, s *Store, f *fake) {
		wait(time.Minute)
		ask := func(c weir.Charge) (weir.Charge, weir.Decision) {
			t.Helper()
			c.Name, c.Key, c.Limit = "api", "a", perSecond
			batch, out := []weir.Charge{c}, make([]weir.Decision, 1)
			if err := s.Do(t.Context(), batch, out); err != nil {
				t.Fatal(err)
			}
			return batch[0], out[0]
		}
		if _, d := ask(weir.Charge{Op: weir.OpPeek, Cost: 10}); !d.Allowed || d.Remaining != 10 {
			t.Errorf("peek: %+v", d)
		}
		some, d := ask(weir.Charge{Op: weir.OpTakeSome, Cost: 100})
		if !d.Allowed || some.Taken != 10 || some.Receipt == "" {
			t.Errorf("take some: %+v %+v", some, d)
		}
		if c, d := ask(weir.Charge{Op: weir.OpTakeSome, Cost: 100}); d.Allowed || c.Taken != 0 || d.RetryAfter != 200*time.Millisecond {
			t.Errorf("take some of nothing: %+v %+v", c, d)
		}
		if _, d := ask(weir.Charge{Op: weir.OpSettle, Receipt: some.Receipt, Cost: 2}); d.Remaining != 8 {
			t.Errorf("settle: %+v", d)
		}
		kept, d := ask(weir.Charge{Cost: 8, Keep: true})
		if !d.Allowed || kept.Receipt == "" {
			t.Errorf("take and keep: %+v %+v", kept, d)
		}
		if _, d := ask(weir.Charge{Op: weir.OpReserve, Cost: 1, Within: 100 * time.Millisecond}); d.Allowed {
			t.Errorf("reserve within too little: %+v", d)
		}
		ahead, d := ask(weir.Charge{Op: weir.OpReserve, Cost: 1, Within: -1})
		if !d.Allowed || ahead.Delay != 200*time.Millisecond {
			t.Errorf("reserve: %+v %+v", ahead, d)
		}
		// The store is back: local charges are settled locally, also in one batch with others.
		mend(t, s, f)
		batch := []weir.Charge{
			{Name: "api", Key: "a", Limit: perSecond, Cost: 1},
			{Name: "api", Key: "a", Limit: perSecond, Op: weir.OpSettle, Receipt: kept.Receipt},
			{Name: "api", Key: "a", Limit: perSecond, Op: weir.OpSettle, Receipt: "store-1", Cost: 7},
			{Name: "api", Key: "a", Limit: perSecond, Op: weir.OpSettle, Receipt: kept.Receipt},
		}
		out := make([]weir.Decision, len(batch))
		err := s.Do(t.Context(), batch, out)
		if !errors.Is(err, weir.ErrCharge) || batch[3].Err == nil || batch[1].Err != nil {
			t.Errorf("settled twice: %v", err)
		}
		if out[0].Source != weir.SourceStore || out[1].Source != weir.SourceShare || f.settled["store-1"] != 7 || len(f.settled) != 1 {
			t.Errorf("%+v, settled %v", out, f.settled)
		}
	})
}

func TestReceiptsAreBounded(t *testing.T) {
	whileOut(t, Options{MaxReceipts: 10}, func(t *testing.T, s *Store, f *fake) {
		wait(time.Minute)
		var receipts []weir.Receipt
		for i := range 25 {
			batch := []weir.Charge{{Name: "api", Key: fmt.Sprint(i), Limit: perSecond, Cost: 1, Op: weir.OpReserve}}
			if err := s.Do(t.Context(), batch, make([]weir.Decision, 1)); err != nil {
				t.Fatal(err)
			}
			receipts = append(receipts, batch[0].Receipt)
			if i == 20 { // a gap among the numbers
				do(t, s, weir.Charge{Name: "api", Key: "18", Limit: perSecond, Op: weir.OpSettle, Receipt: receipts[18]})
			}
		}
		if got := s.Stats(); got.Receipts != 10 || got.Evicted != 14 {
			t.Errorf("%+v", got)
		}
		settle := []weir.Charge{{Name: "api", Key: "0", Limit: perSecond, Op: weir.OpSettle, Receipt: receipts[0]}}
		if err := s.Do(t.Context(), settle, make([]weir.Decision, 1)); !errors.Is(err, weir.ErrCharge) {
			t.Error(err)
		}
	})
}

func TestLocalGroups(t *testing.T) {
	whileOut(t, Options{ByName: map[string]OnFailure{"denied": Deny, "allowed": Allow}}, func(t *testing.T, s *Store, _ *fake) {
		wait(time.Minute)
		small := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 4}
		left := func(name string, l weir.Limit) int64 {
			return do(t, s, weir.Charge{Name: name, Key: "a", Limit: l, Op: weir.OpPeek}).Remaining
		}
		group := func(charges ...weir.Charge) ([]weir.Charge, []weir.Decision) {
			t.Helper()
			for i := range charges {
				if charges[i].Key, charges[i].Group = "a", 1; charges[i].Limit == nil {
					charges[i].Limit = perSecond
				}
			}
			out := make([]weir.Decision, len(charges))
			if err := s.Do(t.Context(), charges, out); err != nil {
				t.Fatal(err)
			}
			return charges, out
		}
		_, d := group(weir.Charge{Name: "api", Cost: 3}, weir.Charge{Name: "small", Limit: small, Cost: 3}, weir.Charge{Name: "allowed", Cost: 3})
		if !d[0].Allowed || d[1].Allowed || !d[2].Allowed || left("api", perSecond) != 10 {
			t.Errorf("one refuses: %+v", d)
		}
		c, d := group(weir.Charge{Name: "api", Cost: 3, Keep: true}, weir.Charge{Name: "small", Limit: small, Cost: 2})
		if !d[0].Allowed || !d[1].Allowed || left("api", perSecond) != 7 || left("small", small) != 0 || c[0].Receipt == "" || c[1].Receipt != "" {
			t.Errorf("none refuses: %+v", d)
		}
		do(t, s, weir.Charge{Name: "api", Key: "a", Limit: perSecond, Op: weir.OpSettle, Receipt: c[0].Receipt})
		if left("api", perSecond) != 10 {
			t.Error("what was kept is not given back")
		}
		_, d = group(weir.Charge{Name: "api", Cost: 3}, weir.Charge{Name: "denied", Cost: 1})
		if !d[0].Allowed || d[1].Allowed || d[1].Source != weir.SourceDeny || left("api", perSecond) != 10 {
			t.Errorf("one is denied: %+v", d)
		}
		_, d = group(weir.Charge{Name: "allowed", Cost: 3}, weir.Charge{Name: "allowed", Cost: 1})
		if !d[0].Allowed || !d[1].Allowed {
			t.Errorf("all are allowed: %+v", d)
		}
		_, d = group(weir.Charge{Name: "api", Cost: 6}, weir.Charge{Name: "api", Cost: 5})
		if !d[0].Allowed || d[1].Allowed || left("api", perSecond) != 10 {
			t.Errorf("twice the same key, too much: %+v, %d left", d, left("api", perSecond))
		}
		c, d = group(weir.Charge{Name: "api", Cost: 6}, weir.Charge{Name: "api", Cost: 4, Keep: true})
		if !d[0].Allowed || !d[1].Allowed || left("api", perSecond) != 0 || c[1].Receipt == "" {
			t.Errorf("twice the same key: %+v", d)
		}
	})
}

// TestOtherParameters: the limit and the number of nodes may change during an outage, and between
// outages.
func TestOtherParameters(t *testing.T) {
	whileOut(t, Options{}, func(t *testing.T, s *Store, _ *fake) {
		wait(time.Minute)
		if d := take(t, s, "a", 4); d.Remaining != 6 {
			t.Errorf("%+v", d)
		}
		s.nodes.count.Store(4)
		if d := take(t, s, "a", 0); d.Limit != 5 || d.Remaining != 1 {
			t.Errorf("with 4 nodes: %+v", d)
		}
		d := do(t, s, weir.Charge{Name: "api", Key: "a", Limit: weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 40}})
		if d.Limit != 10 || d.Remaining != 6 {
			t.Errorf("with another burst: %+v", d)
		}
		wrong := []weir.Charge{{Name: "api", Key: "a", Limit: weir.TokenBucket{}}}
		if err := s.Do(t.Context(), wrong, make([]weir.Decision, 1)); err == nil || wrong[0].Err == nil {
			t.Error("a wrong limit")
		}
		wrong[0].Group, wrong[0].Err = 1, nil
		if err := s.Do(t.Context(), wrong, make([]weir.Decision, 1)); err == nil {
			t.Error("a wrong limit in a group")
		}
	})
}

// TestMemoryIsBounded: of keys, of names, and of the marks of keys that were used in the outage.
func TestMemoryIsBounded(t *testing.T) {
	whileOut(t, Options{MaxKeys: 100, Full: keyed.Refuse}, func(t *testing.T, s *Store, _ *fake) {
		for i := range 1000 {
			take(t, s, fmt.Sprint(i), 1)
		}
		r := s.shares.records["api"]
		if seen := r.starts[&s.shards.whole].seen; len(seen) > 100 || r.keys.Len() > 100 || r.keys.Stats().Refused == 0 {
			t.Errorf("%d marks, %d keys, %+v", len(seen), r.keys.Len(), r.keys.Stats())
		}
		var err error
		for i := 0; i < 2*maxNames && err == nil; i++ {
			err = s.Do(t.Context(), []weir.Charge{{Name: fmt.Sprint(i), Limit: perSecond}}, make([]weir.Decision, 1))
		}
		if err == nil || !strings.Contains(err.Error(), "1024") || len(s.shares.records) != maxNames {
			t.Errorf("%d names: %v", len(s.shares.records), err)
		}
	})
}

// TestEveryKindLocally: for each algorithm, an outage begins with nothing saved up, and something
// is admitted in the end.
func TestEveryKindLocally(t *testing.T) {
	whileOut(t, Options{}, func(t *testing.T, s *Store, f *fake) {
		kinds := []weir.Limit{
			perSecond,
			weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 20, DelayAfter: 20},
			weir.IntervalBucket{Burst: 20, Refill: 10, Every: time.Second},
			weir.FixedWindow{Limit: 20, Window: time.Second},
			weir.FixedWindow{Limit: 20, Window: time.Second, Align: weir.AlignFirst},
			weir.FixedWindow{Limit: 2000, Align: "day:Europe/Berlin"},
			weir.SlidingWindow{Limit: 20, Window: time.Second, Slots: 4, SlotLimit: 5},
			weir.SlidingCounter{Limit: 20, Window: time.Second},
			weir.SlidingLog{Limit: 20, Window: time.Second},
			weir.SmoothBursty{Rate: weir.PerSecond(10)},
			weir.WarmUp{Rate: weir.PerSecond(10), Period: time.Second},
			weir.All(perSecond, weir.FixedWindow{Limit: 2000, Align: "day"}),
		}
		admitted := func(i int, key string) (n int64) {
			for {
				d := do(t, s, weir.Charge{Name: fmt.Sprint("kind-", i), Key: key, Limit: kinds[i], Cost: 1})
				if !d.Allowed {
					return n
				}
				n++
			}
		}
		for trip := range 3 {
			for i, l := range kinds {
				p, _ := weir.Prepare(Share(l, 2), time.Nanosecond)
				if n := admitted(i, "a"); n > p.Peek(nil, 0, 0).Limit || n > 5 && (i < 3 || i > 5) { // a window admits what its rate brings in the rest of it
					t.Errorf("%T, outage %d: %d at once", l, trip, n)
				}
			}
			for range 20 {
				wait(250 * time.Millisecond)
				for i, l := range kinds {
					if n := admitted(i, "a"); n > 10 && i != 5 {
						t.Errorf("%T, outage %d: %d in a moment", l, trip, n)
					}
				}
			}
			wait(5 * time.Second)
			for i, l := range kinds {
				if n := admitted(i, "a"); n == 0 && i != 5 {
					t.Errorf("%T, outage %d: nothing in the end", l, trip)
				}
			}
			wait(time.Minute)
			mend(t, s, f)
			wait(time.Minute)
			breakIt(t, s, f)
		}
	})
}

// TestAllVerbsThroughOutages makes all kinds of calls concurrently through several outages, for the race
// detector.
func TestAllVerbsThroughOutages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &beating{fake: newFake(), nodes: 2}
		s := open(t, f, Options{OnFailure: Local, Nodes: 3, Probe: 20 * time.Millisecond, MaxKeys: 50})
		var callers sync.WaitGroup
		for w := range 8 {
			callers.Go(func() {
				for i := range 300 {
					c := weir.Charge{Name: fmt.Sprint("n", i%3), Key: fmt.Sprint(i % 70), Limit: perSecond, Cost: 1, Op: weir.Op(i+w) % 7, Group: 0}
					if c.Op == weir.OpSettle {
						c.Op = weir.OpTake
					}
					batch := []weir.Charge{
						c,
						{Name: "n0", Key: "x", Limit: perSecond, Cost: 1, Group: 3},
						{Name: "n1", Key: "y", Limit: perSecond, Cost: 1, Group: 3, Keep: true},
					}
					_ = s.Do(t.Context(), batch, make([]weir.Decision, 3)) // OpReset is an error
					if batch[2].Receipt != "" {
						batch[2].Op, batch[2].Group, batch[2].Cost = weir.OpSettle, 0, 0
						_ = s.Do(t.Context(), batch[2:], make([]weir.Decision, 1))
					}
					s.Stats()
					<-time.After(time.Millisecond)
				}
			})
		}
		for i := range 6 {
			if f.set(nil); i%2 == 0 {
				f.set(down)
			}
			f.are(1 + i)
			<-time.After(50 * time.Millisecond)
		}
		callers.Wait()
	})
}
