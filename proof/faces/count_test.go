package faces

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// patient is a store that decides on a busy machine too.
const patient = ", on_failure: deny, deadline: 30s"

// inMemoryAndRedis runs a test with a limit in memory and in a Redis.
func inMemoryAndRedis(t *testing.T, parameters string, test func(t *testing.T, w *world)) {
	t.Run("memory", func(t *testing.T) { test(t, start(t, parameters, "", "")) })
	t.Run("redis", func(t *testing.T) {
		test(t, start(t, parameters, servers.StartRedis(t, servers.RedisOptions{}).Addr, patient))
	})
}

// held is a reservation, of a service that can settle it.
type held struct {
	overRESP bool
	id, key  string
	cost     int64
}

// TestOneCount: random charges with costs, through all services in turn, with reservations that are
// settled and cancelled, are decided as one count decides, and every service says what is left of it.
func TestOneCount(t *testing.T) {
	const burst = 40
	inMemoryAndRedis(t, fmt.Sprintf("rate: 1/d, burst: %d", burst), func(t *testing.T, w *world) {
		random := seeds.Of(t.Name())
		left := map[string]int64{}
		var open []held
		refused := map[string]int{}
		for step := range 600 {
			key := fmt.Sprint("user", step/120, random.IntN(2))
			if _, known := left[key]; !known {
				left[key] = burst
			}
			cost := 1 + random.Int64N(6)
			switch n := random.IntN(10); {
			case n == 0:
				h, ok := w.reserve(held{overRESP: random.IntN(2) == 0, key: key, cost: cost})
				if ok != (cost <= left[key]) {
					t.Fatalf("step %d: a reservation of %d was %v, with %d left", step, cost, ok, left[key])
				}
				if ok {
					left[key] -= cost
					open = append(open, h)
				}
			case n < 3 && len(open) > 0:
				at := random.IntN(len(open))
				h, actual := open[at], int64(0)
				if open = append(open[:at], open[at+1:]...); random.IntN(2) == 0 {
					actual = random.Int64N(2*h.cost + 1)
				}
				w.settle(h, actual)
				left[h.key] += h.cost - actual
			default:
				s := w.services[random.IntN(len(w.services))]
				ok, err := s.take(t.Context(), key, cost)
				if err != nil || ok != (cost <= left[key]) {
					t.Fatalf("step %d: %s was asked for %d, with %d left: %v, %v", step, s.name, cost, left[key], ok, err)
				}
				if ok {
					left[key] -= cost
				} else {
					refused[s.name]++
				}
			}
			if step%20 == 0 {
				if got := w.left(key); got != max(left[key], 0) {
					t.Fatalf("step %d: %d are left, want %d", step, got, left[key])
				}
			}
		}
		for _, s := range w.services {
			if refused[s.name] == 0 {
				t.Errorf("%s refused nothing", s.name)
			}
		}
	})
}

// reserve makes a reservation over JSON or the Redis protocol.
func (w *world) reserve(h held) (held, bool) {
	w.t.Helper()
	if h.overRESP {
		fields, err := w.command(w.t.Context(), "WEIR.RESERVE", "api", 1, h.key, "COST", h.cost)
		if err != nil {
			w.t.Fatal(err)
		}
		h.id, _ = fields["id"].(string)
		return h, h.id != ""
	}
	a, err := w.post(w.t.Context(), "reserve", map[string]any{"limit": "api", "key": []string{h.key}, "cost": h.cost})
	if err != nil {
		w.t.Fatal(err)
	}
	h.id = a.Reservation
	return h, a.Allowed
}

// settle ends a reservation with the actual cost; one of 0 is cancelled.
func (w *world) settle(h held, actual int64) {
	w.t.Helper()
	var err error
	switch {
	case h.overRESP && actual == 0:
		err = w.redis.Do(w.t.Context(), "WEIR.CANCEL", h.id).Err()
	case h.overRESP:
		err = w.redis.Do(w.t.Context(), "WEIR.SETTLE", h.id, actual).Err()
	case actual == 0:
		_, err = w.post(w.t.Context(), "cancel", map[string]any{"reservation": h.id})
	default:
		_, err = w.post(w.t.Context(), "settle", map[string]any{"reservation": h.id, "cost": actual})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestAllAtOnce: all services side by side admit exactly as much as the limit has.
func TestAllAtOnce(t *testing.T) {
	const burst = 1000
	inMemoryAndRedis(t, fmt.Sprintf("rate: 1/d, burst: %d", burst), func(t *testing.T, w *world) {
		var taken atomic.Int64
		by := make([]atomic.Int64, len(w.services))
		var wg sync.WaitGroup
		for i, s := range w.services {
			for range 2 {
				wg.Go(func() {
					for cost := int64(1); cost > 0; { // until not even 1 is left
						ok, err := s.take(t.Context(), "ann", cost)
						switch {
						case err != nil:
							t.Errorf("%s: %v", s.name, err)
							return
						case ok:
							taken.Add(cost)
							by[i].Add(1)
							cost = cost%5 + 1
						case cost == 1:
							return
						default:
							cost = 1
						}
					}
				})
			}
		}
		wg.Wait()
		if n := taken.Load(); n != burst || w.left("ann") != 0 {
			t.Errorf("%d of %d were admitted, and %d are left", n, burst, w.left("ann"))
		}
		for i, s := range w.services {
			if by[i].Load() == 0 {
				t.Errorf("%s had no part in it", s.name)
			}
		}
	})
}
