package outstanding

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirflow/weir/internal/u128"
)

// plainPromises are promises as one list, with a step for each charge. Neighbours that are not
// outstanding are joined, and keep the earliest of their times.
type plainPromises []plainPromise

type plainPromise struct {
	promised
	earliest u128.Uint
}

func (l plainPromises) joined() (all plainPromises) {
	for _, p := range l {
		if n := len(all); n > 0 && p.id == 0 && all[n-1].id == 0 {
			last := &all[n-1]
			if goes := p.goes.Sub(last.cost); last.goes.Less(goes) {
				last.goes = goes
			}
			last.cost, last.earliest = last.cost.Add(p.cost), last.earliest.Min(p.earliest)
		} else {
			all = append(all, p)
		}
	}
	return all
}

// outstanding returns the outstanding reservations.
func (l plainPromises) outstanding() (all []promised) {
	for _, p := range l {
		if p.id != 0 {
			all = append(all, p.promised)
		}
	}
	return all
}

func (l plainPromises) after(z u128.Uint) u128.Uint {
	for i := range l {
		z = l[i].after(z)
	}
	return z
}

// check compares both lists.
func (l plainPromises) check(t *testing.T, got *promises, seed uint64) {
	t.Helper()
	var all plainPromises
	room := 0
	for i, b := range got.blocks {
		for _, p := range b.charges {
			all = append(all, plainPromise{p, p.goes})
		}
		room += cap(b.charges)
		if len(b.charges) == 0 || i > 0 && len(got.blocks[i-1].charges)+len(b.charges) <= blockSize {
			t.Fatalf("seed %d: block %d of %d has %d charges", seed, i, len(got.blocks), len(b.charges))
		}
	}
	if got.spare != nil {
		room += cap(got.spare.charges)
	}
	if !slices.Equal(l.outstanding(), all.outstanding()) || got.size != len(all) || got.room != room {
		t.Fatalf("seed %d: %d charges, room for %d:\n%v\nwant\n%v", seed, got.size, got.room, all, l)
	}
	for _, z := range []int64{0, 1000, 1300, 1000000} {
		if want := l.after(at(z)); all.after(at(z)) != want || got.after(at(z)) != want {
			t.Fatalf("seed %d: %d becomes %v and %v after all, want %v", seed, z, all.after(at(z)), got.after(at(z)), want)
		}
	}
	if len(l) > 0 && l[0].id != 0 {
		want := slices.ContainsFunc(l, func(p plainPromise) bool { return p.earliest.Less(l[0].goes) })
		if got.overtaken() != want {
			t.Fatalf("seed %d: overtaken %v, want %v", seed, !want, want)
		}
	}
}

// leave removes the charges that are not outstanding before the first one that is.
func (l plainPromises) leave(got *promises) plainPromises {
	for p := got.first(); p != nil && p.id == 0; p = got.first() {
		got.remove(0, 0)
	}
	if len(l) > 0 && l[0].id == 0 {
		return slices.Delete(l, 0, 1)
	}
	return l
}

// TestPromises: blocks have the effect of a list, in any order of additions and ends.
func TestPromises(t *testing.T) {
	overtaken, most, apart := 0, 0, 0 // apart is how many charges were not joined at most
	for seed := range uint64(90) {
		rnd := rand.New(rand.NewPCG(seed, 14))
		var got promises
		var want plainPromises
		if budget := (&bytes{left: 4000}); seed%3 == 0 {
			got.within(budget)
			defer func() {
				if got.within(nil); budget.left != 4000 {
					t.Errorf("seed %d: %d bytes came back", seed, budget.left)
				}
			}()
		}
		last, jitter := ID(0), rnd.Int64N(4)
		for range 600 {
			switch n := rnd.IntN(20); {
			case n < 11 && len(want) < MaxPromised:
				if !got.makeRoom() {
					continue
				}
				p := promised{goes: at(1000 + int64(last) + rnd.Int64N(jitter+1)), cost: at(rnd.Int64N(5) + 1)}
				if rnd.IntN(4) > 0 {
					last++
					p.id = last
				}
				got.add(p, last)
				want = append(want, plainPromise{p, p.goes}).joined().leave(&got)
			case n < 13 && len(want) > 0:
				got.remove(0, 0)
				want = slices.Delete(want, 0, 1).leave(&got)
			case len(want) > 0:
				p := &want[rnd.IntN(len(want))]
				at, i, ok := got.find(p.id)
				if p.id == 0 || !ok {
					if p.id != 0 {
						t.Fatalf("seed %d: reservation %d is lost", seed, p.id)
					}
					continue
				}
				amount := p.cost
				if rnd.IntN(2) == 0 {
					amount.Lo = rnd.Uint64N(amount.Lo + 1)
				}
				got.end(at, i, amount)
				p.id, p.cost = 0, p.cost.Sub(amount)
				want = slices.DeleteFunc(want, func(p plainPromise) bool { return p.cost.IsZero() }).joined().leave(&got)
			}
			want.check(t, &got, seed)
			if len(want) > 0 && want[0].id != 0 && got.overtaken() {
				overtaken++
			}
			most, apart = max(most, len(got.blocks)), max(apart, got.size-len(want))
		}
		if _, _, ok := got.find(last + 1); ok {
			t.Fatalf("seed %d: found what is not there", seed)
		}
	}
	if overtaken < 300 || most < 8 || apart == 0 || apart > 20 {
		t.Errorf("%d were overtaken, at most %d blocks, at most %d charges were not joined", overtaken, most, apart)
	}
}
