package pacing_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/internal/pacing"
	"github.com/weirflow/weir/internal/seeds"
)

// TestBudget: over any requests in a row, no more retries are made than the burst and the share.
func TestBudget(t *testing.T) {
	rng := seeds.Of(t.Name())
	for range 200 {
		percent, burst := rng.Int64N(100)+1, rng.Int64N(20)+1
		b := pacing.NewBudget(percent, burst, 0)
		var requests int64
		made := []int64{} // the number of requests at each retry
		for range 500 {
			if rng.IntN(2) == 0 {
				b.Request()
				requests++
			} else if b.Retry() {
				made = append(made, requests)
			}
		}
		for i := range made {
			for j := i; j < len(made); j++ {
				if n := int64(j - i + 1); n > burst+(made[j]-made[i])*percent/100+1 {
					t.Fatalf("%d retries within %d requests, of %d %% and burst %d", n, made[j]-made[i], percent, burst)
				}
			}
		}
		if len(made) == 0 {
			t.Fatal("no retry at all")
		}
	}
	for _, b := range []*pacing.Budget{pacing.NewBudget(0, 10, 0), pacing.NewBudget(10, 0, 0), pacing.NewBudget(-1, -1, -1)} {
		if b.Request(); b.Retry() {
			t.Error("a budget without retries allows one")
		}
	}
	if b := pacing.NewBudget(math.MaxInt64, math.MaxInt64, math.MaxInt64); !b.Retry() {
		t.Error("the largest budget allows none")
	}
}

func TestBackoff(t *testing.T) {
	for n := range 100 {
		if d := pacing.Backoff(n, time.Second, time.Minute); d < 0 || d > min(time.Second<<min(n, 10), time.Minute) {
			t.Fatalf("retry %d after %v", n, d)
		}
	}
	if pacing.Backoff(3, 0, time.Minute) != 0 || pacing.Jitter(-1) != 0 {
		t.Error("a wait without a base")
	}
}

// TestGatePauses: a pause ends when the server said, is never longer than the bound, and a shorter
// one does not end a longer one.
func TestGatePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{MaxPause: time.Minute})
		pass, _ := g.Enter("a")
		if pause := pass.Done(pacing.Report{Refused: true, Pause: 10 * time.Second}); pause < 10*time.Second || pause > 11*time.Second {
			t.Fatalf("%v", pause)
		}
		p, left := g.Enter("a")
		if p != nil || left < 10*time.Second || left > 11*time.Second {
			t.Fatalf("wait %v", left)
		}
		if p, _ := g.Enter("b"); p == nil {
			t.Fatal("another key waits")
		}
		g.Pause("a", time.Second)
		if _, wait := g.Enter("a"); wait != left {
			t.Fatalf("the pause became %v", wait)
		}
		g.Pause("a", 10*365*24*time.Hour)
		if _, wait := g.Enter("a"); wait != time.Minute || g.Left("a") != time.Minute {
			t.Fatalf("ten years became %v", wait)
		}
		elapse(time.Minute)
		first, wait := g.Enter("a")
		if first == nil {
			t.Fatalf("after the pause: %v", wait)
		}
		if p, _ := g.Enter("a"); p != nil {
			t.Fatal("two requests go first after the pause")
		}
		changed := g.Changed()
		first.Done(pacing.Report{})
		<-changed
		second, _ := g.Enter("a")
		if other, _ := g.Enter("a"); second == nil || other != nil {
			t.Fatal("after the first response, one may be in flight")
		}
		second.Done(pacing.Report{})
		x, _ := g.Enter("a")
		if y, _ := g.Enter("a"); x == nil || y == nil {
			t.Fatal("after the second response, two may be in flight")
		}
		elapse(20 * time.Second) // without a response: the server is slow, and does not refuse
		for range 100 {
			if p, _ := g.Enter("a"); p == nil {
				t.Fatal("a slow server holds back all others")
			}
		}
	})
}

// TestGuessedPauses: refusals without a time pause for longer and longer, and those of requests that
// were sent before a pause count once.
func TestGuessedPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{})
		var together []*pacing.Pass
		for range 50 {
			p, _ := g.Enter("a")
			together = append(together, p)
		}
		elapse(time.Millisecond)
		pauses := 0
		for _, p := range together {
			if p.Done(pacing.Report{Refused: true}) > 0 {
				pauses++
			}
		}
		if pauses != 1 {
			t.Errorf("%d pauses", pauses)
		}
		for n, most := 1, 2*time.Second; n < 8; n, most = n+1, min(2*most, time.Minute) {
			elapse(g.Left("a") + 1)
			p, wait := g.Enter("a")
			if p == nil {
				t.Fatalf("still %v", wait)
			}
			elapse(time.Millisecond)
			if d := p.Done(pacing.Report{Refused: true}); d < most/2 || d > most {
				t.Errorf("pause %d is %v, want %v to %v", n, d, most/2, most)
			}
		}
	})
}

// TestGateQuotas: no more requests are in flight than remain, whatever order the responses come in,
// and none while nothing remains.
func TestGateQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{})
		said := func(left int64) pacing.Report {
			return pacing.Report{Quotas: []pacing.Quota{{Name: "q", Limit: 10, Remaining: left, Reset: time.Minute}}}
		}
		enter := func(n int) (all []*pacing.Pass) {
			for range n {
				p, _ := g.Enter("a")
				if p == nil {
					t.Fatalf("%d instead of %d", len(all), n)
				}
				all = append(all, p)
			}
			return all
		}
		first := enter(5)
		first[4].Done(said(5))
		first[3].Done(said(4)) // sent before the other, and decided after it
		if p, _ := g.Enter("a"); p == nil {
			t.Fatal("3 in flight and 4 remain: one more may go")
		} else if again, _ := g.Enter("a"); again != nil {
			t.Fatal("4 in flight and 4 remain: none may go")
		} else {
			p.Done(said(0))
		}
		if p, wait := g.Enter("a"); p != nil || wait != time.Minute {
			t.Fatalf("nothing remains: %v", wait)
		}
		for _, p := range first[:3] {
			p.Done(said(0))
		}
		elapse(time.Minute)
		first = enter(1)
		if p, wait := g.Enter("a"); p != nil || wait != time.Second {
			t.Fatal("two requests go first after the reset")
		}
		first[0].Done(said(8))
		enter(8)
		if p, _ := g.Enter("a"); p != nil {
			t.Fatal("more in flight than remain")
		}
	})
}

// TestGradualQuota: of a token bucket that says when it is full, the next token is waited for, and
// not a full bucket.
func TestGradualQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{})
		p, _ := g.Enter("a")
		p.Done(pacing.Report{Quotas: []pacing.Quota{{Limit: 60, Remaining: 0, Reset: time.Minute, Gradual: true}}})
		if p, wait := g.Enter("a"); p != nil || wait != time.Second {
			t.Fatalf("wait %v", wait)
		}
		elapse(3 * time.Second)
		for n := range 4 {
			if p, _ := g.Enter("a"); (p != nil) != (n < 3) {
				t.Fatalf("request %d after three tokens", n)
			}
		}
	})
}

// TestProcessesShareAQuota: each of four processes has requests in flight for half of a quarter of what
// remains, so that they do not use it four times; and a small limit starves none.
func TestProcessesShareAQuota(t *testing.T) {
	g := pacing.NewGate(pacing.GateOptions{Processes: 4})
	say := func(limit, left int64) pacing.Report {
		return pacing.Report{Quotas: []pacing.Quota{{Limit: limit, Remaining: left, Reset: time.Minute}}}
	}
	count := func(limit, left int64) (n int) {
		key := strconv.FormatInt(limit, 10) + "/" + strconv.FormatInt(left, 10)
		p, _ := g.Enter(key)
		p.Done(say(limit, left))
		for p, _ := g.Enter(key); p != nil; p, _ = g.Enter(key) {
			n++
		}
		return n
	}
	for _, c := range []struct {
		limit, left int64
		want        int
	}{{200, 100, 12}, {200, 7, 0}, {3, 3, 1}, {3, 0, 0}, {0, 2, 1}} {
		if n := count(c.limit, c.left); n != c.want {
			t.Errorf("%d of %d remain: %d in flight, want %d", c.left, c.limit, n, c.want)
		}
	}
}

// TestProcessesGoOnAfterReset: each of several processes sends one request after the reset, whatever
// its share of one would be. None did, for three seconds.
func TestProcessesGoOnAfterReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{Processes: 4})
		p, _ := g.Enter("a")
		p.Done(pacing.Report{Quotas: []pacing.Quota{{Limit: 400, Reset: time.Second}}})
		if p, wait := g.Enter("a"); p != nil || wait != time.Second {
			t.Fatalf("nothing remains, but the wait is %v", wait)
		}
		elapse(time.Second)
		if p, wait := g.Enter("a"); p == nil {
			t.Fatalf("after the reset: %v", wait)
		}
	})
}

// TestWholeSeconds: a server that writes the time until its reset in whole seconds, rounded up, names
// a later and later time in each response. The first one of the window counts.
func TestWholeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{})
		for left := int64(9); left >= 0; left-- {
			p, _ := g.Enter("a")
			p.Done(pacing.Report{Quotas: []pacing.Quota{{Limit: 10, Remaining: left, Reset: time.Second}}})
			elapse(50 * time.Millisecond)
		}
		if p, wait := g.Enter("a"); p != nil || wait != 500*time.Millisecond {
			t.Fatalf("wait %v", wait)
		}
	})
}

// TestManyNames: a server that makes up limits holds requests back for MaxPause at most, and does not
// keep its real ones from being learned later.
func TestManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{MaxPause: time.Minute})
		said := pacing.Report{}
		for i := range 100 {
			said.Quotas = append(said.Quotas, pacing.Quota{Name: strconv.Itoa(i) + strings.Repeat("x", 1<<20), Limit: 5, Reset: time.Hour})
		}
		p, _ := g.Enter("a")
		p.Done(said)
		if p, wait := g.Enter("a"); p != nil || wait != time.Minute {
			t.Fatalf("wait %v", wait)
		}
		elapse(2 * time.Minute)
		p, _ = g.Enter("a")
		p.Done(pacing.Report{Quotas: []pacing.Quota{{Name: "real", Limit: 5, Reset: 7 * time.Second}}})
		if p, wait := g.Enter("a"); p != nil || wait != 7*time.Second {
			t.Fatalf("the real limit is not kept: %v", wait)
		}
	})
}

// TestTokensInFlight: what requests in flight are expected to take of a limit of tokens counts, and
// not how many they are. One that expects more than the limit goes when all of it is there.
func TestTokensInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{})
		p, _, _ := g.EnterTokens("a", 10)
		p.Done(pacing.Report{Quotas: []pacing.Quota{{Tokens: true, Limit: 1000, Remaining: 500, Reset: time.Minute, Gradual: true}}})
		first, _, _ := g.EnterTokens("a", 300)
		if p, wait, _ := g.EnterTokens("a", 300); first == nil || p != nil || wait <= 0 || wait > time.Second {
			t.Fatalf("300 of 500 tokens are in flight: %v, wait %v", first, wait)
		}
		second, _, _ := g.EnterTokens("a", 200)
		if second == nil {
			t.Fatal("200 more do not fit into 500")
		}
		first.Cancel()
		second.Cancel()
		elapse(59 * time.Second)
		if p, _, _ := g.EnterTokens("a", 5000); p != nil {
			t.Fatal("more than the limit goes before all of it is there")
		}
		elapse(time.Second)
		if p, wait, _ := g.EnterTokens("a", 5000); p == nil {
			t.Fatalf("never: %v", wait)
		}
	})
}

// TestGateMemory: keys about which nothing is known take no memory, the number of others is bounded,
// and keys with requests in flight stay.
func TestGateMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pacing.NewGate(pacing.GateOptions{MaxKeys: 100})
		flying, _ := g.Enter("flying")
		for i := range 10_000 {
			p, _ := g.Enter(strconv.Itoa(i))
			if i%2 == 0 {
				p.Done(pacing.Report{})
			} else {
				p.Done(pacing.Report{Refused: true, Pause: time.Duration(i) * time.Millisecond})
			}
			if g.Len() > 101 {
				t.Fatalf("%d keys", g.Len())
			}
		}
		g.Pause("flying", 3*time.Second)
		if flying.Done(pacing.Report{}); g.Left("flying") != 3*time.Second {
			t.Error("a key with a request in flight was forgotten")
		}
		if g.Left("9999") == 0 {
			t.Error("the longest pause was forgotten")
		}
		elapse(time.Hour)
		p, _ := g.Enter("new")
		if p.Done(pacing.Report{}); g.Len() != 0 {
			t.Errorf("%d keys are kept after their pauses", g.Len())
		}
	})
}

// TestGateForAnyReport: whatever a server says, a key is never closed for longer than MaxPause.
func TestGateForAnyReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := seeds.Of(t.Name())
		values := []int64{math.MinInt64, -1, 0, 1, 2, 1000, int64(time.Second), int64(time.Hour), math.MaxInt64}
		number := func() int64 { return values[rng.IntN(len(values))] }
		for range 300 {
			g := pacing.NewGate(pacing.GateOptions{MaxPause: time.Minute, Processes: rng.Int64N(5)})
			var flying []*pacing.Pass
			for range 40 {
				if p, wait := g.Enter("a"); p != nil {
					flying = append(flying, p)
				} else if wait <= 0 || wait > time.Minute {
					t.Fatalf("wait %v", wait)
				}
				if len(flying) > 0 && rng.IntN(2) == 0 {
					i := rng.IntN(len(flying))
					flying[i].Done(pacing.Report{Refused: rng.IntN(2) == 0, Limit: rng.IntN(2) == 0, Pause: time.Duration(number()), Quotas: []pacing.Quota{
						{Name: strconv.Itoa(rng.IntN(12)), Limit: max(number(), 0), Remaining: number(), Reset: time.Duration(number()), Gradual: rng.IntN(2) == 0}}})
					flying = append(flying[:i], flying[i+1:]...)
				}
			}
			for _, p := range flying {
				p.Done(pacing.Report{})
			}
			elapse(2 * time.Minute)
			if p, wait := g.Enter("a"); p == nil {
				t.Fatalf("closed for good: %v", wait)
			}
		}
	})
}

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }
