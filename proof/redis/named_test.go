package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// named opens named limits in a store of its own, on a clock that stands still.
func named(t *testing.T, e weirredis.Evaler, o weirredis.Options) *weirredis.Named {
	t.Helper()
	store, err := weirredis.New(e, patiently(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return weirredis.NewNamed(store)
}

// still stops the clock of scripts at a time.
func still(t *testing.T, client rueidis.Client, us int64) weirredis.Options {
	t.Helper()
	set := client.B().Hset().Key("clock").FieldValue().FieldValue("s", strconv.FormatInt(us/1e6, 10)).FieldValue("us", strconv.FormatInt(us%1e6, 10)).Build()
	if err := client.Do(t.Context(), set).Error(); err != nil {
		t.Fatal(err)
	}
	return weirredis.Options{ClockKey: "clock", Timeout: patience}
}

const namedEpoch = 1_700_000_000_000_000

// takes fails if the decision differs.
func takes(t *testing.T, n *weirredis.Named, name, client string, cost, remaining int64, allowed bool, retry time.Duration) {
	t.Helper()
	d, err := n.Take(t.Context(), name, client, cost)
	if err != nil || d.Allowed != allowed || d.Remaining != remaining || d.RetryAfter != retry || d.By != name {
		t.Errorf("%s: %+v, %v; want %v, %d left, retry in %v", name, d, err, allowed, remaining, retry)
	}
}

// TestNamed: the uses of named limits.
func TestNamed(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	o := still(t, client, namedEpoch)
	ctx := t.Context()
	a, b := named(t, weirrueidis.Evaler(client), o), named(t, weirrueidis.Evaler(client), o)
	if _, err := a.Take(ctx, "api", "", 1); !errors.Is(err, weirredis.ErrNoLimit) {
		t.Error(err)
	}
	if created, err := a.Init(ctx, "api", weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, weirredis.Overall); err != nil || !created {
		t.Fatal(created, err)
	}
	takes(t, a, "api", "", 15, 5, true, 0)
	takes(t, b, "api", "alice", 5, 0, true, 0) // all clients share it
	takes(t, b, "api", "", 1, 0, false, 100*time.Millisecond)
	takes(t, b, "api", "", 21, 0, false, weir.Never)
	takes(t, b, "api", "", -1, 0, false, weir.Never)
	still(t, client, namedEpoch+500_000)

	// With another rate the 15 used tokens stay used.
	if created, err := b.Init(ctx, "api", weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 40}, weirredis.Overall); err != nil || created {
		t.Fatal(created, err)
	}
	got, err := a.Inspect(ctx, "api", "")
	want := weirredis.NamedLimit{Name: "api", Algorithm: "token_bucket", Scope: weirredis.Overall, Limit: 40, Used: 15, Remaining: 25,
		Parameters: map[string]string{"rate": "100/s", "burst": "40"}, ResetAfter: 150 * time.Millisecond}
	if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	takes(t, a, "api", "", 25, 0, true, 0)
	if d, err := a.Peek(ctx, "api", "", 1); err != nil || d.Allowed || d.RetryAfter != 10*time.Millisecond {
		t.Error(d, err)
	}
	if _, err := a.Init(ctx, "api", weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, weirredis.PerClient); !errors.Is(err, weirredis.ErrCharge) {
		t.Error("the scope was changed: ", err)
	}

	// With another algorithm, the used tokens are charged once.
	if _, err := b.Init(ctx, "api", weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 99, DelayAfter: 99}, weirredis.Overall); err != nil {
		t.Fatal(err)
	}
	takes(t, a, "api", "", 61, 60, false, 100*time.Millisecond)
	takes(t, a, "api", "", 60, 0, true, 0)

	l, err := weir.All(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 5}, weir.TokenBucket{Rate: weir.PerMinute(10), Burst: 8}), error(nil)
	if _, err = a.Init(ctx, "both", l, weirredis.Overall); err != nil {
		t.Fatal(err)
	}
	takes(t, a, "both", "", 5, 0, true, 0)

	// Limits that only Go can write.
	for name, l := range map[string]weir.Limit{
		"smooth": weir.SmoothBursty{Rate: weir.PerSecond(10)}, "warm": weir.WarmUp{Rate: weir.PerSecond(10), Period: 3 * time.Second},
		"endless": weir.WarmUp{Rate: weir.Unlimited, Period: time.Second},
	} {
		if _, err := a.Init(ctx, name, l, weirredis.Overall); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d, err := b.Take(ctx, name, "", 1); err != nil || !d.Allowed {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if err := b.Delete(ctx, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.Delete(ctx, "api"); err != nil {
		t.Error(err)
	}
	if names, err := b.List(ctx, "", 10); err != nil || !slices.Equal(names, []string{"both"}) {
		t.Error(names, err)
	}
	if _, err := b.Inspect(ctx, "api", ""); !errors.Is(err, weirredis.ErrNoLimit) {
		t.Error(err)
	}
}

// TestNamedPerClient: each client has its own state with the same parameters.
func TestNamedPerClient(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	n := named(t, weirrueidis.Evaler(client), still(t, client, namedEpoch))
	ctx := t.Context()
	if _, err := n.Init(ctx, "mail", weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 5}, weirredis.PerClient); err != nil {
		t.Fatal(err)
	}
	for i := range 5 { // no two are equal: Redis reads its own clock for expiries, which advances within a script
		takes(t, n, "mail", fmt.Sprint("client-", i), int64(5-i), int64(i), true, 0)
	}
	if _, err := n.Take(ctx, "mail", "", 1); !errors.Is(err, weirredis.ErrCharge) || !strings.Contains(err.Error(), "WEIRKEY") {
		t.Error("nobody took: ", err)
	}
	if got, err := n.Inspect(ctx, "mail", "client-1"); err != nil || got.Clients != 5 || got.Used != 4 || got.Remaining != 1 || got.Scope != weirredis.PerClient {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := n.Clients(ctx, "mail", 1, 3); err != nil || !slices.Equal(got, []string{"client-3", "client-2", "client-1"}) {
		t.Error(got, err) // in the order in which they will be full again
	}
	// A change reaches each client's state at its next use.
	if _, err := n.Init(ctx, "mail", weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 10}, weirredis.PerClient); err != nil {
		t.Fatal(err)
	}
	takes(t, n, "mail", "client-2", 0, 7, true, 0)
	takes(t, n, "mail", "new", 1, 9, true, 0)
	if err := n.Delete(ctx, "mail"); err != nil {
		t.Fatal(err)
	}
	keys, err := client.Do(ctx, client.B().Keys().Pattern("weir:*").Build()).AsStrSlice()
	if keys = slices.DeleteFunc(keys, func(k string) bool { return strings.Contains(k, ":nonce:") }); err != nil || len(keys) > 0 {
		t.Errorf("left: %q, %v", keys, err)
	}
}

// TestNamedPages: more clients than are deleted at once, and more limits than are listed at once.
func TestNamedPages(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	n := named(t, weirrueidis.Evaler(client), weirredis.Options{Timeout: patience})
	ctx := t.Context()
	for i := range 25 {
		if _, err := n.Init(ctx, fmt.Sprintf("limit-%02d", i), weir.TokenBucket{Rate: weir.PerDay(1), Burst: 3}, weirredis.PerClient); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	for page, after := []string{""}, ""; len(page) > 0; {
		var err error
		if page, err = n.List(ctx, after, 10); err != nil {
			t.Fatal(err)
		}
		if all = append(all, page...); len(page) > 0 {
			after = page[len(page)-1]
		}
	}
	if len(all) != 25 || !slices.IsSorted(all) {
		t.Errorf("%q", all)
	}
	for i := range 2100 {
		if _, err := n.Take(ctx, "limit-07", strconv.Itoa(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Delete(ctx, "limit-07"); err != nil {
		t.Fatal(err)
	}
	keys, err := client.Do(ctx, client.B().Keys().Pattern("weir:limit:{limit-07}*").Build()).AsStrSlice()
	if keys = slices.DeleteFunc(keys, func(k string) bool { return strings.Contains(k, ":nonce:") }); err != nil || len(keys) > 0 {
		t.Errorf("%d are left, %v", len(keys), err)
	}
}

// lossy loses the replies to some calls.
type lossy struct {
	weirredis.Evaler
	calls atomic.Int64
}

func (l *lossy) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	text, err := l.Evaler.Eval(ctx, c)
	if l.calls.Add(1)%3 != 0 && err == nil {
		return "", io.ErrUnexpectedEOF
	}
	return text, err
}

// TestNamedOnce: a call that is repeated because its reply was lost is charged once.
func TestNamedOnce(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	n := named(t, &lossy{Evaler: weirrueidis.Evaler(client)}, weirredis.Options{})
	if _, err := n.Init(t.Context(), "api", weir.TokenBucket{Rate: weir.PerDay(1), Burst: 100}, weirredis.Overall); err != nil {
		t.Fatal(err)
	}
	for i := range int64(20) {
		takes(t, n, "api", "", 1, 99-i, true, 0)
	}
}

// script runs the script of named limits as a client in another language does.
func script(t *testing.T, client rueidis.Client, keys []string, args ...string) rueidis.RedisResult {
	t.Helper()
	return client.Do(t.Context(), client.B().Eval().Script(weirredis.NamedScript().Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
}

// TestNamedText: init reads text as Go reads it.
func TestNamedText(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	n := named(t, weirrueidis.Evaler(client), weirredis.Options{Timeout: patience})
	kept := func() (def []int64, capacity string) {
		t.Helper()
		all, err := client.Do(t.Context(), client.B().Hgetall().Key("weir:limit:{x}").Build()).AsStrMap()
		if err != nil {
			t.Fatal(err)
		}
		text := all["def"]
		for text = text[1:]; text != ""; {
			def = append(def, unpackInt(&text))
		}
		return def, all["capacity"]
	}
	for text, l := range map[string]weir.Limit{
		"token_bucket rate=100/s burst=200":               weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 200},
		"token_bucket rate=6/m burst=1 initial=-1":        weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 1, Initial: weir.InitialEmpty},
		"token_bucket rate=20/100ms burst=70 initial=7":   weir.TokenBucket{Rate: weir.Rate{N: 20, Per: 100 * time.Millisecond}, Burst: 70, Initial: 7},
		"token_bucket rate=999983/s burst=1000":           weir.TokenBucket{Rate: weir.PerSecond(999983), Burst: 1000},
		"token_bucket rate=1000000000/s burst=1000000000": weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9},
		"token_bucket rate=7/365d burst=3":                weir.TokenBucket{Rate: weir.Rate{N: 7, Per: 365 * 24 * time.Hour}, Burst: 3},
		"leaky_bucket rate=10/s":                          weir.LeakyBucket{Rate: weir.PerSecond(10)},
		"leaky_bucket rate=10/h queue=20 delay_after=3":   weir.LeakyBucket{Rate: weir.PerHour(10), Queue: 20, DelayAfter: 3},
		"interval_bucket burst=10 refill=3 every=1m":      weir.IntervalBucket{Burst: 10, Refill: 3, Every: time.Minute},
		"fixed_window limit=100 window=1m":                weir.FixedWindow{Limit: 100, Window: time.Minute},
		"fixed_window limit=5 window=2d align=first":      weir.FixedWindow{Limit: 5, Window: 48 * time.Hour, Align: weir.AlignFirst},
		"sliding_counter limit=100 window=h":              weir.SlidingCounter{Limit: 100, Window: time.Hour},
		"sliding_window limit=100 window=1m slots=6":      weir.SlidingWindow{Limit: 100, Window: time.Minute, Slots: 6},
		"sliding_window limit=9 window=6s slots=6 slot_limit=2": weir.SlidingWindow{
			Limit: 9, Window: 6 * time.Second, Slots: 6, SlotLimit: 2},
		"sliding_log limit=100 window=1m":              weir.SlidingLog{Limit: 100, Window: time.Minute},
		"sliding_log limit=1 window=1m":                weir.SlidingLog{Limit: 1, Window: time.Minute},
		"sliding_log limit=99999 window=1m":            weir.SlidingLog{Limit: 99999, Window: time.Minute},
		"sliding_log limit=9 window=1w max_entries=16": weir.SlidingLog{Limit: 9, Window: 7 * 24 * time.Hour, MaxEntries: 16},
	} {
		if _, err := n.Init(t.Context(), "x", l, weirredis.Overall); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		want, capacity := kept()
		if err := script(t, client, []string{"weir:limit:{x}"}, append([]string{"init", "overall"}, strings.Fields(text)...)...).Error(); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, size := kept(); !slices.Equal(got, want) || size != capacity {
			t.Errorf("%s: %v of %s, and Go says %v of %s", text, got, size, want, capacity)
		}
		if d, err := n.Take(t.Context(), "x", "", 1); err != nil || strconv.FormatInt(d.Limit, 10) != capacity {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
	}
}
