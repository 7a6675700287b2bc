package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

// TestShardsFailAtRandom searches for a fault of one shard that another one's keys notice. That the
// search would find one is shown with a store whose shards are not known.
func TestShardsFailAtRandom(t *testing.T) {
	for i := range 2 * *schedules {
		for _, direct := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				f := newSharded("s0", "s1", "s2", "s3", "s4")
				run := shardSchedule{f: f, store: f, direct: direct, random: rand.New(rand.NewPCG(seeds.Seed(), uint64(i)))}
				run.run(t)
				for _, w := range run.wrong[:min(5, len(run.wrong))] {
					t.Errorf("schedule %d, direct %v, %d wrong: %s", i, direct, len(run.wrong), w)
				}
			})
		}
	}
	bubble(t, func(t *testing.T) {
		f := newSharded("s0", "s1", "s2", "s3", "s4")
		run := shardSchedule{f: f, store: hidden{f}, random: rand.New(rand.NewPCG(seeds.Seed(), 1000))}
		if run.run(t); len(run.wrong) == 0 {
			t.Error("the search does not find that all shards have one breaker")
		}
	})
}

// A shardSchedule has five shards, of which s3 and s4 always answer at once, and the others fail in
// each manner and come back. Keys move between all of them.
type shardSchedule struct {
	f      *sharded
	store  weir.Store
	direct bool
	random *rand.Rand

	mu       sync.Mutex
	admitted map[weir.Source]map[string]int64
	wrong    []string
}

func (r *shardSchedule) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *shardSchedule) run(t *testing.T) {
	r.admitted = map[weir.Source]map[string]int64{weir.SourceStore: {}, weir.SourceShare: {}}
	s := open(t, r.store, Options{OnFailure: Local, Nodes: 1, StartFull: true, Direct: r.direct, OnTransition: func(shard string, from, _ State, _ error) {
		if from == Closed && shard != "s0" && shard != "s1" && shard != "s2" {
			r.say("the breaker of %q has opened", shard)
		}
	}})
	began := time.Now()
	over := func() bool { return time.Since(began) > 8*time.Second }
	var callers sync.WaitGroup
	for range 6 {
		random := rand.New(rand.NewPCG(r.random.Uint64(), 0))
		callers.Go(func() {
			for !over() {
				r.call(s, random)
				<-time.After(time.Duration(random.Int64N(int64(10 * time.Millisecond))))
			}
		})
	}
	for !over() {
		shard := fmt.Sprint("s", r.random.IntN(3))
		r.f.act(shard, [...]func(context.Context) error{nil, nil, down, patient, slow(30 * time.Millisecond)}[r.random.IntN(5)])
		if r.random.IntN(4) == 0 {
			r.f.mu.Lock()
			r.f.moved[r.key(r.random)] = fmt.Sprint("s", r.random.IntN(5))
			r.f.mu.Unlock()
		}
		<-time.After(time.Duration(r.random.ExpFloat64() * float64(200*time.Millisecond)))
	}
	callers.Wait()
	for i := range 3 {
		r.f.act(fmt.Sprint("s", i), nil)
	}
	wait(2 * time.Second)
	if s.State() != Closed {
		r.say("2 s after all shards are back: %+v", s.Stats())
	}
	for shard := range r.f.probes {
		if shard > "s2" {
			r.say("%s was probed", shard)
		}
	}
	r.compare(s)
}

// compare holds what was charged against what was admitted: nothing refused has left a charge.
func (r *shardSchedule) compare(s *Store) {
	for i := range 5 {
		for j := range 4 {
			key := fmt.Sprintf("s%d:%d", i, j)
			if got, want := r.f.used(key), r.admitted[weir.SourceStore][key]; got != want {
				r.say("%s: the store has charged %d, and admitted %d", key, got, want)
			}
			records := s.shares.records["scarce"]
			if records == nil || records.keys == nil {
				continue
			}
			d := records.keys.Peek(key, 0)
			if got, want := d.Limit-d.Remaining, r.admitted[weir.SourceShare][key]; got != want {
				r.say("%s: the share has charged %d, and admitted %d", key, got, want)
			}
		}
	}
}

func (r *shardSchedule) key(random *rand.Rand) string {
	return fmt.Sprintf("s%d:%d", random.IntN(5), random.IntN(4))
}

// call makes a call about one key or several, of which some are a group. A cost that does not fit
// makes some be refused.
func (r *shardSchedule) call(s *Store, random *rand.Rand) {
	batch := group(r.key(random))
	for random.IntN(2) == 0 {
		batch = append(batch, group(r.key(random))...)
	}
	together := random.IntN(2) == 0
	for i := range batch {
		if !together || random.IntN(8) == 0 {
			batch[i].Group = 0
		}
		if batch[i].Cost = 1 + random.Int64N(3); random.IntN(10) == 0 {
			batch[i].Cost = 20_000
		}
	}
	before := r.shardsOf(batch)
	began := time.Now()
	out := make([]weir.Decision, len(batch))
	if err := s.Do(context.Background(), batch, out); err != nil {
		r.say("an error: %v", err)
		return
	}
	took, after := time.Since(began), r.shardsOf(batch)
	refused := map[int]bool{}
	for i, c := range batch {
		if c.Group > 0 && !out[i].Allowed {
			refused[c.Group] = true
		}
	}
	steady := func(i int) bool { return before[i] > "s2" && after[i] > "s2" }
	all := true
	for i, c := range batch {
		all = all && steady(i)
		if steady(i) && c.Group == 0 && out[i].Source != weir.SourceStore {
			r.say("%s of a shard that always answers: %+v", c.Key, out[i])
		}
		if out[i].Allowed && !refused[c.Group] {
			r.mu.Lock()
			r.admitted[out[i].Source][c.Key] += c.Cost
			r.mu.Unlock()
		}
	}
	if all && took > 0 {
		r.say("%d charges of shards that always answer took %v", len(batch), took)
	}
	if took > DefaultDeadline {
		r.say("a call took %v", took)
	}
}

func (r *shardSchedule) shardsOf(batch []weir.Charge) (shards []string) {
	for i := range batch {
		shards = append(shards, r.f.Shard("", batch[i].Key))
	}
	return shards
}
