package outstanding

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// plainPromises are promises as one list, with a step for each charge.
type plainPromises []promised

func (l plainPromises) joined() (all plainPromises) {
	for _, p := range l {
		if n := len(all); n > 0 && p.id == 0 && all[n-1].id == 0 {
			last := &all[n-1]
			if goes := p.goes.Sub(last.cost); last.goes.Less(goes) {
				last.goes = goes
			}
			last.cost = last.cost.Add(p.cost)
		} else {
			all = append(all, p)
		}
	}
	return all
}

// check compares both lists.
func (l plainPromises) check(t *testing.T, got *promises, seed uint64) {
	t.Helper()
	var all plainPromises
	room := 0
	for i, b := range got.blocks {
		all = append(all, b.charges...)
		room += cap(b.charges)
		if len(b.charges) == 0 || i > 0 && len(got.blocks[i-1].charges)+len(b.charges) <= blockSize {
			t.Fatalf("seed %d: block %d of %d has %d charges", seed, i, len(got.blocks), len(b.charges))
		}
	}
	if got.spare != nil {
		room += cap(got.spare.charges)
	}
	if !slices.Equal(l, all) || got.size != len(all) || got.room != room {
		t.Fatalf("seed %d: %d charges, room for %d:\n%v\nwant\n%v", seed, got.size, got.room, all, l)
	}
	z := at(1000)
	for i := range l {
		z = l[i].after(z)
	}
	if got.after(at(1000)) != z {
		t.Fatalf("seed %d: %v after all, want %v", seed, got.after(at(1000)), z)
	}
	if len(l) > 0 && l[0].id != 0 {
		want := slices.ContainsFunc(l, func(p promised) bool { return p.goes.Less(l[0].goes) })
		if got.overtaken() != want {
			t.Fatalf("seed %d: overtaken %v, want %v", seed, !want, want)
		}
	}
}

// TestPromises: blocks have the effect of a list, in any order of additions and ends.
func TestPromises(t *testing.T) {
	overtaken, most := 0, 0
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
				want = append(want, p).joined()
			case n < 13 && len(want) > 0:
				got.remove(0, 0)
				want = slices.Delete(want, 0, 1)
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
				want = slices.DeleteFunc(want, func(p promised) bool { return p.cost.IsZero() }).joined()
			}
			want.check(t, &got, seed)
			if len(want) > 0 && want[0].id != 0 && got.overtaken() {
				overtaken++
			}
			most = max(most, len(got.blocks))
		}
		if _, _, ok := got.find(last + 1); ok {
			t.Fatalf("seed %d: found what is not there", seed)
		}
	}
	if overtaken < 300 || most < 10 {
		t.Errorf("%d were overtaken, at most %d blocks", overtaken, most)
	}
}
