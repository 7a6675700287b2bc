package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/vclock"
)

// explaining has an engine with one limit, on a virtual clock.
type explaining struct {
	t     *testing.T
	clock vclock.Clock
	*Engine
}

func newExplaining(t *testing.T, l weir.Limit) *explaining {
	t.Helper()
	x := &explaining{t: t}
	var err error
	x.Engine, err = New(Policy{
		Limits: []Limit{{Name: "l", Key: []string{"client.ip"}, Limit: l}},
		Routes: []Route{{Match: "/", Limits: []string{"l"}, Respond: Response{Status: 204}}},
	}, Options{Clock: x.clock.Now, Timers: func(d time.Duration, f func()) weir.Timer { return x.clock.AfterFunc(d, f) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

func (x *explaining) explain() *Explanation {
	x.t.Helper()
	got, err := x.Explain(x.t.Context(), Ask{Limit: "l", Key: []string{"192.0.2.1"}, OwnCost: true})
	if err != nil {
		x.t.Fatal(err)
	}
	return got
}

func (x *explaining) request() Verdict {
	return x.Decide(Request{Method: "GET", Path: "/", Client: "192.0.2.1"})
}

// TestExplainTheArithmetic: an explanation has the numbers from which the decision follows.
func TestExplainTheArithmetic(t *testing.T) {
	x := newExplaining(t, weir.TokenBucket{Rate: weir.PerSecond(5), Burst: 10})
	expect := func(text, arithmetic string) {
		t.Helper()
		if got := x.explain(); got.String() != text || got.Arithmetic() != arithmetic {
			t.Errorf("%s\n%s\nwant:\n%s\n%s", got, got.Arithmetic(), text, arithmetic)
		}
	}
	for range 7 {
		x.request()
	}
	expect("allowed: 3 of 10 left (token_bucket burst=10 rate=5/s)",
		"7 of 10 used, so 3 left, and a cost of 1 is admitted: tokens come back one by one, at the rate; all of it is back in 1.4s")
	for range 7 {
		x.request()
	}
	x.clock.Set(1)
	// the time until it is admitted was rounded to the nearest millisecond: a client that came back then could be refused
	expect("refused for another 200ms: 0 of 10 left (token_bucket burst=10 rate=5/s)",
		"10 of 10 used, so 0 left, and a cost of 1 has to wait for 1 more, which takes 200ms: tokens come back one by one, at the rate; all of it is back in 2s")
	x.clock.Set(int64(199600 * time.Microsecond))
	expect("refused for another 1ms: 0 of 10 left (token_bucket burst=10 rate=5/s)",
		"10 of 10 used, so 0 left, and a cost of 1 has to wait for 1 more, which takes 1ms: tokens come back one by one, at the rate; all of it is back in 1.801s")
	if err := x.Override(Override{Limit: "l", Key: []string{"192.0.2.1"}, Ban: true, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	expect("refused: the key is banned for 1h", "")
}

// TestExplainAQueue: for a limit with a queue, an explanation says what the gateway would do: delay a request, until the queue
// is full. It said that the key was refused, with 0 of 11 left, while requests only waited.
func TestExplainAQueue(t *testing.T) {
	for _, l := range []weir.LeakyBucket{{Rate: weir.PerSecond(5), Queue: 10}, {Rate: weir.PerSecond(5), Queue: 10, DelayAfter: 3}, {Rate: weir.PerMinute(7), Queue: 1}, {Rate: weir.PerSecond(3)}} {
		x := newExplaining(t, l)
		delayed, refused := 0, 0
		for range 25 {
			got := x.explain()
			v := x.request() // it is not waited for
			switch v.Outcome {
			case Allow:
				if !got.Answer.Allowed || got.Waits != 0 || !strings.HasPrefix(got.String(), "allowed: ") {
					t.Errorf("%+v: admitted at once, explained as: %s", l, got)
				}
			case Delay:
				delayed++
				if got.Waits != v.Delay || !strings.HasPrefix(got.String(), "delayed: a request waits "+shortest(v.Delay)+" in the queue") || !strings.HasPrefix(got.Arithmetic(), "the queue is ") {
					t.Errorf("%+v: delayed by %v, explained as: %s; %s", l, v.Delay, got, got.Arithmetic())
				}
			case Deny:
				refused++
				if got.Answer.Allowed || got.Waits != 0 || !strings.HasPrefix(got.String(), "refused for another ") {
					t.Errorf("%+v: refused, explained as: %s", l, got)
				}
			}
		}
		if int64(delayed) != l.Queue-l.DelayAfter || refused == 0 {
			t.Errorf("%+v: %d were delayed, and %d refused", l, delayed, refused)
		}
	}
}

// TestEachAlgorithmIsExplained: the descriptor of each algorithm that is taken says how what was used comes back.
func TestEachAlgorithmIsExplained(t *testing.T) {
	for _, k := range rules.Kinds() {
		if (k.NoRule == "") != (k.Returns != "") {
			t.Errorf("%s: NoRule is %q, and Returns %q", k.Name, k.NoRule, k.Returns)
		}
	}
}
