package pacing_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// latency is how long a request takes in these tests.
const latency = time.Millisecond

// call sends a request as soon as the gate lets it, and returns whether it was admitted.
func call(g *pacing.Gate, admits func() bool) bool {
	for {
		p, wait := g.Enter("a")
		if p == nil {
			elapse(wait)
			continue
		}
		elapse(latency)
		ok := admits()
		p.Done(pacing.Report{Refused: !ok, Limit: !ok})
		return ok
	}
}

// calls sends one request after the other for a time, and counts them.
func calls(g *pacing.Gate, d time.Duration, admits func() bool) (admitted, refused float64) {
	for start := time.Now(); time.Since(start) < d; {
		if call(g, admits) {
			admitted++
		} else {
			refused++
		}
	}
	return admitted, refused
}

// hidden is a server with a limit that it says nothing about.
func hidden(t *testing.T, limit weir.Limit) *weir.Limiter {
	t.Helper()
	l, err := weir.New(limit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLearnedRate: from refusals alone, a gate learns to use three quarters of a limit and more, with
// fewer than 3 refused requests of 1000. Pauses are drawn at random, so the bounds are wide:
// proof/transport measures what is reached.
func TestLearnedRate(t *testing.T) {
	raced.Skip(t)
	for _, limit := range []weir.Limit{
		weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 100},
		weir.TokenBucket{Rate: weir.PerSecond(300), Burst: 20},
		weir.FixedWindow{Limit: 100, Window: time.Second},
		weir.FixedWindow{Limit: 600, Window: 10 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, server := pacing.NewGate(pacing.GateOptions{}), hidden(t, limit)
			calls(g, 4*time.Minute, server.Allow)
			const measured = 6 * time.Minute
			start := time.Now()
			admitted, refused := calls(g, measured, server.Allow)
			rate := 100.
			switch l := limit.(type) {
			case weir.TokenBucket:
				rate = float64(l.Rate.N)
			case weir.FixedWindow:
				rate = float64(l.Limit) / l.Window.Seconds()
			}
			most := rate * time.Since(start).Seconds()
			if admitted < .75*most || refused > .003*(admitted+refused) {
				t.Errorf("%v: %.0f of %.0f, %.0f refused", limit, admitted, most, refused)
			}
		})
	}
}

// TestLearnedRateFollows: a limit that is lowered or raised is found again. A rate grows by requests, so one
// that is thirty times higher is found after 19 to 22 minutes.
func TestLearnedRateFollows(t *testing.T) {
	raced.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{})
		for _, rate := range []int64{300, 10, 300} {
			server := hidden(t, weir.TokenBucket{Rate: weir.PerSecond(rate), Burst: rate})
			calls(g, 30*time.Minute, server.Allow)
			admitted, refused := calls(g, time.Minute, server.Allow)
			if most := float64(60 * rate); admitted < .5*most || refused > .005*most {
				t.Errorf("%d/s: %.0f of %.0f, %.0f refused", rate, admitted, most, refused)
			}
		}
	})
}

// TestRefusalsWithoutARate: if the server refuses every fiftieth request whatever the rate, requests
// are not held back more and more for ever.
func TestRefusalsWithoutARate(t *testing.T) {
	raced.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		rng := seeds.Of(t.Name())
		admits := func() bool { return rng.IntN(50) > 0 }
		without, _ := calls(pacing.NewGate(pacing.GateOptions{NoRate: true}), time.Hour, admits)
		with, _ := calls(pacing.NewGate(pacing.GateOptions{}), time.Hour, admits)
		if with < without/2 {
			t.Errorf("%.0f requests in an hour, %.0f without a learned rate", with, without)
		}
	})
}

// TestRefusalsThatDependOnTheRateAfterAll: a gate that has taken refusals for independent of the rate
// learns a rate again when more are refused without one. Of four clients with one limit, one could take the
// refusals that the others caused for that, and had up to a quarter of all requests refused for ten minutes.
func TestRefusalsThatDependOnTheRateAfterAll(t *testing.T) {
	raced.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{})
		n := 0
		admits := func() bool { n++; return n%50 > 0 }
		for start := time.Now(); ; { // until no rate holds back requests
			for call(g, admits) {
			}
			if n > 20*50 && quick(g, admits) {
				break
			}
			if time.Since(start) > 10*time.Hour {
				t.Fatal("a rate is kept that does not matter")
			}
		}
		server := hidden(t, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10})
		admitted, refused := calls(g, 5*time.Minute, server.Allow)
		if refused > .03*admitted || admitted < 2000 {
			t.Errorf("%.0f are admitted and %.0f refused", admitted, refused)
		}
	})
}

// quick reports whether some requests go one after the other, without a wait.
func quick(g *pacing.Gate, admits func() bool) bool {
	call(g, admits) // after the pause
	start := time.Now()
	for range 20 {
		call(g, admits)
	}
	return time.Since(start) == 20*latency
}

// TestLearnedRateIsForgotten: a rate that holds back no request is forgotten, and with it the key. It
// lets a burst go at once after a rest.
func TestLearnedRateIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, server := pacing.NewGate(pacing.GateOptions{}), hidden(t, weir.TokenBucket{Rate: weir.PerSecond(20), Burst: 40})
		calls(g, time.Minute, server.Allow)
		if turn := g.Turn("a", 100); turn < 3*time.Second || turn > 8*time.Second {
			t.Errorf("100 requests take %v", turn)
		}
		elapse(time.Minute)
		start := time.Now()
		for range 10 {
			if !call(g, server.Allow) {
				t.Error("refused after a rest")
			}
		}
		if took := time.Since(start); took > 10*latency {
			t.Errorf("10 requests took %v after a rest", took)
		}
		elapse(11 * time.Minute)
		if call(g, server.Allow); g.Len() != 0 || g.Turn("a", 100) != 0 {
			t.Errorf("%d keys are kept", g.Len())
		}
	})
}

// TestFieldsComeBeforeTheRate: no rate is learned while the server says what remains.
func TestFieldsComeBeforeTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, server := pacing.NewGate(pacing.GateOptions{}), hidden(t, weir.TokenBucket{Rate: weir.PerSecond(20), Burst: 40})
		calls(g, time.Minute, server.Allow)
		if g.Turn("a", 100) == 0 {
			t.Fatal("no rate is learned")
		}
		for p, wait := g.Enter("a"); ; p, wait = g.Enter("a") {
			if p != nil {
				p.Done(pacing.Report{Quotas: []pacing.Quota{{Name: "q", Limit: 100, Remaining: 100, Reset: time.Second}}})
				break
			}
			elapse(wait)
		}
		if turn := g.Turn("a", 100); turn != 0 {
			t.Errorf("%v", turn)
		}
	})
}
