package adaptive

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// TestEndsWhileGranted: contexts and waits that end at the same moment as places get free lose no place, give none
// twice, and leave nobody in the queue.
func TestEndsWhileGranted(t *testing.T) {
	for _, o := range []Options{
		{Algorithm: fixed(1), Queue: Queue{Length: 50, Wait: 10 * time.Millisecond}},
		{Algorithm: fixed(3), Queue: Queue{Length: 5, Wait: 10 * time.Millisecond, Order: LIFO}},
		{Algorithm: fixed(4), Queue: Queue{Length: 20, Wait: time.Millisecond, Order: AdaptiveLIFO}, Partitions: []Partition{{"a", 0.5}, {"b", 0.25}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			most := l.Limit()
			var in, served, refused, left atomic.Int64
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), 17))
					for range 200 {
						// all times are multiples of a millisecond, so that they fall together
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(4))*time.Millisecond)
						h, err := l.EnterAs(ctx, Request{Partition: []string{"a", "b", ""}[r.IntN(3)], Priority: Priority(r.IntN(4) - 2), User: r.Uint64()})
						switch {
						case err == nil:
							if n := in.Add(1); n > most {
								t.Errorf("%d at once, of %d", n, most)
							}
							served.Add(1)
							time.Sleep(time.Duration(r.IntN(3)) * time.Millisecond)
							in.Add(-1)
							h.Done(weir.Outcome(r.IntN(3)))
							h.Done(weir.OK) // which does nothing
						case ctx.Err() != nil:
							left.Add(1)
						default:
							refused.Add(1)
							time.Sleep(time.Duration(r.IntN(2)) * time.Millisecond)
						}
						cancel()
					}
				})
			}
			wg.Wait()
			s := l.Stats()
			if s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("%+v: %d in flight and %d wait at the end", o, s.InFlight, s.Waiting)
			}
			for _, p := range s.Partitions {
				if p.InFlight != 0 || p.Waiting != 0 {
					t.Errorf("%+v: %+v", o, p)
				}
			}
			if served.Load() == 0 || left.Load()+refused.Load() == 0 {
				t.Errorf("%+v: %d served, %d refused, %d left: the test shows nothing", o, served.Load(), refused.Load(), left.Load())
			}
			for range 10 { // nobody was refused for a while, so chance refuses nobody either, and partitions lend
				time.Sleep(time.Duration(forget + 1))
				if h, ok := l.TryEnter(); ok {
					h.Done(weir.OK)
				}
			}
			var all []Hold
			for range most {
				h, err := l.Enter(t.Context())
				if err != nil {
					t.Fatalf("%+v: after %d places: %v", o, len(all), err)
				}
				all = append(all, h)
			}
			for _, h := range all {
				h.Done(weir.OK)
			}
		})
	}
}

// TestPanicsInTheQueue: a request that waited and then panics gives its place back.
func TestPanicsInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Options{Algorithm: fixed(1), Queue: Queue{Length: 10, Wait: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				defer func() { _ = recover() }()
				_ = l.Do(t.Context(), func(context.Context) error { time.Sleep(time.Millisecond); panic("x") })
			})
		}
		wg.Wait()
		if o := l.Outcomes(); l.InFlight() != 0 || o.Dropped != 5 {
			t.Errorf("%d in flight, %+v", l.InFlight(), o)
		}
	})
}

// TestAMillionInFlight: each request has its place, and all come back.
func TestAMillionInFlight(t *testing.T) {
	const n = 1 << 20
	l, err := New(Options{Algorithm: Knee{Initial: n, Min: n, Max: n}})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]Hold, n)
	var ok bool
	for i := range all {
		if all[i], ok = l.TryEnter(); !ok {
			t.Fatalf("%d: no place", i)
		}
	}
	if _, ok := l.TryEnter(); ok || l.InFlight() != n {
		t.Errorf("%d in flight, and one more: %t", l.InFlight(), ok)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := i; j < n; j += 4 {
				all[j].Done(weir.OK)
				all[j].Done(weir.Dropped)
			}
		})
	}
	wg.Wait()
	if o := l.Outcomes(); l.InFlight() != 0 || o != (Outcomes{OK: n, Refused: 1}) {
		t.Errorf("%d in flight, %+v", l.InFlight(), o)
	}
}

// TestExtremeLatencies: latencies of 0, of years, and clocks that jump leave the limit within its bounds, for each
// algorithm, and the limiter serves and finds its way back.
func TestExtremeLatencies(t *testing.T) {
	for _, a := range []Algorithm{Knee{Max: 100}, AIMD{Min: 1, Max: 100}, Vegas{Max: 100}, Gradient2{Min: 1, Max: 100}} {
		now := int64(0)
		l, err := New(Options{Algorithm: a, Clock: func() int64 { return now }, Draw: func() float64 { return 0.5 }})
		if err != nil {
			t.Fatal(err)
		}
		round := func(took int64, o weir.Outcome) {
			t.Helper()
			var held []Hold
			for {
				h, ok := l.TryEnter()
				if !ok {
					break
				}
				held = append(held, h)
			}
			if len(held) == 0 {
				t.Fatalf("%T: no place at a limit of %d", a, l.Limit())
			}
			now += took
			for _, h := range held {
				h.Done(o)
			}
			if n := l.Limit(); n < 1 || n > 100 || l.InFlight() != 0 {
				t.Fatalf("%T: a limit of %d, %d in flight", a, n, l.InFlight())
			}
		}
		r := rand.New(rand.NewPCG(17, 17))
		for range 3000 {
			took := []int64{0, 1, 1e6, 1e9, 1 << 42, -1e9, -1 << 50, 1 << 50}[r.IntN(8)]
			round(took, weir.Outcome(r.IntN(3)))
		}
		var held []Hold
		for range 30_000 { // one after another, each 10 ms after it came
			for {
				h, ok := l.TryEnter()
				if !ok {
					break
				}
				held = append(held, h)
			}
			now += 10e6 / int64(len(held))
			held[0].Done(weir.OK)
			held = held[1:]
		}
		if n := l.Limit(); n < 20 && !isVegas(a) { // which is far too low now and then
			t.Errorf("%T: the limit is %d after 30,000 requests that went well", a, n)
		}
	}
}

func isVegas(a Algorithm) bool { _, is := a.(Vegas); return is }
