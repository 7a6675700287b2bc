package redis

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// deaf is a client of Redis that sends no calls while it is down, and sends them but gets no replies while it
// is deaf.
type deaf struct {
	weirredis.Evaler
	down, deaf atomic.Bool
}

func (d *deaf) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	if d.down.Load() {
		return "", io.ErrUnexpectedEOF
	}
	text, err := d.Evaler.Eval(ctx, c)
	if d.deaf.Load() {
		return "", io.ErrUnexpectedEOF
	}
	return text, err
}

// TestSettleIsRepeated: a reservation whose settlement failed is settled by a later call, and only once: also
// if Redis had carried it out, and only the reply was lost. The marks of settlements expire.
func TestSettleIsRepeated(t *testing.T) {
	t.Parallel() // each settlement that is lost takes a second, until it fails
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	const day, size = 24 * time.Hour, 10_000
	const kept = 10 * time.Minute // longer than this test takes on a machine that stands still now and then
	rate := weir.PerDay(1)
	limits := []weir.Limit{
		weir.TokenBucket{Rate: rate, Burst: size}, weir.LeakyBucket{Rate: rate, Queue: size - 1, DelayAfter: size - 1},
		weir.IntervalBucket{Burst: size, Refill: 1, Every: day}, weir.FixedWindow{Limit: size, Window: 365 * day, Align: weir.AlignFirst},
		weir.SlidingWindow{Limit: size, Window: 300 * day, Slots: 10}, weir.SlidingCounter{Limit: size, Window: 36500 * day},
		weir.SlidingLog{Limit: size, Window: day},
	}
	link := &deaf{Evaler: weirrueidis.Evaler(client)}
	inner, err := weirredis.New(link, weirredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	store, err := failover.New(inner, failover.Options{Deadline: patience, Failures: 1_000_000, Probe: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := policy.Policy{Stores: []policy.Store{{Name: "shared"}}}
	var asks []policy.Ask
	used := make([]int64, len(limits))
	for i, l := range limits {
		name := string(rune('a' + i))
		p.Limits = append(p.Limits, policy.Limit{Name: name, Limit: l, Store: "shared"})
		asks = append(asks, policy.Ask{Limit: name, Cost: 10})
	}
	e, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"shared": store}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r := rand.New(rand.NewPCG(seeds.Seed(), 71))
	eventually := func(what string, call func() error) {
		t.Helper()
		servers.Poll(t, what, func() bool {
			err := call()
			if err != nil && !errors.Is(err, policy.ErrUnsettled) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	lost := 0
	for range 120 {
		n := 1 + r.IntN(3) // several limits, or one: perhaps ahead of its time
		some := make([]policy.Ask, 0, n)
		var at []int
		for _, i := range r.Perm(len(limits))[:n] {
			some, at = append(some, asks[i]), append(at, i)
		}
		var a *policy.Answer
		eventually("the store reserves", func() error {
			a, err = e.Reserve(t.Context(), some, time.Duration(r.IntN(2)))
			if err != nil {
				t.Fatal(err)
			}
			if a.Err != nil || !a.Allowed { // a busy machine: the store took longer than its deadline
				if a.Allowed {
					t.Fatal("a reservation without the store")
				}
				return policy.ErrUnsettled
			}
			return nil
		})
		costs := make([]int64, n)
		for k := range costs {
			costs[k] = []int64{0, 3, 25}[r.IntN(3)]
			used[at[k]] += costs[k]
		}
		for range r.IntN(3) {
			link.down.Store(r.IntN(2) == 0)
			link.deaf.Store(true)
			if err := a.Settle(t.Context(), costs, kept); !errors.Is(err, policy.ErrUnsettled) {
				t.Fatal(err)
			}
			lost++
			link.down.Store(false)
			link.deaf.Store(false)
		}
		eventually("the store settles", func() error { return a.Settle(t.Context(), costs, kept) })
	}
	for i, ask := range asks {
		a, err := e.Peek(t.Context(), []policy.Ask{{Limit: ask.Limit}})
		if err != nil || a.Err != nil {
			t.Fatal(err, a.Err)
		}
		if now := size - a.Each[0].Decision.Remaining; now != used[i] {
			t.Errorf("%T: %d used, and %d were settled", limits[i], now, used[i])
		}
	}
	if lost < 60 {
		t.Errorf("only %d settlements failed", lost)
	}
	marks := 0
	for _, key := range redis(t, client, "KEYS", "*").([]any) {
		if !strings.Contains(key.(string), "%settled") {
			continue
		}
		marks++
		if ttl := redis(t, client, "PTTL", key.(string)).(int64); ttl < 1 || ttl > (kept+10*time.Second).Milliseconds() {
			t.Errorf("the mark %v stays for %d ms", key, ttl)
		}
	}
	if marks < 120 {
		t.Errorf("%d settlements left a mark", marks)
	}
}
