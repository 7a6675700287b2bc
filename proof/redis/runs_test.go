package redis

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestRunsEqualSingleCharges: a batch, in which charges of a key that are alike are decided together, has the
// decisions of the same charges one after another, and leaves the same bytes. Between the batches
// reservations come and go, work costs more than its estimate, and the clock moves, also back.
func TestRunsEqualSingleCharges(t *testing.T) {
	raced.Skip(t)
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store, err := weirredis.New(weirrueidis.Evaler(client), patiently(weirredis.Options{ClockKey: "clock", Grace: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	admitted, refused := 0, 0
	for walk := range max(60, *walks) {
		r := rand.New(rand.NewPCG(uint64(walk), seeds.Seed()))
		w := &runsWalk{t: t, store: store, limit: drawRunsLimit(r)}
		w.names = [2]string{strconv.Itoa(walk) + "together", strconv.Itoa(walk) + "alone"}
		now := int64(1_700_000_000_000_000)
		for step := range 40 {
			if now += r.Int64N(2_000_000); r.IntN(10) == 0 {
				now -= r.Int64N(5_000_000)
			}
			redis(t, client, "HSET", "clock", "s", strconv.FormatInt(now/1e6, 10), "us", strconv.FormatInt(now%1e6, 10))
			w.reserve(r)
			batch := w.draw(r)
			together, alone := w.carryOut(batch)
			for i := range batch {
				if together[i] != alone[i] {
					t.Fatalf("walk %d, step %d: %+v: charge %d of %d, %v of %d: %+v together, %+v alone",
						walk, step, w.limit, i, len(batch), batch[i].Op, batch[i].Cost, together[i], alone[i])
				}
				if together[i].Allowed {
					admitted++
				} else {
					refused++
				}
			}
			for _, key := range runKeys {
				was := redis(t, client, "GET", "weir:{"+key+"}:"+w.names[0])
				if is := redis(t, client, "GET", "weir:{"+key+"}:"+w.names[1]); was != is {
					t.Fatalf("walk %d, step %d: %+v: key %s: %q together, %q alone", walk, step, w.limit, key, was, is)
				}
			}
		}
	}
	if t.Logf("%d charges were admitted, %d refused", admitted, refused); admitted < 5000 || refused < 5000 {
		t.Errorf("%d charges were admitted, %d refused: too few of one", admitted, refused)
	}
}

var runKeys = []string{"a", "b"}

// drawRunsLimit draws a limit that has a short script.
func drawRunsLimit(r *rand.Rand) weir.Limit {
	span := []time.Duration{time.Second, 7 * time.Second, 999_983 * time.Microsecond}[r.IntN(3)]
	rate, size := weir.Rate{N: 1 + r.Int64N(50), Per: span}, 1+r.Int64N(60)
	switch r.IntN(4) {
	case 0:
		return weir.FixedWindow{Limit: size, Window: span, Align: []weir.Align{"", "first"}[r.IntN(2)]}
	case 1:
		return weir.LeakyBucket{Rate: rate, Queue: size}
	}
	return weir.TokenBucket{Rate: rate, Burst: size}
}

// A runsWalk makes each charge twice: of a limit whose charges come together, and of one whose charges come
// one after another.
type runsWalk struct {
	t           *testing.T
	store       *weirredis.Store
	limit       weir.Limit
	names       [2]string
	outstanding [2][]weir.Charge
}

// reserve makes a reservation, or settles one at up to twice its cost.
func (w *runsWalk) reserve(r *rand.Rand) {
	key, cost, within, one := runKeys[r.IntN(2)], 1+r.Int64N(4), time.Duration(r.IntN(3))*time.Second, r.IntN(8)
	for side, name := range w.names {
		switch open := w.outstanding[side]; {
		case one == 0:
			made := do(w.t, w.store, weir.Charge{Op: weir.OpReserve, Name: name, Key: key, Limit: w.limit, Cost: cost, Within: within, Estimate: true})
			if made.decision.Allowed {
				w.outstanding[side] = append(open, made.Charge)
			}
		case one < 3 && len(open) > 0:
			c := open[0]
			c.Op, c.Cost = weir.OpSettle, cost*2-2
			do(w.t, w.store, c)
			w.outstanding[side] = open[1:]
		}
	}
}

// draw draws takes and peeks. Most are alike.
func (w *runsWalk) draw(r *rand.Rand) (batch []weir.Charge) {
	for range 1 + r.IntN(40) {
		c := weir.Charge{Key: runKeys[r.IntN(2)], Limit: w.limit, Cost: 1}
		if r.IntN(8) == 0 {
			c.Cost = r.Int64N(4)
		}
		if r.IntN(20) == 0 {
			c.Op = weir.OpPeek
		}
		batch = append(batch, c)
	}
	return batch
}

// carryOut makes the charges together, and one after another.
func (w *runsWalk) carryOut(batch []weir.Charge) (together, alone []weir.Decision) {
	together, alone = make([]weir.Decision, len(batch)), make([]weir.Decision, len(batch))
	for i := range batch {
		batch[i].Name = w.names[0]
	}
	if err := w.store.Do(w.t.Context(), batch, together); err != nil {
		w.t.Fatal(err)
	}
	for i, c := range batch {
		c.Name = w.names[1]
		alone[i] = do(w.t, w.store, c).decision
		alone[i].By, together[i].By = "", ""
	}
	return together, alone
}
