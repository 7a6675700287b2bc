package pacing_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/overload"
	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/seeds"
)

// TestThrottleFormula: the probability is max(0, (requests - K*accepts) / (requests + 1)), for all
// counts; and none is refused while there are few.
func TestThrottleFormula(t *testing.T) {
	rng := seeds.Of(t.Name())
	now := time.Unix(1000, 0)
	for range 300 {
		var below, drawn int64
		k := []float64{1, 1.1, 1.5, 2, 3}[rng.IntN(5)]
		th := pacing.NewThrottle(pacing.ThrottleOptions{K: k, Now: func() time.Time { return now }, Draw: func(n int64) int64 {
			below = n
			return drawn
		}})
		requests, accepts := rng.Int64N(1000)+1, int64(0)
		for range requests {
			accepted := rng.IntN(3) == 0
			if accepted {
				accepts++
			}
			th.Done(accepted)
		}
		excess := float64(requests) - k*float64(accepts)
		if requests < pacing.DefaultLeast || excess <= 0 {
			if ok, _, _ := th.Admit(); !ok || th.Throttling() {
				t.Fatalf("K %v, %d of %d accepted: refused", k, accepts, requests)
			}
			continue
		}
		// the largest draw that is refused, and the one after it
		limit := int64(100*excess + 0.5)
		drawn = limit
		if ok, _, _ := th.Admit(); !ok || below != 100*(requests+1) || !th.Throttling() {
			t.Fatalf("K %v, %d of %d accepted: refused with %d of %d", k, accepts, requests, drawn, below)
		}
		drawn = limit - 1
		if ok, r, a := th.Admit(); ok || r != requests || a != accepts {
			t.Fatalf("K %v, %d of %d accepted: admitted with %d of %d", k, accepts, requests, drawn, below)
		}
		if _, r, _ := th.Admit(); r != requests+1 {
			t.Fatalf("a request that was refused is not counted: %d", r)
		}
	}
}

// TestThrottleForgets: after the window nothing is left, whatever the clock does meanwhile.
func TestThrottleForgets(t *testing.T) {
	now := time.Unix(1000, 0)
	th := pacing.NewThrottle(pacing.ThrottleOptions{Now: func() time.Time { return now }})
	for range 100 {
		th.Done(false)
	}
	if now = now.Add(2*time.Minute - 5*time.Second); !th.Throttling() {
		t.Error("all is forgotten before the window is over")
	}
	if now = now.Add(5 * time.Second); th.Throttling() {
		t.Error("the window is over")
	}
	for range 100 {
		th.Done(false)
	}
	now = now.Add(-time.Hour)
	if !th.Throttling() {
		t.Error("a clock that goes back forgets all")
	}
	if now = now.Add(2 * time.Minute); th.Throttling() {
		t.Error("what was counted before the clock went back lasts longer than a window")
	}
	if now = now.Add(1000 * time.Hour); th.Throttling() {
		t.Error("after a long time")
	}
}

// TestThrottleOfManyFailures: while a server accepts nothing, hardly a request is sent; when it
// accepts all again, nothing is refused after a window.
func TestThrottleOfManyFailures(t *testing.T) {
	rng := seeds.Of(t.Name())
	now := time.Unix(1000, 0)
	th := pacing.NewThrottle(pacing.ThrottleOptions{Now: func() time.Time { return now }, Draw: rng.Int64N})
	run := func(d time.Duration, accepted bool) (sent int) {
		for end := now.Add(d); now.Before(end); now = now.Add(10 * time.Millisecond) {
			if ok, _, _ := th.Admit(); ok {
				sent++
				th.Done(accepted)
			}
		}
		return sent
	}
	if sent := run(time.Minute, true); sent != 6000 {
		t.Errorf("%d of 6000 requests are sent to a server that accepts all", sent)
	}
	run(4*time.Minute, false)
	if sent := run(time.Minute, false); sent < 50 || sent > 70 {
		t.Errorf("%d of 6000 requests are sent to a server that accepts none, want one each second", sent)
	}
	run(15*time.Second, true)
	if sent := run(10*time.Minute, true); sent != 60000 {
		t.Errorf("%d of 60000 requests are sent when an outage has been over for 15s", sent)
	}
}

// TestThrottleProbesAfterAStepBack: a clock that goes back by an hour during an outage does not end the
// requests that are always sent, of which there is one each second.
func TestThrottleProbesAfterAStepBack(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	never := func(int64) int64 { return 0 } // draws that refuse whatever may be refused
	th := pacing.NewThrottle(pacing.ThrottleOptions{Now: func() time.Time { return now }, Draw: never})
	sent := 0
	run := func() {
		sent = 0
		for range 6000 {
			if ok, _, _ := th.Admit(); ok {
				sent++
				th.Done(false)
			}
			now = now.Add(10 * time.Millisecond)
		}
	}
	run()
	now = now.Add(-time.Hour)
	if run(); sent < 50 || sent > 70 {
		t.Errorf("%d requests are sent in the minute after the clock went back, want one each second", sent)
	}
}

// TestThrottleOfFewRequests: a client that sends one request a minute is not refused for minutes
// because one has failed, and neither is one to a server that accepts three of five.
func TestThrottleOfFewRequests(t *testing.T) {
	rng := seeds.Of(t.Name())
	now := time.Unix(1000, 0)
	th := pacing.NewThrottle(pacing.ThrottleOptions{Now: func() time.Time { return now }, Draw: rng.Int64N})
	for range 100 {
		if ok, _, _ := th.Admit(); !ok {
			t.Fatal("refused")
		}
		th.Done(false)
		now = now.Add(time.Minute)
	}
	th = pacing.NewThrottle(pacing.ThrottleOptions{Now: func() time.Time { return now }, Draw: rng.Int64N})
	for i := range 1000 {
		if ok, requests, accepts := th.Admit(); !ok {
			t.Fatalf("refused after %d requests, of which %d were accepted", requests, accepts)
		}
		th.Done(i%5 < 3)
		now = now.Add(time.Second)
	}
}

// TestThrottleUnderOverload: a server gets three times what it can do, and works on requests that
// their clients have given up. Without a throttle hardly any is served in time. With K 2 half of what is
// sent is too much, and so about half of what is possible is served.
func TestThrottleUnderOverload(t *testing.T) {
	rng := seeds.Of(t.Name())
	for _, load := range []float64{0.7, 3} {
		served := map[bool]float64{}
		for _, throttled := range []bool{false, true} {
			sim := overload.New(overload.Scenario{
				For: 6 * time.Minute, Seed: rng.Uint64(), Work: overload.Exponential(100 * time.Millisecond), Abandon: time.Second,
				At: func(time.Duration) overload.Service { return overload.Service{Workers: 20, Rate: load * 200} },
			})
			th := pacing.NewThrottle(pacing.ThrottleOptions{
				Now: func() time.Time { return time.Unix(0, sim.Now()) }, Draw: rand.New(rand.NewPCG(rng.Uint64(), 1)).Int64N,
			})
			bins := sim.Run(overload.Limiter{Limit: func() int64 { return 0 }, Enter: func() (func(weir.Outcome), bool) {
				if ok, _, _ := th.Admit(); throttled && !ok {
					return nil, false
				}
				return func(o weir.Outcome) { th.Done(o == weir.OK) }, true
			}})
			got := overload.Between(bins, 3*time.Minute, 6*time.Minute)
			served[throttled] = float64(got.Good) / min(180*200, float64(got.Offered))
		}
		t.Logf("load %v: %.2f of what is possible is served without a throttle, %.2f with it", load, served[false], served[true])
		switch {
		case load < 1 && (served[false] < 0.99 || served[true] < 0.99):
			t.Error("a service that is not overloaded is throttled")
		case load > 1 && (served[false] > 0.02 || served[true] < 0.4):
			t.Error("the throttle does not help")
		}
	}
}

// TestTable: a table keeps the keys that were used last.
func TestTable(t *testing.T) {
	n := 0
	table := pacing.NewTable(3, func() *int { n++; made := n; return &made })
	for i := range 5 {
		table.Of("a")
		table.Of(strconv.Itoa(i))
	}
	if *table.Of("a") != 1 || *table.Of("4") != 6 || table.Len() != 3 || n != 6 {
		t.Errorf("%d are kept of %d", table.Len(), n)
	}
	if table.Look("0") != nil || *table.Look("a") != 1 {
		t.Error("a look makes an entry, or finds none")
	}
	if *table.Of("0") != 7 {
		t.Error("what was used longest ago is kept")
	}
}

// TestThrottleAgreesWithFailsafe has the numbers of the tests of failsafe-go's adaptive throttler, whose threshold of
// 90 % successes is a K of 1.11: which share is refused.
func TestThrottleAgreesWithFailsafe(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		requests, accepts int64
		least, most       float64
	}{
		{100, 95, 0, 0},
		{120, 90, 20.0/121 - 0.002, 20.0/121 + 0.002},
		{200, 50, 0.7, 0.8},
		{100, 0, 100.0 / 101, 100.0 / 101}, // failsafe-go refuses 90 % at most
	} {
		var below, refused int64
		th := pacing.NewThrottle(pacing.ThrottleOptions{K: 1 / 0.9, Now: func() time.Time { return now }, Draw: func(n int64) int64 {
			below = n
			return refused
		}})
		for i := range c.requests {
			th.Done(i < c.accepts)
		}
		// the smallest draw that is not refused
		low, high := int64(0), 100*(c.requests+1)
		for low < high {
			refused = (low + high) / 2
			if ok, r, _ := th.Admit(); ok {
				high = refused
			} else if low = refused + 1; r != c.requests {
				t.Fatal("what is refused here counts")
			} else {
				th = pacing.NewThrottle(pacing.ThrottleOptions{K: 1 / 0.9, Now: func() time.Time { return now }, Draw: func(n int64) int64 {
					below = n
					return refused
				}})
				for i := range c.requests {
					th.Done(i < c.accepts)
				}
			}
		}
		share := 0.0
		if below > 0 {
			share = float64(low) / float64(below)
		}
		if share < c.least || share > c.most {
			t.Errorf("%d of %d accepted: %.3f are refused, want %.3f to %.3f", c.accepts, c.requests, share, c.least, c.most)
		}
	}
}
