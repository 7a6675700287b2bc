package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

// extremes are MessagePack values that replace others.
func extremes(r *rand.Rand) string {
	all := []any{0, 1, 2, 127, -1, -1 << 62, 1 << 31, 1 << 52, 1<<53 - 1, 1 << 53, 1 << 62, time.Now().UnixMicro(), 0.5, 1e300, -1e300, "x", nil, true, false, []any{}, []any{1, 2}}
	v := all[r.IntN(len(all))]
	if n, ok := v.(int64); ok {
		v = int(n) + r.IntN(1<<20)
	}
	return packed(v)
}

// mutated returns a state with a mistake: one byte, or one value in place of some bytes.
func mutated(r *rand.Rand, good string) string {
	b := []byte(good)
	at := r.IntN(len(b))
	switch r.IntN(4) {
	case 0:
		b[at] = byte(r.Uint32())
		return string(b)
	case 1:
		b[at] ^= 1 << r.IntN(8)
		return string(b)
	case 2:
		return good[:at]
	}
	return good[:at] + extremes(r) + good[min(len(good), at+1+r.IntN(9)):]
}

// TestHostileStates: states of every algorithm with a mistake. Each gets a decision, or an error
// for its charge, and then stays as it is. The charges beside it are made, and no script runs for
// long.
func TestHostileStates(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	store := open(t, client, weirredis.Options{Timeout: patience})
	r := seeds.Of(t.Name())
	n, wrong, slowest := 0, 0, time.Duration(0)
	limits := maps.Clone(linearLimits)
	limits["calendar"] = weir.FixedWindow{Limit: 50, Align: "day:Europe/Berlin"}
	for name, l := range limits {
		do(t, store, weir.Charge{Name: "api", Key: "good", Limit: l, Cost: 1})
		do(t, store, weir.Charge{Name: "api", Key: "good", Limit: l, Cost: 1, Op: weir.OpReserve, Within: -1})
		good, _ := redis(t, client, "GET", at("good")).(string)
		redis(t, client, "DEL", at("good"))
		if good == "" {
			good = "\xa0\x90" // it was idle already
		}
		for range 150 {
			value := mutated(r, good)
			for _, c := range []weir.Charge{
				{Limit: l, Cost: 1}, {Limit: l, Cost: 1, Op: weir.OpReserve, Within: -1}, {Limit: l, Cost: 3, Op: weir.OpTakeSome}, {Limit: slow(9), Cost: 1},
			} {
				n++
				c.Name, c.Key = "api", fmt.Sprint("bad", n)
				redis(t, client, "SET", at(c.Key), value)
				batch := []weir.Charge{{Name: "api", Key: fmt.Sprint("before", n), Limit: slow(5), Cost: 1}, c, {Name: "api", Key: fmt.Sprint("after", n), Limit: slow(5), Cost: 1}}
				out := make([]weir.Decision, len(batch))
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				began := time.Now()
				err := store.Do(ctx, batch, out)
				slowest = max(slowest, time.Since(began))
				cancel()
				if batch[1].Err != nil {
					wrong++
				}
				if err != nil && (!errors.Is(err, weirredis.ErrCharge) || batch[1].Err == nil) || !out[0].Allowed || !out[2].Allowed {
					t.Errorf("%s, %v, %q: %v; beside it %+v, %+v", name, c.Op, value, err, out[0], out[2])
				}
				if now := redis(t, client, "GET", at(c.Key)); batch[1].Err != nil && now != value {
					t.Errorf("%s, %v, %q: it holds %q now", name, c.Op, value, now)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d charges, %d of them were errors; the longest took %v", n, wrong, slowest)
}

// TestEndOfClock: states by which the clock of a key with calendar windows is at its end. Such a key gets
// a decision, and so do the charges beside it.
func TestEndOfClock(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	store := open(t, client, weirredis.Options{Timeout: patience})
	l := weir.FixedWindow{Limit: 50, Align: "day:Europe/Berlin"}
	do(t, store, weir.Charge{Name: "api", Key: "bad", Limit: l, Cost: 1})
	good, _ := redis(t, client, "GET", at("bad")).(string)
	now := packed(int(time.Now().UnixMicro()))
	state := good[:len(good)-len(now)]
	if !strings.HasPrefix(good[len(state)+1:], now[1:5]) {
		t.Fatalf("%q does not end with the time of the charge", good)
	}
	for name, clock := range map[string]string{"reached": packed(1<<53 - 1), "behind a time that is missing": packed(false) + packed(97)} {
		redis(t, client, "SET", at("bad"), state+clock)
		batch := []weir.Charge{
			{Name: "api", Key: "before " + name, Limit: slow(5), Cost: 1},
			{Name: "api", Key: "bad", Limit: l, Cost: 1},
			{Name: "api", Key: "after " + name, Limit: slow(5), Cost: 1},
		}
		out := make([]weir.Decision, len(batch))
		if err := store.Do(t.Context(), batch, out); err != nil && batch[1].Err == nil || !out[0].Allowed || !out[2].Allowed {
			t.Errorf("%s: %v: %+v", name, err, out)
		}
	}
}
