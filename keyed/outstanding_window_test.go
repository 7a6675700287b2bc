package keyed_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// TestWindowBeginsWithWhatIsLeft: a window that began with a reservation ended when it would have ended
// with that reservation, although it was cancelled: 5 in 10 s became 8 in one second.
func TestWindowBeginsWithWhatIsLeft(t *testing.T) {
	clock := new(weirtest.Clock)
	l, err := weir.New(weir.FixedWindow{Limit: 5, Window: 10 * time.Second, Align: weir.AlignFirst}, weir.WithClock(clock.Now), weir.WithTimers(clock.AfterFunc))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := l.Reserve(1, 0)
	clock.Set(int64(9 * time.Second))
	l.Take(3)
	first.Cancel()
	clock.Set(int64(10 * time.Second))
	if d := l.Take(5); d.Allowed || d.Remaining != 2 || d.RetryAfter != 9*time.Second {
		t.Errorf("%+v", d)
	}
}

// TestWindowsAsIfNeverCharged: after reservations were cancelled or settled in any order while their
// windows were open, a Limiter and a key of a table are as if only what is left had been charged. A
// window that has ended is not moved, and nothing is ever over the limit.
func TestWindowsAsIfNeverCharged(t *testing.T) {
	limit := weir.FixedWindow{Limit: 6, Window: 100, Align: weir.AlignFirst}
	type charge struct {
		at, cost int64
		settle   func(int64)
	}
	moved := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 21))
		clock := new(weirtest.Clock)
		l, err := weir.New(limit, weir.WithClock(clock.Now), weir.WithTimers(clock.AfterFunc))
		if err != nil {
			t.Fatal(err)
		}
		k, err := keyed.New[string](limit, keyed.Options{MaxKeys: 4, Clock: clock.Now, Timers: clock.AfterFunc})
		if err != nil {
			t.Fatal(err)
		}
		var made []*charge
		text := ""
		for range 40 {
			if now := clock.Now() + r.Int64N(20); r.IntN(3) > 0 {
				clock.Set(now)
			}
			open := slices.DeleteFunc(slices.Clone(made), func(c *charge) bool { return c.settle == nil })
			cost := 1 + r.Int64N(3)
			switch n := r.IntN(6); {
			case n == 0:
				text += fmt.Sprintln("at", clock.Now(), "take", cost)
				if d := l.Take(cost); d.Allowed {
					made = append(made, &charge{clock.Now(), cost, nil})
				}
				k.Take("k", cost)
			case n < 3:
				text += fmt.Sprintln("at", clock.Now(), "reserve", cost)
				a, ok := l.Reserve(cost, 0)
				b, _ := k.Reserve("k", cost, 0)
				if ok {
					made = append(made, &charge{clock.Now(), cost, func(n int64) { a.Settle(n); b.Settle(n) }})
				}
			case len(open) > 0:
				c := open[r.IntN(len(open))]
				actual := []int64{0, 0, r.Int64N(c.cost + 1)}[r.IntN(3)]
				text += fmt.Sprintln("at", clock.Now(), "settle", *c, actual)
				c.settle(actual)
				if c.settle = nil; actual == 0 && c == made[0] {
					moved++
				}
				c.cost = actual
			}
			// Repeat what is left, from the last window on that began before now.
			begins, count, ended := int64(-1), int64(0), 0
			for i, c := range made {
				if c.cost > 0 && (begins < 0 || c.at >= begins+100) {
					if begins >= 0 {
						ended = i
					}
					begins, count = c.at, 0
				}
				count += c.cost
			}
			made = made[ended:] // what is given back to a window that has ended moves nothing
			if begins < 0 || clock.Now() >= begins+100 || l.Peek(0).ResetAfter == 0 {
				made = nil // the window has ended, also that of a charge that is cancelled later
				l, _ = weir.New(limit, weir.WithClock(clock.Now), weir.WithTimers(clock.AfterFunc))
				k.Reset("k")
				continue
			}
			want := limit.Limit - count
			got, keys := l.Peek(0), k.Peek("k", 0)
			if got.Remaining != want || got.ResetAfter != time.Duration(begins+100-clock.Now()) || keys.Remaining != want || keys.ResetAfter != got.ResetAfter {
				t.Fatalf("seed %d:\n%sat %d %+v and %+v, want %d until %d", seed, text, clock.Now(), got, keys, want, begins+100)
			}
		}
		k.Close()
	}
	if moved < 1000 {
		t.Errorf("%d windows were moved", moved)
	}
}
