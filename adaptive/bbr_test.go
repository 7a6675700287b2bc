package adaptive_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
)

const millisecond = time.Millisecond

// A machine has the signals that a test sets.
type machine struct{ levels map[signals.Signal]float64 }

func (m *machine) Reading() *signals.Reading {
	r := &signals.Reading{}
	for s, level := range m.levels {
		r.Set(s, level, "a test")
	}
	return r
}

func (m *machine) cpu(level float64) { m.levels = map[signals.Signal]float64{signals.CPU: level} }

// A guarded is a limiter with BBR in virtual time.
type guarded struct {
	*adaptive.Limiter
	machine
	t   *testing.T
	now int64
}

func guard(t *testing.T, b adaptive.BBR) *guarded {
	g := &guarded{t: t}
	l, err := adaptive.New(adaptive.Options{Algorithm: b, Signals: g, Clock: func() int64 { return g.now }})
	if err != nil {
		t.Fatal(err)
	}
	g.Limiter = l
	return g
}

// serve serves n requests for a time d: so many at once that each takes the given time, and they
// end evenly.
func (g *guarded) serve(n int, d, latency time.Duration, o weir.Outcome) {
	g.t.Helper()
	type request struct {
		h    adaptive.Hold
		ends int64
	}
	var running []request
	begin := g.now
	finish := func(until int64) {
		for len(running) > 0 && running[0].ends <= until {
			g.now = max(g.now, running[0].ends)
			running[0].h.Done(o)
			running = running[1:]
		}
		g.now = max(g.now, until)
	}
	for i := range n {
		finish(begin + int64(d)*int64(i)/int64(n))
		if h, ok := g.TryEnter(); ok {
			running = append(running, request{h, g.now + int64(latency)})
		}
	}
	finish(begin + int64(d) + int64(latency))
}

// enters returns how many requests find a place, beside none in flight. They are ignored.
func (g *guarded) enters(most int) int {
	var all []adaptive.Hold
	for range most {
		h, ok := g.TryEnter()
		if !ok {
			break
		}
		all = append(all, h)
	}
	for _, h := range all {
		h.Done(weir.Ignore)
	}
	return len(all)
}

// after passes time, at the end of which a request enters and is ignored.
func (g *guarded) after(d time.Duration) {
	g.now += int64(d)
	g.enters(1)
}

// TestBBRNumbers: the limit is the best throughput times the least latency, as Kratos and Sentinel
// have it: with 10,000 requests a second and a latency of 6 ms, a request finds a place while 60
// are in flight. (Kratos' own test has buckets of 200, 300, ... 1000 requests in 100 ms, and
// latencies from 5.5 ms, which it rounds up to 6.)
func TestBBRNumbers(t *testing.T) {
	g := guard(t, adaptive.BBR{Window: time.Second, Buckets: 10})
	g.serve(3000, 300*millisecond, 96*millisecond, weir.OK)
	for i := range 9 {
		g.serve((10-i)*100, 100*millisecond, time.Duration(86-i*10)*millisecond, weir.OK)
	}
	if g.after(time.Second); g.Limit() < 1_000_000 || g.enters(1000) != 1000 || g.Overload() != "" {
		t.Fatalf("without an overload, the limit is %d (%s)", g.Limit(), g.Overload())
	}
	g.cpu(0.8)
	// Kratos: with 50 in flight a request passes, with 80 it does not
	if g.after(time.Second); g.enters(1000) < 55 || g.enters(1000) > 75 || g.Limit() != int64(g.enters(1000)) {
		t.Errorf("%d find a place, and the limit is %d", g.enters(1000), g.Limit())
	}
	if g.Overload() != "cpu 0.8 of 0.8" {
		t.Error(g.Overload())
	}
	// Kratos: with 80 in flight a request does not pass with CPU at 0.7 either, within the second,
	g.cpu(0.7)
	if g.after(900 * millisecond); g.enters(1000) > 75 {
		t.Errorf("in the cool-off, %d find a place", g.enters(1000))
	}
	// and 2 s later it does
	for range 40 {
		g.after(100 * millisecond)
	}
	if g.enters(1000) != 1000 || g.Overload() != "" {
		t.Errorf("when the overload is long gone, %d find a place (%s)", g.enters(1000), g.Overload())
	}
}

// TestBBRLeast: as Sentinel and Kratos have it, two requests find a place however little the
// service has done.
func TestBBRLeast(t *testing.T) {
	g := guard(t, adaptive.BBR{})
	for range 40 {
		g.serve(1, time.Second, millisecond, weir.OK)
	}
	g.cpu(0.9)
	if g.after(time.Second); g.enters(100) != 2 {
		t.Errorf("%d find a place", g.enters(100))
	}
}

// TestBBRFastRequests: requests of 0.2 ms have that latency. Kratos counts in milliseconds, so that
// the least is 1 ms and the limit five times as high.
func TestBBRFastRequests(t *testing.T) {
	g := guard(t, adaptive.BBR{})
	g.serve(100_000, time.Second, 200*time.Microsecond, weir.OK)
	g.cpu(1)
	if g.after(time.Second); g.Limit() < 20 || g.Limit() > 22 {
		t.Errorf("100,000 requests a second of 0.2 ms, and the limit is %d", g.Limit())
	}
}

// TestBBRIdle: what a service did while few requests came is not what it can do. Kratos forgets the
// best after 10 s, and lets two in flight then.
func TestBBRIdle(t *testing.T) {
	g := guard(t, adaptive.BBR{})
	g.serve(5000, 5*time.Second, 50*millisecond, weir.OK)
	g.now += int64(time.Hour)
	g.serve(30, 30*time.Second, 50*millisecond, weir.OK)
	g.cpu(0.95)
	if g.after(time.Second); g.Limit() < 48 || g.Limit() > 56 {
		t.Errorf("1000 requests a second of 50 ms, then few, and the limit is %d", g.Limit())
	}
}

// TestBBRNothingKnown: before anything was measured there is no limit that it could be.
func TestBBRNothingKnown(t *testing.T) {
	g := guard(t, adaptive.BBR{})
	g.cpu(1)
	for range 20 {
		g.after(time.Second)
	}
	if g.enters(1000) != 1000 || g.Overload() != "" {
		t.Errorf("%d find a place (%s)", g.enters(1000), g.Overload())
	}
}

// TestBBRFailures: requests that fail fast are no throughput and have no latency. Kratos counts
// them.
func TestBBRFailures(t *testing.T) {
	for _, o := range []weir.Outcome{weir.Dropped, weir.Ignore} {
		g := guard(t, adaptive.BBR{})
		g.serve(2000, 2*time.Second, 20*millisecond, weir.OK)
		g.serve(50_000, 5*time.Second, millisecond, o)
		g.cpu(1)
		if g.after(time.Second); g.Limit() < 19 || g.Limit() > 24 {
			t.Errorf("%v: the limit is %d", o, g.Limit())
		}
	}
}

// TestBBRHalt: when the machine has stood still, many requests finish at once. That is not what it
// can do.
func TestBBRHalt(t *testing.T) {
	g := guard(t, adaptive.BBR{})
	g.serve(5000, 5*time.Second, 500*millisecond, weir.OK)
	var all []adaptive.Hold
	for range 500 {
		g.now += int64(millisecond)
		h, _ := g.TryEnter()
		all = append(all, h)
	}
	g.now += int64(5 * time.Second)
	for _, h := range all {
		h.Done(weir.OK)
	}
	g.serve(1000, time.Second, 500*millisecond, weir.OK)
	g.cpu(1)
	if g.after(time.Second); g.Limit() < 480 || g.Limit() > 600 {
		t.Errorf("1000 requests a second of 500 ms, and the limit is %d", g.Limit())
	}
}

// TestBBRClock: a clock that goes back, against its contract, or jumps does not stop it.
func TestBBRClock(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour, -300 * millisecond} {
		g := guard(t, adaptive.BBR{})
		g.now = int64(2 * time.Hour)
		g.serve(5000, 5*time.Second, 50*millisecond, weir.OK)
		g.now += int64(step)
		g.serve(1000, time.Second, 50*millisecond, weir.OK)
		g.cpu(1)
		if g.after(time.Second); g.Limit() < 48 || g.Limit() > 56 {
			t.Errorf("%v: the limit is %d", step, g.Limit())
		}
		g.now += int64(step)
		g.cpu(0)
		for range 50 {
			g.after(100 * millisecond)
		}
		if g.Overload() != "" {
			t.Errorf("%v: the limit of %d never ends (%s)", step, g.Limit(), g.Overload())
		}
	}
}

// TestBBRFlapping: a signal that falls for a moment does not lift the limit, however long the
// overload has lasted. Kratos counts its second from the first refusal.
func TestBBRFlapping(t *testing.T) {
	g := guard(t, adaptive.BBR{})
	g.serve(2000, 2*time.Second, 20*millisecond, weir.OK)
	most := 0
	for i := range 60 {
		if g.cpu(0.9); i%10 == 9 {
			g.cpu(0.7)
		}
		g.after(100 * millisecond)
		if n := g.enters(1000); i > 0 {
			most = max(most, n)
		}
	}
	if most > 25 {
		t.Errorf("%d find a place", most)
	}
	// and when it is gone, while all that is allowed is in use, the limit rises in steps
	g.cpu(0.7)
	for before := 0; g.Overload() != ""; {
		g.after(100 * millisecond)
		n := g.enters(1000)
		if before > 0 && n < 1000 && n > before*11/10+3 {
			t.Fatalf("the limit rises from %d to %d at once", before, n)
		}
		if before = n; n == 1000 {
			break
		}
	}
}

// TestBBRStuck: the limit holds for new requests, and ends, also while no request finishes.
func TestBBRStuck(t *testing.T) {
	g := guard(t, adaptive.BBR{})
	g.serve(2000, 2*time.Second, 20*millisecond, weir.OK)
	for range 100 {
		if _, ok := g.TryEnter(); !ok {
			t.Fatal("refused without an overload")
		}
	}
	g.cpu(0.9)
	g.now += int64(200 * millisecond)
	if _, ok := g.TryEnter(); ok {
		_, ok = g.TryEnter()
		if ok {
			t.Errorf("with %d in flight, one more finds a place: the limit is %d", g.InFlight(), g.Limit())
		}
	}
	g.cpu(0.1)
	for range 100 {
		g.now += int64(200 * millisecond)
		if h, ok := g.TryEnter(); ok {
			h.Done(weir.Ignore)
		}
	}
	if h, ok := g.TryEnter(); !ok {
		t.Errorf("20 s after the overload, the limit is %d", g.Limit())
	} else {
		h.Done(weir.Ignore)
	}
}

func TestBBRParameters(t *testing.T) {
	for field, b := range map[string]adaptive.BBR{
		"Window":     {Window: -1},
		"Buckets":    {Buckets: 1},
		"CoolOff":    {CoolOff: -1},
		"Thresholds": {Thresholds: signals.Thresholds{CPU: 80}},
	} {
		_, err := adaptive.New(adaptive.Options{Algorithm: b, Signals: &machine{}})
		if err == nil || !strings.Contains(err.Error(), "adaptive.BBR") || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := adaptive.New(adaptive.Options{Algorithm: adaptive.BBR{}}); err == nil || !strings.Contains(err.Error(), "Options.Signals") {
		t.Errorf("without signals: %v", err)
	}
}

// TestBBRConcurrent: many callers at once, while the overload comes and goes. In the end nothing is
// in flight, and each request has one outcome.
func TestBBRConcurrent(t *testing.T) {
	var overloaded atomic.Bool
	l, err := adaptive.New(adaptive.Options{
		Algorithm: adaptive.BBR{Window: 100 * millisecond, CoolOff: 2 * millisecond},
		Signals:   source(func() *signals.Reading { return cpu(overloaded.Load()) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	var done, refused atomic.Uint64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20_000 {
				if overloaded.Store(n/1000%2 == i%2); l.Do(t.Context(), func(context.Context) error { runtime.Gosched(); return nil }) == nil {
					done.Add(1)
				} else {
					refused.Add(1)
				}
				_ = l.Overload()
			}
		})
	}
	wg.Wait()
	if o := l.Outcomes(); l.InFlight() != 0 || o.OK != done.Load() || o.Refused != refused.Load() || o.OK+o.Refused != 160_000 {
		t.Errorf("%d in flight, %+v, %d done, %d refused", l.InFlight(), o, done.Load(), refused.Load())
	}
}

type source func() *signals.Reading

func (s source) Reading() *signals.Reading { return s() }

func cpu(overloaded bool) *signals.Reading {
	r := &signals.Reading{}
	r.Set(signals.CPU, 0.5, "a test")
	if overloaded {
		r.Set(signals.CPU, 0.9, "a test")
	}
	return r
}
