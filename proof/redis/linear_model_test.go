package redis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirtest"
)

// linear is the clock and the state of one key in the reference model, within a history. It is
// immutable: a call returns a new one.
type linear struct {
	m     *weirtest.Model
	now   int64
	ids   map[int]int // of the reservations that are not settled, by the id of the op
	marks map[int]string
	print string
}

// printed computes the text that identifies the state. A refund depends on the states before and
// after its reservation.
func (s linear) printed() linear {
	s.print = fmt.Sprint(s.now, s.m)
	for _, id := range slices.Sorted(maps.Keys(s.ids)) {
		s.print += fmt.Sprint(" ", id, s.marks[id])
	}
	return s
}

// after makes a call, and reports whether the outcome is the recorded one.
func (s linear) after(o op, seen outcome) (linear, bool) {
	next := linear{m: s.m, now: s.now, ids: s.ids, marks: s.marks}
	if o.verb != "move" {
		next.m = s.m.Clone()
	}
	if o.verb == "reserve" || o.verb == "settle" {
		next.ids, next.marks = clone(s.ids), clone(s.marks)
	}
	var got outcome
	switch o.verb {
	case "take":
		got.d = next.m.Take(s.now, o.cost)
	case "peek":
		got.d = next.m.Peek(s.now, o.cost)
	case "reserve":
		var id int
		if id, got.delay, got.d = next.m.Reserve(s.now, o.cost, o.within); got.d.Allowed {
			got.ok, next.ids[o.id], next.marks[o.id] = true, id, fmt.Sprint(s.m, next.m)
		} else {
			got.delay = got.d.RetryAfter
		}
	case "settle":
		next.m.Settle(s.now, s.ids[o.id], o.cost)
		delete(next.ids, o.id)
		delete(next.marks, o.id)
	case "move":
		next.now += step
		got.now = next.now
	}
	if got.plain() != seen.plain() {
		return s, false
	}
	return next.printed(), true
}

// plain drops By and Source, which the model does not have.
func (o outcome) plain() outcome {
	o.d.By, o.d.Source = "", 0
	return o
}

func clone[V any](m map[int]V) map[int]V {
	c := make(map[int]V, len(m)+1)
	maps.Copy(c, m)
	return c
}

// linearModel returns the model for the checker. Each key has its own history, in which the clock
// moves too.
func linearModel(l weir.Limit) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return linear{m: weirtest.NewStoreModel(l, time.Microsecond), now: epoch}.printed() },
		Step: func(state, input, output any) (bool, any) {
			next, ok := state.(linear).after(input.(op), output.(outcome))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(linear).print == b.(linear).print },
		Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
			keys := map[string]bool{}
			for _, o := range history {
				keys[o.Input.(op).key] = true
			}
			for key := range keys {
				var part []porcupine.Operation
				for _, o := range history {
					if in := o.Input.(op); in.key == key || in.verb == "move" {
						part = append(part, o)
					}
				}
				parts = append(parts, part)
			}
			return parts
		},
	}
}

// linearizable checks a history, and describes it.
func linearizable(t *testing.T, l weir.Limit, history []porcupine.Operation) porcupine.CheckResult {
	t.Helper()
	refused, overlapping, returned := 0, 0, int64(0)
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range history {
		if in, out := o.Input.(op), o.Output.(outcome); in.verb != "settle" && in.verb != "move" && !out.d.Allowed {
			refused++
		}
		if o.Call < returned {
			overlapping++
		}
		returned = max(returned, o.Return)
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(linearModel(l), history, time.Minute)
	t.Logf("%d calls of %d threads, %d refused, %d overlapping: %v in %v", len(history), threads, refused, overlapping, result, time.Since(began).Round(time.Millisecond))
	if refused < 50 || overlapping < 100 {
		t.Error("the history is too tame")
	}
	return result
}

// playing returns a player of a limit on a server of its own.
func playing(t *testing.T, l weir.Limit, plant func(*player, *weirredis.Store) shared) *player {
	t.Helper()
	p := &player{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr), clock: "clock"}
	redis(t, p.client, "HSET", p.clock, "s", fmt.Sprint(epoch/1_000_000), "us", "0")
	store := open(t, p.client, weirredis.Options{ClockKey: p.clock, Grace: time.Hour})
	s, err := weir.NewShared(l, store, weir.Named(weir.Algorithm(l)))
	if err != nil {
		t.Fatal(err)
	}
	p.shared = s
	if plant != nil {
		p.shared = plant(p, store)
	}
	return p
}

// TestSharedLimitsAreLinearizable: threads that call concurrently, through one store and a real
// server, see what they would have seen one after the other.
func TestSharedLimitsAreLinearizable(t *testing.T) {
	for name, l := range linearLimits {
		t.Run(name, func(t *testing.T) {
			seed := seeds.Of(t.Name()).Uint64()
			verbs := []string{"take", "take", "take", "peek", "reserve", "reserve", "settle", "settle", "move", "move", "move"}
			result := porcupine.Unknown
			for try := 0; result == porcupine.Unknown && try < 4; try++ { // some histories take the checker minutes
				result = linearizable(t, l, playing(t, l, nil).history(t, seed, []string{"a", "b", "c"}, verbs))
			}
			if result != porcupine.Ok {
				t.Errorf("seed %d: no order of the calls explains what was seen", seed)
			}
		})
	}
}

// TestPlantedRaceIsCaught: a store that reads and writes in two steps is not linearizable, and the
// same check finds that.
func TestPlantedRaceIsCaught(t *testing.T) {
	l := linearLimits["TokenBucket"]
	p := playing(t, l, func(p *player, s *weirredis.Store) shared {
		return &twoSteps{p: p, rule: must(weir.Prepare(l, time.Microsecond))}
	})
	if linearizable(t, l, p.history(t, seeds.Of(t.Name()).Uint64(), []string{"a", "b"}, []string{"take", "take", "take", "peek", "move"})) != porcupine.Illegal {
		t.Error("it passed")
	}
}

// twoSteps reads a state and the clock in one step of the server's, decides here, and writes in
// another one, over what others wrote.
type twoSteps struct {
	p    *player
	rule weir.Prepared
}

func (s *twoSteps) read(ctx context.Context, key string) (state []int64, now int64) {
	c := s.p.client
	for i, r := range c.DoMulti(ctx, c.B().Multi().Build(), c.B().Hget().Key(s.p.clock).Field("us").Build(),
		c.B().Lrange().Key("two:"+key).Start(0).Stop(-1).Build(), c.B().Exec().Build()) {
		if i != 3 {
			must(0, r.Error())
			continue
		}
		replies := must(r.ToArray())
		now, state = must(replies[0].AsInt64()), must(replies[1].AsIntSlice())
	}
	return state, epoch + now
}

func (s *twoSteps) Take(ctx context.Context, key string, cost int64) (weir.Decision, error) {
	state, now := s.read(ctx, key)
	next, d := s.rule.Step(state, now, cost)
	if d.Allowed {
		c := s.p.client
		push := c.B().Rpush().Key("two:" + key).Element()
		for _, n := range next {
			push = push.Element(fmt.Sprint(n))
		}
		for _, r := range c.DoMulti(ctx, c.B().Multi().Build(), c.B().Del().Key("two:"+key).Build(), push.Build(), c.B().Exec().Build()) {
			must(0, r.Error())
		}
	}
	return d, nil
}

func (s *twoSteps) Peek(ctx context.Context, key string, cost int64) (weir.Decision, error) {
	state, now := s.read(ctx, key)
	return s.rule.Peek(state, now, cost), nil
}

func (s *twoSteps) Reserve(context.Context, string, int64, time.Duration) (*weir.SharedReservation, bool, error) {
	panic("it does not know reservations")
}
