package redis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirtest"
)

// TestPromises compares windows and logs of a few entries with the model, on walks that mostly
// charge ahead and cancel much of it, in any order: slots replace others and charges are merged,
// and both are undone, also after changes of the limit.
func TestPromises(t *testing.T) {
	raced.Skip(t)
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	for walk := range max(200, *walks) {
		r := rand.New(rand.NewPCG(uint64(walk), seeds.Seed()))
		if broken := w.promises(r); broken != "" {
			t.Fatalf("walk %d:\n%s", walk, broken)
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

// promises is a walk of a subject and a model.
type promises struct {
	r         *rand.Rand
	limit     weir.Limit
	clock     *weirtest.Clock
	subject   *subject
	model     *weirtest.Versions
	made      []promise
	history   strings.Builder
	now       int64
	high      int64 // the latest reading
	free      int64 // the latest reading at which the state was idle: it may have been evicted then, so earlier readings are left out
	got, want string
}

// promises makes a walk, and reports where the two sides differ.
func (w *world) promises(r *rand.Rand) string {
	l := few(r)
	p := &promises{r: r, limit: l, clock: new(weirtest.Clock), model: weirtest.NewVersions(time.Microsecond), now: 1_000_000}
	opened, err := w.open(l, p.clock)
	if err != nil {
		return err.Error()
	}
	p.subject = opened.(*subject)
	defer p.subject.Close()
	fmt.Fprintf(&p.history, "%T%+v\n", l, l)
	for p.history.Len() < 8000 && p.got == p.want {
		p.high = max(p.high, p.now)
		p.clock.Set(p.now * 1000)
		if p.model.Idle(p.high) {
			p.made, p.free = nil, p.high
		}
		switch n := r.IntN(80); {
		case n < 40:
			p.reserve()
		case n < 68 && len(p.made) > 0:
			p.settle()
		case n < 72:
			p.now = max(p.free, p.now+[]int64{1, 1, 2, 5, 1000, -1, -2, -3, -40, -1500}[r.IntN(10)])
		case n == 79:
			p.set()
		default:
			p.peek()
		}
	}
	if p.got == p.want {
		return ""
	}
	return fmt.Sprintf("%swant %s\ngot  %s", p.history.String(), p.want, p.got)
}

func (p *promises) reserve() {
	cost, within := 1+p.r.Int64N(2), []int64{-1, -1, -1, 1, 100}[p.r.IntN(5)]
	fmt.Fprintf(&p.history, "at %d reserve %d within %d (%d)\n", p.now, cost, within, len(p.made))
	reserved, _ := p.subject.Reserve("k", cost, time.Duration(within)*time.Microsecond)
	id, delay, d := p.model.Reserve(p.limit, p.now, cost, within)
	if d.Allowed {
		p.made = append(p.made, promise{reserved, id, cost})
	}
	if p.got, p.want = said(reserved.Decision(), reserved.Delay()), said(d, delay); p.got == p.want {
		p.peek()
	}
}

func (p *promises) settle() {
	i := len(p.made) - 1 - p.r.IntN(min(len(p.made), 1+p.r.IntN(12)))
	m := p.made[i]
	actual := []int64{0, 0, 0, 0, 1, m.cost + 1}[p.r.IntN(6)]
	fmt.Fprintf(&p.history, "at %d settle (%d) for %d\n", p.now, i, actual)
	m.Settle(actual)
	p.model.Settle(p.limit, p.now, m.model, actual)
	p.made = append(p.made[:i:i], p.made[i+1:]...)
	p.peek()
}

// set changes the limit to another of the same algorithm.
func (p *promises) set() {
	next := few(p.r)
	if fmt.Sprintf("%T", next) != fmt.Sprintf("%T", p.limit) {
		return
	}
	fmt.Fprintf(&p.history, "at %d set %+v\n", p.now, next)
	if err := p.subject.SetLimit(next); err != nil {
		p.got = err.Error()
		return
	}
	p.model.Carry(next, p.now)
	p.made, p.limit = nil, next
	p.peek()
}

func (p *promises) peek() {
	cost := 1 + p.r.Int64N(3)
	fmt.Fprintf(&p.history, "at %d peek %d\n", p.now, cost)
	p.got, p.want = said(p.subject.Peek("k", cost), 0), said(p.model.Peek(p.limit, p.now, cost), 0)
}

func said(d weir.Decision, delay time.Duration) string {
	d.By, d.Source = "", 0
	return fmt.Sprintf("%+v delay %v", d, delay)
}

// TestBeyondDoubles: counts may exceed what a double represents exactly. The charges are then
// merged into the newest, which expires late: nothing is admitted that the model refuses.
func TestBeyondDoubles(t *testing.T) {
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	const most = 1<<53 - 1
	for _, l := range []weir.Limit{
		weir.SlidingWindow{Limit: most, Window: time.Second, Slots: 4},
		weir.SlidingLog{Limit: most, Window: time.Second, MaxEntries: 4},
	} {
		for _, cancel := range []bool{false, true} {
			clock, model := new(weirtest.Clock), weirtest.NewBlindModel(l, time.Microsecond)
			opened, err := w.open(l, clock)
			if err != nil {
				t.Fatal(err)
			}
			s := opened.(*subject)
			defer s.Close()
			var last weirtest.Reservation
			var id int
			for i := range 3 {
				reserved, _ := s.Reserve("k", most-int64(i), -1)
				made, delay, d := model.Reserve(0, most-int64(i), -1)
				if got, want := said(reserved.Decision(), reserved.Delay()), said(d, delay); got != want {
					t.Errorf("%T, reservation %d:\nwant %s\ngot  %s", l, i, want, got)
				}
				last, id = reserved, made
			}
			if cancel {
				last.Cancel()
				model.Cancel(0, id)
			}
			for _, at := range []int64{0, 1, 1_000_000, 1_999_999, 2_000_000, 2_999_999, 3_000_000, 4_000_000} {
				clock.Set(at * 1000)
				got, want := s.Peek("k", 2), model.Peek(at, 2)
				if got.Remaining > want.Remaining || got.Allowed && !want.Allowed || got.RetryAfter < want.RetryAfter {
					t.Errorf("%T at %d, cancelled %v:\nwant %s\ngot  %s", l, at, cancel, said(want, 0), said(got, 0))
				}
			}
		}
	}
}
