package keyed_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// TestAGroupReadsEachClockOnce: if a clock stepped back between a group's check and its charge, a
// limit refused after others were charged.
func TestAGroupReadsEachClockOnce(t *testing.T) {
	for _, l := range []weir.Limit{
		weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2},
		weir.SlidingLog{Limit: 2, Window: time.Minute},
		weir.FixedWindow{Limit: 2, Window: time.Hour},
	} {
		for kept := range 2 { // whether the keys have limiters of their own
			for steps := range 24 {
				now, reads := int64(0), -1
				clock := func() int64 {
					if reads--; reads == 0 {
						now -= int64(25 * time.Hour)
					}
					return now
				}
				open := func(name string) *keyed.Limiter[string] {
					k, err := keyed.New[string](l, keyed.Options{Name: name, Clock: clock,
						Timers: func(time.Duration, func()) weir.Timer { return idleTimer{} }})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = k.Close() })
					for range 2 {
						k.Take("key", 1)
					}
					if kept == 1 {
						if _, ok := k.Reserve("key", 0, 0); !ok {
							t.Fatal("refused")
						}
						if p, _ := k.Join("key", 1, -1); p != nil {
							p.Leave()
						}
					}
					return k
				}
				now = int64(1000 * time.Hour)
				a, b := open("a"), open("b")
				g, err := keyed.NewGroup(a, b)
				if err != nil {
					t.Fatal(err)
				}
				now += int64(25 * time.Hour) // there is room again
				reads = steps
				charges := []keyed.Charge[string]{{Key: "key", Cost: 1, Keep: steps%2 == 0}, {Key: "key", Cost: 1}}
				d, err := g.Take(charges)
				if err != nil {
					t.Fatal(err)
				}
				reads, now = -1, int64(1025*time.Hour)
				want := int64(2)
				if d.Allowed {
					want = 1
				}
				if x, y := a.Peek("key", 0).Remaining, b.Peek("key", 0).Remaining; x != want || y != want {
					t.Errorf("%T, kept %d, stepping back at read %d: allowed %v, and %d and %d remain", l, kept, steps, d.Allowed, x, y)
				}
			}
		}
	}
}

type idleTimer struct{}

func (idleTimer) Reset(time.Duration) bool { return true }
func (idleTimer) Stop() bool               { return true }
