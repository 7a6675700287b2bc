package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// sharded is a store of several shards in this process. The shard of a key is written before its
// colon, unless the key has moved.
type sharded struct {
	*fake

	mu     sync.Mutex
	names  []string
	moved  map[string]string                          // by key
	acts   map[string]func(ctx context.Context) error // by shard
	probes map[string]int
	silent bool // an error names no charge
}

func newSharded(names ...string) *sharded {
	return &sharded{
		fake: newFake(), names: names, moved: map[string]string{}, acts: map[string]func(ctx context.Context) error{}, probes: map[string]int{},
	}
}

func (s *sharded) Shard(_, key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shard(key)
}

func (s *sharded) shard(key string) string {
	if to, ok := s.moved[key]; ok {
		return to
	}
	shard, _, _ := strings.Cut(key, ":")
	return shard
}

func (s *sharded) Shards() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

func (s *sharded) PingShard(ctx context.Context, shard string) error {
	s.mu.Lock()
	s.probes[shard]++
	s.mu.Unlock()
	return s.ready(ctx, shard)
}

func (s *sharded) Ping(context.Context) error {
	return errors.New("the store is not probed as a whole")
}

// act says what a shard does from now on.
func (s *sharded) act(shard string, act func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acts[shard] = act
}

func (s *sharded) ready(ctx context.Context, shard string) error {
	s.mu.Lock()
	act := s.acts[shard]
	s.mu.Unlock()
	if act == nil {
		return nil
	}
	return act(ctx)
}

func (s *sharded) probed() (shards []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for shard := range s.probes {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	return shards
}

// Do asks all shards at the same time. Charges of a shard that fails have its error, and a group
// with such a charge is not made.
func (s *sharded) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) (first error) {
	s.mu.Lock()
	failures := map[string]error{}
	for i := range batch {
		failures[s.shard(batch[i].Key)] = nil
	}
	s.mu.Unlock()
	var calls sync.WaitGroup
	var mu sync.Mutex
	for _, shard := range slices.Collect(maps.Keys(failures)) {
		calls.Go(func() {
			err := s.ready(ctx, shard)
			mu.Lock()
			defer mu.Unlock()
			failures[shard] = err
		})
	}
	calls.Wait()
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	refused, failed := map[int]bool{}, map[int]bool{}
	for i := range batch {
		c := &batch[i]
		if c.Err = failures[s.Shard(c.Name, c.Key)]; c.Err != nil {
			failed[c.Group] = true
			if first == nil {
				first = c.Err
			}
		} else if c.Group > 0 {
			look := *c
			look.Op = weir.OpPeek
			if d, _ := s.peek(&look); !d.Allowed {
				refused[c.Group] = true
			}
		}
	}
	for i := range batch {
		c := &batch[i]
		switch {
		case c.Err != nil || c.Group > 0 && failed[c.Group]:
		case c.Group > 0 && refused[c.Group]:
			out[i], _ = s.peek(c)
		default:
			out[i], c.Err = s.one(c)
		}
	}
	if first != nil && s.silent {
		for i := range batch {
			batch[i].Err = nil
		}
	}
	return first
}

// peek looks at a cost: a fake's own peek is of 0.
func (s *sharded) peek(c *weir.Charge) (weir.Decision, error) {
	if s.keys[c.Name] == nil {
		if _, err := s.one(&weir.Charge{Name: c.Name, Key: c.Key, Limit: c.Limit, Op: weir.OpPeek}); err != nil {
			return weir.Decision{}, err
		}
	}
	d := s.keys[c.Name].Peek(c.Key, c.Cost)
	d.Source = weir.SourceStore
	return d, nil
}

// used is what the store has charged to a key of scarce.
func (s *sharded) used(key string) int64 {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if s.keys["scarce"] == nil {
		return 0
	}
	d := s.keys["scarce"].Peek(key, 0)
	return d.Limit - d.Remaining
}

// scarce is a limit that does not refill in a test.
var scarce = weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10_000}

func group(keys ...string) (batch []weir.Charge) {
	for _, key := range keys {
		batch = append(batch, weir.Charge{Name: "scarce", Key: key, Limit: scarce, Cost: 1, Group: 1})
	}
	return batch
}

// breakShard has a shard fail until its breaker is open.
func breakShard(t *testing.T, s *Store, f *sharded, shard string) {
	t.Helper()
	f.act(shard, down)
	for range 5 {
		take(t, s, shard+":breaks", 1)
	}
	if !slices.Contains(s.Stats().Down, shard) {
		t.Fatal("5 failures in a row do not open the breaker")
	}
	synctest.Wait()
}

// TestCausesOfShards: each shard that is down has its own latest error, of a call or of a probe.
func TestCausesOfShards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newSharded("a", "b", "c")
		s := open(t, f, Options{OnFailure: Allow})
		breakShard(t, s, f, "c")
		breakShard(t, s, f, "a")
		f.act("a", func(context.Context) error { return errors.New("LOADING") })
		wait(time.Second) // for a probe
		synctest.Wait()
		got := s.Stats()
		if !slices.Equal(got.Down, []string{"a", "c"}) || len(got.Causes) != 2 || got.Causes[0].Error() != "LOADING" || !errors.Is(got.Causes[1], errDown) {
			t.Errorf("%q: %v", got.Down, got.Causes)
		}
		f.act("a", nil)
		wait(2 * time.Second)
		synctest.Wait()
		if got := s.Stats(); !slices.Equal(got.Down, []string{"c"}) || len(got.Causes) != 1 || !errors.Is(got.Causes[0], errDown) {
			t.Errorf("%q: %v", got.Down, got.Causes)
		}
	})
}

// TestOneShardIsDown: the others are asked, that one is not but for probes, and it is back when it
// answers them.
func TestOneShardIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newSharded("a", "b", "c")
		var transitions []string
		s := open(t, f, Options{OnFailure: Allow, OnTransition: func(shard string, from, to State, cause error) {
			if (to == Open) != errors.Is(cause, errDown) {
				t.Errorf("%s: %v to %v because of %v", shard, from, to, cause)
			}
			transitions = append(transitions, fmt.Sprint(shard, ": ", from, " to ", to))
		}})
		breakShard(t, s, f, "a")
		for key, want := range map[string]weir.Source{"a:1": weir.SourceAllow, "b:1": weir.SourceStore, "c:1": weir.SourceStore} {
			if d := take(t, s, key, 1); d.Source != want {
				t.Errorf("%s: %+v", key, d)
			}
		}
		if got := s.Stats(); got.State != Open || !slices.Equal(got.Down, []string{"a"}) || got.Shards != 3 || got.Opened != 1 {
			t.Errorf("%+v", got)
		}
		wait(time.Second)
		f.act("a", nil)
		wait(time.Second)
		if d := take(t, s, "a:1", 1); d.Source != weir.SourceStore || s.State() != Closed {
			t.Errorf("1 s after it is back: %+v", d)
		}
		if got := f.probed(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("probed were %q", got)
		}
		if transitions[0] != "a: closed to open" || transitions[len(transitions)-1] != "a: half-open to closed" {
			t.Errorf("%q", transitions)
		}
	})
}

// TestBatchIsDivided: of charges that are no group, each is decided by its own shard; the answers
// are where they belong.
func TestBatchIsDivided(t *testing.T) {
	for _, direct := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := newSharded("a", "b", "c")
			s := open(t, f, Options{OnFailure: Allow, Direct: direct})
			f.act("a", patient)
			f.act("c", down)
			for round := range 20 { // the breakers are closed at first
				batch, out := group("a:1", "b:1", "c:1", "b:2", "a:2"), make([]weir.Decision, 5)
				for i := range batch {
					batch[i].Group = 0
				}
				if err := s.Do(t.Context(), batch, out); err != nil {
					t.Fatal(err)
				}
				for i, c := range batch {
					want := weir.SourceAllow
					if c.Key[0] == 'b' {
						want = weir.SourceStore
					}
					if out[i].Source != want || !out[i].Allowed {
						t.Errorf("direct %v, round %d, %s: %+v", direct, round, c.Key, out[i])
					}
				}
			}
			if got := s.Stats(); !slices.Equal(got.Down, []string{"a", "c"}) || f.used("b:1") != 20 {
				t.Errorf("%q are down, and b:1 has been charged %d of 20", got.Down, f.used("b:1"))
			}
		})
	}
}

// TestGroupOverADownShard: it is made or not, by the store and a share together. What refuses
// leaves no charge on the other side.
func TestGroupOverADownShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newSharded("a", "b")
		s := open(t, f, Options{OnFailure: Local, Nodes: 2, StartFull: true})
		breakShard(t, s, f, "a")
		do := func(want bool, batch []weir.Charge) []weir.Decision {
			t.Helper()
			out := make([]weir.Decision, len(batch))
			if err := s.Do(t.Context(), batch, out); err != nil {
				t.Fatal(err)
			}
			for i, c := range batch {
				source := weir.SourceShare
				if c.Key[0] == 'b' {
					source = weir.SourceStore
				}
				if out[i].Source != source || want && !out[i].Allowed || c.Op != weir.OpTake {
					t.Fatalf("%s: %+v, %v", c.Key, out[i], c.Op)
				}
			}
			if !want && !slices.ContainsFunc(out, func(d weir.Decision) bool { return !d.Allowed }) {
				t.Fatalf("%+v", out)
			}
			return out
		}
		share := func(key string) int64 {
			d := s.shares.records["scarce"].keys.Peek(key, 0)
			return d.Limit - d.Remaining
		}
		expect := func(a, b int64) {
			t.Helper()
			if share("a:1") != a || f.used("b:1") != b {
				t.Fatalf("the share has charged %d, want %d; the store %d, want %d", share("a:1"), a, f.used("b:1"), b)
			}
		}
		do(true, group("a:1", "b:1"))
		expect(1, 1)
		do(true, group("b:1", "a:1", "a:1")) // one limit and key twice
		expect(3, 2)

		batch := group("b:1", "a:1") // the share refuses
		batch[1].Cost = 5000
		if out := do(false, batch); !out[0].Allowed || out[1].Allowed || out[1].RetryAfter <= 0 {
			t.Errorf("%+v", out)
		}
		expect(3, 2)

		batch = group("a:1", "b:1") // the store refuses
		batch[1].Cost = 10_000
		if out := do(false, batch); !out[0].Allowed || out[1].Allowed || out[0].Remaining != 5000-3 {
			t.Errorf("%+v", out)
		}
		expect(3, 2)

		batch = group("a:1", "b:1") // both give receipts, which give back
		batch[0].Keep, batch[1].Keep = true, true
		do(true, batch)
		expect(4, 3)
		batch[0].Op, batch[0].Cost, batch[0].Group = weir.OpSettle, 0, 0
		if err := s.Do(t.Context(), batch[:1], make([]weir.Decision, 1)); err != nil {
			t.Error(err)
		}
		expect(3, 3)

		ctx, cancel := context.WithCancel(t.Context()) // the caller leaves
		f.act("b", func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() })
		if err := s.Do(ctx, group("a:1", "b:1"), make([]weir.Decision, 2)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		expect(3, 3)

		f.act("b", down) // the other shard fails too, so that the shares decide about it all
		out := make([]weir.Decision, 2)
		if err := s.Do(t.Context(), group("a:1", "b:1"), out); err != nil || !out[0].Allowed || !out[1].Allowed || out[1].Source != weir.SourceShare {
			t.Errorf("%+v, %v", out, err)
		}
		expect(4, 3)
	})
}

// TestOutagesOfShards: each shard's keys are emptied when its own outage begins, and not again when
// another shard fails.
func TestOutagesOfShards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newSharded("a", "b")
		s := open(t, f, Options{OnFailure: Local, Nodes: 2})
		breakShard(t, s, f, "a")
		if d := take(t, s, "a:1", 1); d.Allowed {
			t.Errorf("a share begins full: %+v", d)
		}
		wait(time.Second) // 5 tokens of a share of 5/s
		breakShard(t, s, f, "b")
		if d := take(t, s, "b:1", 1); d.Allowed {
			t.Errorf("a share begins full: %+v", d)
		}
		if d := take(t, s, "a:1", 1); !d.Allowed || d.Remaining != 4 {
			t.Errorf("the outage of another shard has emptied it: %+v", d)
		}
		// A key that another shard's failure has made the share decide about has nothing saved up either.
		f.act("b", nil)
		wait(time.Second)
		batch, out := []weir.Charge{{Name: "api", Key: "b:fresh", Limit: perSecond, Cost: 3, Group: 1}, {Name: "api", Key: "c:1", Limit: perSecond, Cost: 1, Group: 1}}, make([]weir.Decision, 2)
		f.act("c", down)
		if err := s.Do(t.Context(), batch, out); err != nil || out[0].Source != weir.SourceShare || out[0].Allowed {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// TestWhoFailedIsFoundOut: an error that names no charge opens the breaker of no shard that answers
// probes.
func TestWhoFailedIsFoundOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newSharded("a", "b")
		f.silent = true
		s := open(t, f, Options{OnFailure: Allow})
		f.act("a", down)
		for range 50 {
			out := make([]weir.Decision, 2)
			if err := s.Do(t.Context(), group("a:1", "b:1"), out); err != nil {
				t.Fatal(err)
			}
			wait(10 * time.Millisecond)
		}
		if got := s.Stats(); !slices.Equal(got.Down, []string{"a"}) || got.Opened != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestShardGoes: a shard that the store does not have any more is removed, and its keys are decided by the shard
// that has them.
func TestShardGoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newSharded("a", "b")
		s := open(t, f, Options{OnFailure: Allow})
		breakShard(t, s, f, "a")
		f.mu.Lock()
		f.moved["a:1"], f.names = "a2", []string{"a2", "b"}
		f.mu.Unlock()
		if d := take(t, s, "a:1", 1); d.Source != weir.SourceStore {
			t.Errorf("%+v", d)
		}
		wait(time.Second)
		if got := s.Stats(); s.State() != Closed || got.Down != nil || got.Returned != 1 || len(*s.shards.byName.Load()) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestShardsAreBounded: names beyond a number share one breaker, also if all are down and come back.
func TestShardsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newSharded()
		s := open(t, f, Options{OnFailure: Allow})
		for i := range 2 * maxShards {
			shard := fmt.Sprint(i)
			f.act(shard, down)
			take(t, s, shard+":1", 1)
		}
		if n := len(*s.shards.byName.Load()); n > maxShards+1 {
			t.Errorf("%d breakers", n)
		}
	})
}

// TestPlacesOfShards: so it is with places of concurrency.
func TestPlacesOfShards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &shardedHolder{newSharded("a", "b")}
		s := open(t, f, Options{OnFailure: Local, Nodes: 2})
		f.act("a", down)
		enter := func(key string) weir.Decision {
			t.Helper()
			done, d, err := s.Enter(t.Context(), weir.Charge{Name: "places", Key: key, Cost: 1, Limit: weir.Concurrency{Limit: 2, MaxHold: time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			if done != nil {
				defer done(weir.OK)
			}
			return d
		}
		for range 10 {
			if d := enter("a:1"); d.Source != weir.SourceShare || !d.Allowed {
				t.Errorf("%+v", d)
			}
			if d := enter("b:1"); d.Source != weir.SourceStore || !d.Allowed {
				t.Errorf("%+v", d)
			}
		}
		if got := s.Stats(); !slices.Equal(got.Down, []string{"a"}) || got.Skipped != 5 {
			t.Errorf("%+v", got)
		}
	})
}

// shardedHolder keeps places: any number.
type shardedHolder struct{ *sharded }

func (h *shardedHolder) Enter(ctx context.Context, c weir.Charge) (func(weir.Outcome), weir.Decision, error) {
	if err := h.ready(ctx, h.Shard(c.Name, c.Key)); err != nil {
		return nil, weir.Decision{}, err
	}
	return func(weir.Outcome) {}, weir.Decision{Allowed: true, Source: weir.SourceStore}, nil
}

// hidden is a store that does not say which shards it has.
type hidden struct{ weir.Store }
