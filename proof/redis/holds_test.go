package redis

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// gate opens a Concurrency in a store of its own.
func gate(t *testing.T, client rueidis.Client, l weir.Concurrency, o weirredis.Options) *weirredis.Concurrency {
	t.Helper()
	store, err := weirrueidis.New(client, patiently(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	c, err := weirredis.NewConcurrency(store, l, "gate")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// places fails unless exactly so many hold places of "k", and nobody waits.
func places(t *testing.T, c *weirredis.Concurrency, holding int64) {
	t.Helper()
	if h, w, err := c.Inspect(t.Context(), "k"); err != nil || h != holding || w != 0 {
		t.Fatalf("%d are held and %d wait, %v; want %d and none", h, w, err, holding)
	}
}

// await polls a condition until it is true.
func await(t *testing.T, what string, yes func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if yes() {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("never: ", what)
		}
	}
}

// TestHolds: the uses of a Concurrency, with two stores that share its places.
func TestHolds(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	l := weir.Concurrency{Limit: 2, Queue: 1, MaxHold: time.Minute}
	a, b := gate(t, client, l, weirredis.Options{}), gate(t, client, l, weirredis.Options{})
	ctx := t.Context()
	first, err := a.Enter(ctx, "k")
	if err != nil || !first.Held() || first.Fence() < time.Now().Add(-time.Minute).UnixMicro() {
		t.Fatal(first.Fence(), err)
	}
	second, d, err := b.TryEnter(ctx, "k")
	if err != nil || !d.Allowed || d.Remaining != 0 || d.Limit != 2 || second.Fence() <= first.Fence() {
		t.Fatal(d, err, first.Fence(), second.Fence())
	}
	if _, d, err := a.TryEnter(ctx, "k"); err != nil || d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > time.Minute || d.ResetAfter > time.Minute {
		t.Fatal(d, err)
	}
	entered := make(chan weirredis.Hold, 1)
	go func() {
		h, err := b.Enter(ctx, "k")
		if err != nil {
			t.Error(err)
		}
		entered <- h
	}()
	await(t, "one waits", func() bool { _, w, err := a.Inspect(ctx, "k"); return err == nil && w == 1 })
	var limited *weir.LimitedError
	if _, err := a.Enter(ctx, "k"); !errors.As(err, &limited) || limited.Decision.RetryAfter <= 0 {
		t.Fatal("the queue was full, and ", err)
	}
	first.Done(weir.OK)
	first.Done(weir.Dropped) // does nothing
	third := <-entered
	if third.Fence() <= second.Fence() {
		t.Fatal(second.Fence(), third.Fence())
	}
	places(t, a, 2)
	second.Done(weir.Ignore)
	third.Done(weir.Dropped)
	await(t, "all have left", func() bool { h, _, err := a.Inspect(ctx, "k"); return err == nil && h == 0 })
	if ttl, err := client.Do(ctx, client.B().Pttl().Key("weir:hold:{k}:gate").Build()).AsInt64(); err != nil || ttl > 1000 || ttl == -1 {
		t.Errorf("the state is kept for %d ms, though nobody is there: %v", ttl, err)
	}
	if got := a.Outcomes(); got != (weir.Outcomes{OK: 1}) {
		t.Error(got)
	}
	if got := b.Outcomes(); got != (weir.Outcomes{Ignored: 1, Dropped: 1}) {
		t.Error(got)
	}
	select {
	case <-third.Lost():
		t.Error("a hold that was left is lost")
	default:
	}
}

// TestWaiterLeaves: a waiter whose context ends leaves the queue at once.
func TestWaiterLeaves(t *testing.T) {
	c := gate(t, connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr), weir.Concurrency{Limit: 1, Queue: 5, MaxHold: time.Minute}, weirredis.Options{})
	h, err := c.Enter(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := c.Enter(ctx, "k")
		left <- err
	}()
	await(t, "one waits", func() bool { _, w, err := c.Inspect(t.Context(), "k"); return err == nil && w == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	await(t, "nobody waits", func() bool { _, w, err := c.Inspect(t.Context(), "k"); return err == nil && w == 0 })
	h.Done(weir.OK)
	if err := c.Do(t.Context(), "k", func(ctx context.Context) error { return ctx.Err() }); err != nil {
		t.Error(err)
	}
}

// longHold is a MaxHold that a hold survives although the machine stands still for seconds between two
// of its heartbeats.
const longHold = 12 * time.Second

// TestHeartbeats: a hold outlives MaxHold while it is extended, and ends its context when it cannot
// be.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	server := servers.StartRedis(t, servers.RedisOptions{})
	c := gate(t, connect(t, server.Addr), weir.Concurrency{Limit: 1, MaxHold: longHold}, weirredis.Options{})
	h, err := c.Enter(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx := h.Context(t.Context())
	pulse := time.NewTicker(50 * time.Millisecond)
	defer pulse.Stop()
	for end := time.Now().Add(longHold + longHold/8); time.Now().Before(end); <-pulse.C {
		if _, d, err := c.TryEnter(t.Context(), "k"); err == nil && d.Allowed || !h.Held() {
			t.Fatal("the place came back while it was held: ", d, err, h.Held())
		}
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), weirredis.ErrLost) || time.Since(paused) > patience || h.Held() {
		t.Error(context.Cause(ctx), time.Since(paused))
	}
	<-h.Lost()
	server.Resume()
	await(t, "the place is back", func() bool {
		h, d, err := c.TryEnter(t.Context(), "k")
		h.Done(weir.OK)
		return err == nil && d.Allowed
	})
	h.Done(weir.OK)
	if got := c.Outcomes(); got != (weir.Outcomes{OK: 1, Expired: 1}) {
		t.Error(got)
	}
}

// TestLostState: a server without its data still gives larger fences, and the holders learn that
// their places are lost.
func TestLostState(t *testing.T) {
	t.Parallel()
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	c := gate(t, client, weir.Concurrency{Limit: 1, MaxHold: longHold}, weirredis.Options{})
	before := int64(0)
	for range 3 {
		h, err := c.Enter(t.Context(), "k")
		if err != nil || h.Fence() <= before {
			t.Fatal(h.Fence(), before, err)
		}
		before = h.Fence()
		if err := client.Do(t.Context(), client.B().Flushall().Build()).Error(); err != nil {
			t.Fatal(err)
		}
		second, err := c.Enter(t.Context(), "k")
		if err != nil || second.Fence() <= before {
			t.Fatal(second.Fence(), before, err)
		}
		before = second.Fence()
		<-h.Lost()
		if !second.Held() {
			t.Error("the second is lost, too")
		}
		second.Done(weir.OK)
		await(t, "it has left", func() bool { h, _, err := c.Inspect(t.Context(), "k"); return err == nil && h == 0 })
	}
}

// TestCloseWithHolds: Close sends the holds that have ended, and ends the others.
func TestCloseWithHolds(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	l := weir.Concurrency{Limit: 2, MaxHold: time.Minute}
	store, err := weirrueidis.New(client, patiently(weirredis.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := weirredis.NewConcurrency(store, l, "gate")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.Enter(t.Context(), "k")
	b, _ := c.Enter(t.Context(), "k")
	a.Done(weir.OK)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	<-b.Lost()
	if _, err := c.Enter(t.Context(), "k"); err == nil {
		t.Error("entered through a closed store")
	}
	places(t, gate(t, client, l, weirredis.Options{}), 1)
}

// TestHostileHolds: whatever the key contains or is called, there is a reply or an error, and keys
// of others do not change.
func TestHostileHolds(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	l := weir.Concurrency{Limit: 3, MaxHold: time.Minute}
	c := gate(t, client, l, weirredis.Options{})
	for _, key := range []string{"", "{}", "a b\r\n", "\x00\xff", string(make([]byte, 1<<16)), "h", "m"} {
		h, d, err := c.TryEnter(t.Context(), key)
		if err != nil || !d.Allowed || d.Remaining != 2 {
			t.Errorf("%.20q: %v, %v", key, d, err)
		}
		h.Done(weir.OK)
	}
	for _, cost := range []int64{-1, 4, 1 << 62, -1 << 63} {
		if _, d, err := c.TryEnterCost(t.Context(), "k", cost); d.Allowed || d.RetryAfter != weir.Never || err != nil && !errors.Is(err, weir.ErrCost) {
			t.Errorf("%d: %v, %v", cost, d, err)
		}
		if d, err := c.Peek(t.Context(), "k", cost); d.Allowed || d.RetryAfter != weir.Never || err != nil {
			t.Errorf("%d: %v, %v", cost, d, err)
		}
	}
	for what, command := range map[string]rueidis.Completed{
		"string": client.B().Set().Key("weir:hold:{string}:gate").Value("x").Build(),
		"list":   client.B().Rpush().Key("weir:hold:{list}:gate").Element("x").Build(),
		"hash":   client.B().Hset().Key("weir:hold:{hash}:gate").FieldValue().FieldValue("m", "x").Build(),
		"hash2":  client.B().Hset().Key("weir:hold:{hash2}:gate").FieldValue().FieldValue("x", "x").Build(),
		"hash3":  client.B().Hset().Key("weir:hold:{hash3}:gate").FieldValue().FieldValue("m", "\x9a\x01\x01").Build(),
	} {
		if err := client.Do(t.Context(), command).Error(); err != nil {
			t.Fatal(err)
		}
		before, _ := client.Do(t.Context(), client.B().Dump().Key("weir:hold:{"+what+"}:gate").Build()).ToString()
		if _, err := c.Enter(t.Context(), what); !errors.Is(err, weirredis.ErrCharge) {
			t.Errorf("%s: %v", what, err)
		}
		after, _ := client.Do(t.Context(), client.B().Dump().Key("weir:hold:{"+what+"}:gate").Build()).ToString()
		if before != after || before == "" {
			t.Errorf("%s was changed", what)
		}
	}
	for _, l := range []weir.Concurrency{{}, {Limit: 1}, {Limit: 1, MaxHold: time.Millisecond}, {Limit: -1, MaxHold: time.Minute}, {Limit: 1, Queue: -1, MaxHold: time.Minute}} {
		if err := c.SetLimit(l); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
}

// TestHoldsOnce: a caller that enters again because the reply was lost has one place.
func TestHoldsOnce(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store, err := weirredis.New(&lossy{Evaler: weirrueidis.Evaler(client)}, patiently(weirredis.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := weirredis.NewConcurrency(store, weir.Concurrency{Limit: 2, MaxHold: time.Minute}, "gate")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		a, err := c.Enter(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		b, d, err := c.TryEnter(t.Context(), "k")
		if err != nil || !d.Allowed || b.Fence() <= a.Fence() {
			t.Fatal(d, err, a.Fence(), b.Fence())
		}
		places(t, c, 2)
		a.Done(weir.OK)
		b.Done(weir.OK)
		await(t, "both have left", func() bool { h, _, err := c.Inspect(t.Context(), "k"); return err == nil && h == 0 })
	}
}

// tardy loses some calls, which reach the server much later.
type tardy struct {
	weirredis.Evaler
	random *rand.Rand
	mu     sync.Mutex
	lost   []weirredis.Call
}

func (d *tardy) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	d.mu.Lock()
	lost := d.random.IntN(2) == 0
	if lost {
		d.lost = append(d.lost, c)
	}
	d.mu.Unlock()
	if lost {
		return "", io.ErrUnexpectedEOF
	}
	return d.Evaler.Eval(ctx, c)
}

// TestLateEnter: a call to enter that reaches the server long after its caller has left takes no
// place.
func TestLateEnter(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	d := &tardy{Evaler: weirrueidis.Evaler(client), random: seeds.Of(t.Name())}
	store, err := weirredis.New(d, weirredis.Options{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := weirredis.NewConcurrency(store, weir.Concurrency{Limit: 100, MaxHold: time.Minute}, "gate")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		h, err := c.Enter(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		h.Done(weir.OK)
	}
	await(t, "all have left", func() bool { h, _, err := c.Inspect(t.Context(), "k"); return err == nil && h == 0 })
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, call := range d.lost {
		if _, err := d.Evaler.Eval(t.Context(), call); err != nil && !strings.HasPrefix(err.Error(), "NOSCRIPT") {
			t.Fatal(err)
		}
	}
	if len(d.lost) < 10 {
		t.Errorf("only %d calls were late", len(d.lost))
	}
	places(t, gate(t, client, c.Limit(), weirredis.Options{}), 0)
}
