package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
)

const day = 24 * time.Hour

// TestStatesExpireWhenIdle: a key exists until its state is idle, and no longer. A state that never
// becomes idle expires after a day without use.
func TestStatesExpireWhenIdle(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	const grace = 7 * time.Second
	stores := map[time.Duration]weir.Store{0: open(t, client, weirredis.Options{Timeout: patience}), grace: open(t, client, weirredis.Options{Prefix: "grace:", Grace: grace})}
	n := 0
	for name, c := range map[string]struct {
		limit weir.Limit
		cost  int64
		after time.Duration // how long after ResetAfter it still exists
	}{
		"bucket":            {weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 100}, 30, 0},
		"bucket, all of it": {weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 100}, 100, 0},
		"bucket, a third":   {weir.TokenBucket{Rate: weir.Rate{N: 3, Per: time.Second}, Burst: 100}, 1, 0},
		"bucket, years":     {weir.TokenBucket{Rate: weir.PerDay(1), Burst: 36_000}, 36_000, 0},
		"bucket, fast":      {weir.TokenBucket{Rate: weir.PerSecond(1_000_000), Burst: 1_000_000}, 999_999, 0},
		"leaky":             {weir.LeakyBucket{Rate: weir.PerMinute(7), Queue: 20, DelayAfter: 20}, 5, 0},
		"all":               {weir.All(weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 9}, weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 9}), 4, 0},
		"starts empty":      {weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 100, Initial: 50}, 30, day},
		"bursty":            {weir.SmoothBursty{Rate: weir.PerSecond(10), MaxBurst: 3 * time.Second}, 5, day},
	} {
		for more, store := range stores {
			for _, op := range []weir.Op{weir.OpTake, weir.OpReserve} {
				n++
				key := fmt.Sprint("k", n)
				began := time.Now()
				d := do(t, store, weir.Charge{Name: "api", Key: key, Limit: c.limit, Cost: c.cost, Op: op, Within: -1}).decision
				prefix := "weir:"
				if more > 0 {
					prefix = "grace:"
				}
				left := lives(t, client, prefix+"{"+key+"}:api")
				took := time.Since(began)
				want := d.ResetAfter + c.after + more
				if !d.Allowed || left > want+2*time.Millisecond || left < want-took-time.Millisecond {
					t.Errorf("%s, %v, grace %v: idle in %v, and it lives for %v, after %v", name, op, more, d.ResetAfter, left, took)
				}
			}
		}
	}
}

// lives returns the time to live of a key, 0 for one that has expired.
func lives(t *testing.T, client rueidis.Client, key string) time.Duration {
	t.Helper()
	ms, ok := redis(t, client, "PTTL", key).(int64)
	if ms == -2 {
		return 0
	}
	if !ok || ms < 0 {
		t.Fatalf("%q lives for %d ms", key, ms)
	}
	return time.Duration(ms) * time.Millisecond
}

func keys(t *testing.T, client rueidis.Client, pattern string) (list []string) {
	t.Helper()
	for _, k := range redis(t, client, "KEYS", pattern).([]any) {
		list = append(list, k.(string))
	}
	return list
}

// TestNoncesExpireWithTheirCalls: a call that charged something leaves a nonce until its caller's
// deadline. A refused call leaves none.
func TestNoncesExpireWithTheirCalls(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{Timeout: patience})
	began := time.Now()
	for n, keep := range []bool{false, true} {
		const within = 20 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		for _, want := range []bool{true, false} {
			batch, out := []weir.Charge{{Name: "api", Key: fmt.Sprint(n), Limit: slow(1), Cost: 1, Keep: keep}}, make([]weir.Decision, 1)
			if err := store.Do(ctx, batch, out); err != nil || out[0].Allowed != want {
				t.Fatalf("%+v, %v", out, err)
			}
		}
		nonces := keys(t, client, fmt.Sprintf("weir:{%d}:nonce:*", n))
		if len(nonces) != 1 {
			t.Fatalf("nonces: %q", nonces)
		}
		if left := lives(t, client, nonces[0]); left > within+2*time.Millisecond || left < within-time.Since(began)-time.Second {
			t.Errorf("the call has %v, and its nonce lives for %v, after %v", within, left, time.Since(began))
		}
	}
	if all := keys(t, client, "*"); len(all) != 4 {
		t.Errorf("%q", all)
	}
}

// TestNothingIsLeft: some time after a burst over many keys, all keys and nonces are gone.
func TestNothingIsLeft(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{Timeout: patience})
	memory := func() (n int) {
		for line := range strings.Lines(redis(t, client, "INFO", "memory").(string)) {
			fmt.Sscanf(line, "used_memory_dataset:%d", &n)
		}
		return n
	}
	before := memory()
	limit := weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10}
	const many, each = 10_000, 100
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := 0; i < many; i += each {
		var batch []weir.Charge
		for j := range each {
			batch = append(batch, weir.Charge{Name: "api", Key: fmt.Sprint("key", i+j), Limit: limit, Cost: 1 + int64(j%10)})
		}
		err := context.DeadlineExceeded
		for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			call, cancel := context.WithTimeout(ctx, 2*time.Second) // nonces live as long
			err = store.Do(call, batch, make([]weir.Decision, each))
			cancel()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	at, most := redis(t, client, "DBSIZE").(int64), memory()
	until(t, "all keys are gone", func() bool { return redis(t, client, "DBSIZE").(int64) == 0 })
	t.Logf("%d keys and nonces took %d bytes; %d are left", at, most-before, memory()-before)
}
