package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// tally counts the replies of an Evaler; errors by their first word.
type tally struct {
	weirredis.Evaler
	mu sync.Mutex
	n  map[string]int
}

func (e *tally) count(err error) {
	word := "ok"
	if err != nil {
		word, _, _ = strings.Cut(err.Error(), " ")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n[word]++
}

func (e *tally) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	text, err := e.Evaler.Eval(ctx, c)
	e.count(err)
	return text, err
}

func (e *tally) EvalAll(ctx context.Context, calls []weirredis.Call, replies []weirredis.Reply) {
	e.Evaler.EvalAll(ctx, calls, replies)
	for _, r := range replies {
		e.count(r.Err)
	}
}

// since returns the counts since its last call.
func (e *tally) since() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := fmt.Sprint(e.n) // sorted by words
	e.n = map[string]int{}
	return text
}

// TestPaths counts the calls of each path to a decision: the replies of the server, and what it
// carried out.
func TestPaths(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	redis(t, client, "HSET", "clock", "s", "1700000000", "us", "0")
	e := &tally{Evaler: weirrueidis.Evaler(client), n: map[string]int{}}
	store, err := weirredis.New(e, patiently(weirredis.Options{ClockKey: "clock", Grace: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bucket, other := slow(1000), weir.TokenBucket{Rate: weir.PerHour(1), Burst: 500}
	left := int64(0)
	step := func(what, replies string, evalsha, eval int, c weir.Charge) {
		t.Helper()
		before := commands(t, server)
		d := do(t, store, c).decision
		after := commands(t, server)
		left = d.Remaining
		if got := e.since(); !d.Allowed || got != "map["+replies+"]" || after["evalsha"]-before["evalsha"] != evalsha || after["eval"]-before["eval"] != eval {
			t.Errorf("%s: replies %s, EVALSHA %d times, EVAL %d times; %+v", what, got, after["evalsha"]-before["evalsha"], after["eval"]-before["eval"], d)
		}
	}
	take := weir.Charge{Name: "api", Key: "a", Limit: bucket, Cost: 1}
	changed := weir.Charge{Name: "api", Key: "a", Limit: other, Cost: 1}
	step("the first", "NOSCRIPT:1 WEIRLATE:1 ok:1", 2, 1, take)
	step("another", "ok:1", 1, 0, take)
	redis(t, client, "SCRIPT", "FLUSH")
	step("the scripts are gone", "NOSCRIPT:1 ok:1", 1, 1, take)
	step("the limit is another one", "NOSCRIPT:2 WEIRFULL:2 ok:1", 3, 2, changed)
	step("and another one again", "WEIRFULL:2 ok:1", 3, 0, take)
	redis(t, client, "HSET", "clock", "s", "1700009999")
	step("the clock is put forward", "WEIRLATE:1 ok:1", 2, 0, take)
	redis(t, client, "HSET", "clock", "s", "1700000000")
	step("and back", "ok:1", 1, 0, take)
	if left != 1000-7 {
		t.Errorf("%d are left", left)
	}
}

// TestOneCallForABatch: a batch is one call of the server, and so are the requests of many callers
// that come during another call.
func TestOneCallForABatch(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	store := open(t, connect(t, server.Addr), weirredis.Options{})
	do(t, store, weir.Charge{Name: "api", Key: "a", Limit: slow(9), Cost: 1})
	before := commands(t, server)["evalsha"]
	var batch []weir.Charge
	for n := range 500 {
		batch = append(batch, weir.Charge{Name: "api", Key: fmt.Sprint(n), Limit: slow(9), Cost: 1})
	}
	if err := store.Do(t.Context(), batch, make([]weir.Decision, len(batch))); err != nil {
		t.Fatal(err)
	}
	if n := commands(t, server)["evalsha"] - before; n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestCloseEndsCallsInFlight: Close while the server hangs, and while it responds. All callers get
// an error long before their deadlines, and no goroutine is left.
func TestCloseEndsCallsInFlight(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	for name, stands := range map[string]bool{"it stands": true, "it answers": false} {
		t.Run(name, func(t *testing.T) {
			client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			store, err := weirrueidis.New(client, weirredis.Options{})
			if err != nil {
				t.Fatal(err)
			}
			do(t, store, weir.Charge{Name: "api", Key: "a", Limit: slow(9), Cost: 1})
			if stands {
				if err := server.Pause(); err != nil {
					t.Fatal(err)
				}
				defer server.Resume()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
			defer cancel()
			var wg sync.WaitGroup
			for n := range 64 {
				wg.Go(func() {
					for {
						batch := []weir.Charge{{Name: "api", Key: fmt.Sprint(n), Limit: slow(9), Cost: 1}}
						if err := store.Do(ctx, batch, make([]weir.Decision, 1)); err != nil {
							if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
								t.Errorf("who asked waited for his deadline: %v", err)
							}
							return
						}
					}
				})
			}
			until(t, "calls are in flight", func() bool { return flying() })
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if err := store.Do(ctx, []weir.Charge{{Name: "api", Key: "a", Limit: slow(9)}}, make([]weir.Decision, 1)); err == nil {
				t.Error("it answers after Close")
			}
			if left := lingering("weir/weirredis.", patience); left != "" {
				t.Errorf("this is left:\n%s", left)
			}
		})
	}
}

// flying reports whether a call is in flight.
func flying() bool {
	buf := make([]byte, 1<<20)
	return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "weirredis.(*Store).roundTrip")
}
