package failover

import (
	"errors"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

// eachCall decides about one charge whose parameters come with it.
func eachCall(t *testing.T, s *Store, key string, l weir.Limit, cost int64, op weir.Op) weir.Decision {
	t.Helper()
	batch, out := []weir.Charge{{Name: "calls", EachCall: true, Key: key, Limit: l, Cost: cost, Op: op}}, make([]weir.Decision, 1)
	if err := s.Do(t.Context(), batch, out); err != nil {
		t.Fatal(err)
	}
	out[0].By = ""
	return out[0]
}

// TestEachCallDecidesAsALimitDoes: with parameters that stay the same, a key of such charges gets in outages
// what a key of a limit gets.
func TestEachCallDecidesAsALimitDoes(t *testing.T) {
	random := seeds.Of(t.Name())
	for _, nodes := range []int{1, 2, 3} {
		for _, l := range []weir.TokenBucket{{Rate: weir.PerSecond(10), Burst: 20}, {Rate: weir.PerMinute(1), Burst: 2}, {Rate: weir.PerSecond(1000), Burst: 1}} {
			whileOut(t, Options{Nodes: nodes, MaxKeys: 100}, func(t *testing.T, s *Store, f *fake) {
				for step := range 400 {
					wait(time.Duration(random.Int64N(int64(2 * l.Rate.Per / time.Duration(l.Rate.N)))))
					key, cost := string(rune('a'+random.IntN(3))), random.Int64N(l.Burst+2)
					op := []weir.Op{weir.OpTake, weir.OpTake, weir.OpPeek}[random.IntN(3)]
					batch, out := []weir.Charge{{Name: "limit", Key: key, Limit: l, Cost: cost, Op: op}}, make([]weir.Decision, 1)
					if err := s.Do(t.Context(), batch, out); err != nil {
						t.Fatal(err)
					}
					want := out[0]
					want.By = ""
					if got := eachCall(t, s, key, l, cost, op); got != want {
						t.Fatalf("%d nodes, %v, step %d, %v %q %d:\n%+v, want\n%+v", nodes, l, step, op, key, cost, got, want)
					}
				}
				mend(t, s, f)
				wait(5 * time.Minute)
				breakIt(t, s, f)
				each := l.Rate.Per / time.Duration(l.Rate.N) * time.Duration(nodes)
				for _, key := range []string{"a", "never seen"} { // all keys begin an outage empty
					if d := eachCall(t, s, key, l, 1, weir.OpTake); d.Allowed || d.RetryAfter != each {
						t.Errorf("%q in the next outage: %+v, want a wait of %v", key, d, each)
					}
				}
				wait(each)
				if d := eachCall(t, s, "a", l, 1, weir.OpTake); !d.Allowed || d.Remaining != 0 {
					t.Errorf("after %v: %+v", each, d)
				}
			})
		}
	}
}

// TestEachCallHasNoTableOfParameters: any number of different parameters get decisions, in all
// fallbacks, and those of one key share its state.
func TestEachCallHasNoTableOfParameters(t *testing.T) {
	whileOut(t, Options{Nodes: 1, MaxKeys: 100_000}, func(t *testing.T, s *Store, f *fake) {
		wait(20 * time.Second) // in which all bursts have refilled
		for n := range int64(5 * maxNames) {
			if d := eachCall(t, s, "many", weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: 10_000 + n}, 1, weir.OpTake); !d.Allowed || d.Source != weir.SourceShare {
				t.Fatalf("parameters %d: %+v", n, d)
			}
		}
		if d := take(t, s, "a", 1); !d.Allowed {
			t.Errorf("a limit has no room beside them: %+v", d)
		}
	})
	for _, of := range []OnFailure{Allow, Deny} {
		bubble(t, func(t *testing.T) {
			f := newFake()
			s := open(t, f, Options{OnFailure: of})
			breakIt(t, s, f)
			for n := range int64(2 * maxNames) {
				l := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1 + n}
				if d := eachCall(t, s, "k", l, 1, weir.OpTake); d.Allowed != (of == Allow) || d.Limit != 1+n {
					t.Fatalf("%v: %+v", of, d)
				}
				if d := eachCall(t, s, "k", l, 2+n, weir.OpTake); d.Allowed || d.RetryAfter != weir.Never {
					t.Fatalf("%v, above the burst: %+v", of, d)
				}
			}
		})
	}
}

// TestEachCallRefusesTheRest: other algorithms, groups and operations are errors while the store is
// unavailable.
func TestEachCallRefusesTheRest(t *testing.T) {
	bucket := weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}
	whileOut(t, Options{}, func(t *testing.T, s *Store, f *fake) {
		for _, x := range []struct {
			charge weir.Charge
			want   error
		}{
			{weir.Charge{Limit: weir.FixedWindow{Limit: 5, Window: time.Second}, Cost: 1}, weir.ErrCharge},
			{weir.Charge{Limit: bucket, Cost: 1, Group: 1}, weir.ErrCharge},
			{weir.Charge{Limit: bucket, Cost: 1, Op: weir.OpReserve}, ErrUnavailable},
			{weir.Charge{Limit: bucket, Op: weir.OpReset}, ErrUnavailable},
		} {
			x.charge.Name, x.charge.EachCall, x.charge.Key = "calls", true, "k"
			if err := s.Do(t.Context(), []weir.Charge{x.charge}, make([]weir.Decision, 1)); !errors.Is(err, x.want) {
				t.Errorf("%v: %v, want %v", x.charge, err, x.want)
			}
		}
	})
}

// TestForget: the record of a limit that is gone makes room for another, and the rest stay.
func TestForget(t *testing.T) {
	whileOut(t, Options{Nodes: 1}, func(t *testing.T, s *Store, f *fake) {
		wait(time.Minute)
		if d := take(t, s, "a", 15); !d.Allowed {
			t.Fatal(d)
		}
		for i := range 2 * maxNames {
			name := string(rune('A'+i%26)) + time.Duration(i).String()
			do(t, s, weir.Charge{Name: name, Plan: []string{"", "pro"}[i%2], Key: "k", Limit: perSecond, Cost: 1})
			s.Remove(name)
		}
		if d := take(t, s, "a", 15); d.Allowed {
			t.Errorf("another limit was removed: %+v", d)
		}
	})
}
