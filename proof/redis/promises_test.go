package redis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirtest"
)

// TestPromises holds windows and logs of a few entries to the model where most of what is charged is charged ahead, and much of it given back, in
// any order: where slots displace others and charges become one, and both are undone; and where the limit is changed meanwhile.
func TestPromises(t *testing.T) {
	w := &world{client: connect(t, start(t, servers.RedisOptions{}).Addr)}
	for walk := range max(200, *walks) {
		r := rand.New(rand.NewPCG(uint64(walk), *seed))
		if told := w.promises(r); told != "" {
			t.Fatalf("walk %d of seed %d:\n%s", walk, *seed, told)
		}
	}
}

// few draws a limit of a few entries.
func few(r *rand.Rand) weir.Limit {
	n := 2 + r.IntN(3)
	unit := []time.Duration{time.Microsecond, 3 * time.Microsecond, time.Millisecond}[r.IntN(3)]
	if r.IntN(2) == 0 {
		return weir.SlidingWindow{Limit: 1 + r.Int64N(6), Window: time.Duration(n) * unit, Slots: n}
	}
	return weir.SlidingLog{Limit: 2 + r.Int64N(6), Window: 5 * unit, MaxEntries: n}
}

// promise is a reservation, on both sides.
type promise struct {
	weirtest.Reservation
	model int
	cost  int64
}

// promises makes a walk, and tells of it where the two sides part.
func (w *world) promises(r *rand.Rand) string {
	l := few(r)
	first := l
	clock, model := new(weirtest.Clock), weirtest.NewModel(l, time.Microsecond)
	opened, err := w.open(l, clock)
	if err != nil {
		return err.Error()
	}
	s := opened.(*subject)
	defer s.Close()
	var made []promise
	var told strings.Builder
	now := int64(1_000_000)
	high, free := now, now
	for told.Len() < 8000 {
		high = max(high, now)
		clock.Set(now * 1000)
		if model.Clone().Peek(high, 0).ResetAfter == 0 { // as good as new: it may be let go, and nothing is told of earlier times
			made, free = nil, high
		}
		var got, want string
		switch p := r.IntN(20); {
		case p < 10:
			cost, within := 1+r.Int64N(2), []int64{-1, -1, -1, 1, 100}[r.IntN(5)]
			fmt.Fprintf(&told, "at %d reserve %d within %d (%d)\n", now, cost, within, len(made))
			reserved, _ := s.Reserve("k", cost, time.Duration(within)*time.Microsecond)
			id, delay, d := model.Reserve(now, cost, within)
			if got, want = said(reserved.Decision(), reserved.Delay()), said(d, delay); d.Allowed {
				made = append(made, promise{reserved, id, cost})
			}
		case p < 17 && len(made) > 0:
			i := len(made) - 1 - r.IntN(min(len(made), 1+r.IntN(12)))
			actual := []int64{0, 0, 0, 0, 1, made[i].cost + 1}[r.IntN(6)]
			fmt.Fprintf(&told, "at %d settle (%d) for %d\n", now, i, actual)
			made[i].Settle(actual)
			model.Settle(now, made[i].model, actual)
			made = append(made[:i:i], made[i+1:]...)
		case p < 18:
			now = max(free, now+[]int64{1, 1, 2, 5, 1000, -1, -2, -3}[r.IntN(8)])
			continue
		case p == 19 && r.IntN(4) == 0:
			next := few(r)
			if fmt.Sprintf("%T", next) != fmt.Sprintf("%T", l) {
				continue
			}
			fmt.Fprintf(&told, "at %d set %+v\n", now, next)
			if err := s.SetLimit(next); err != nil {
				return err.Error()
			}
			model.SetLimit(now, next)
			l, made = next, nil
		}
		if got == want {
			cost := 1 + r.Int64N(3)
			fmt.Fprintf(&told, "at %d peek %d\n", now, cost)
			got, want = said(s.Peek("k", cost), 0), said(model.Peek(now, cost), 0)
		}
		if got != want {
			return fmt.Sprintf("%T\n%+v\n%swant %s\ngot  %s", l, first, told.String(), want, got)
		}
	}
	return ""
}

func said(d weir.Decision, delay time.Duration) string {
	d.By, d.Source = "", 0
	return fmt.Sprintf("%+v delay %v", d, delay)
}
