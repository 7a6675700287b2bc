package proof

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
)

// TestModelInOrder: calls one after another have the outcomes of the model, with readings of the
// clock that are older than those before them, as concurrent calls have them. What concurrent
// histories find once in many runs, and slowly, this finds with a fixed seed.
func TestModelInOrder(t *testing.T) {
	for i, limits := range append([][]weir.Limit{linearBuckets[:2], linearBuckets[2:]}, linearOthers...) {
		t.Run(fmt.Sprintf("%T %d", limits[0], i), func(t *testing.T) {
			first := seeds.Of(t.Name()).Uint64()
			for seed := first; seed < first+60; seed++ {
				if !inOrder(t, limits, seed) {
					return
				}
			}
		})
	}
}

// inOrder plays 200 calls, half of which make or settle reservations, and reports whether all
// outcomes were those of the model.
func inOrder(t *testing.T, limits []weir.Limit, seed uint64) bool {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	var clock, reading int64
	l, err := weir.New(limits[0], weir.WithClock(func() int64 { return reading }), weir.WithTimers(noTimers))
	if err != nil {
		t.Fatal(err)
	}
	verbs, within := linearVerbs, int64(8000)
	if seed%2 == 0 { // a limit that does not change, with long reservations
		verbs, within = []verb{take, reserve, reserve, settle, settle}, 20_000
	}
	model, open, told := newLinear(limits[0]), []op{}, ""
	made := map[int]reservation{}
	for id := range 200 {
		o := op{id: id}
		o.verb, o.cost, o.within = verbs[r.IntN(len(verbs))], 1+r.Int64N(2), r.Int64N(within)-1
		switch {
		case o.verb == set && r.IntN(4) != 0:
			o.verb = peek
		case o.verb == set:
			o.limit = limits[r.IntN(len(limits))]
		case o.verb == settle && len(open) == 0:
			o.verb = take
		case o.verb == settle:
			n := r.IntN(len(open))
			o.id, o.cost = open[n].id, max(0, r.Int64N(6)-3)
			open = slices.Delete(open, n, n+1)
		}
		clock += step * max(0, r.Int64N(4)-1)
		reading = max(0, clock-step*max(0, r.Int64N(6)-3))
		o.reading = reading
		out, kept := single{l}.do("", o.call, made[o.id])
		if out.ok {
			open, made[id] = append(open, o), kept
		}
		told += fmt.Sprintf("%d: at %d %+v: %+v\n", o.id, o.reading, o.call, out)
		next, ok := model.at(o, out)
		if !ok {
			t.Errorf("seed %d: the model says otherwise about the last of these calls, its state is %s\n%s", seed, model.print, told)
			return false
		}
		model = next
	}
	return true
}
