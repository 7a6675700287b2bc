package outstanding

import (
	"math/rand/v2"
	"testing"

	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/u128"
)

// bytes is a Budget.
type bytes struct{ left, total int }

func (b *bytes) Take(n int) bool {
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *bytes) Return(n int) { b.left += n }

// TestBucketsWithoutRoom: in a budget that is too small, no interval is over the bound, no more is given back than the charges that are left allow,
// and all bytes are returned.
func TestBucketsWithoutRoom(t *testing.T) {
	raced.Skip(t)
	inexact, coarse := uint64(0), 0
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		budget := &bytes{left: rnd.IntN(3) * 300}
		budget.total = budget.left
		b := bucketOf{burst: rnd.Int64N(30) + 10, passes: -1, open: map[ID]*work{}}
		if seed%3 == 0 {
			b.passes = rnd.Int64N(b.burst)
		}
		b.held.Within(budget)
		for range 120 {
			b.step(rnd)
			if cap(b.held.ledger.groups) > FreeEntries || b.held.promised.room > FreeEntries {
				if taken := charged[group](cap(b.held.ledger.groups)) + charged[promised](b.held.promised.room); taken != budget.total-budget.left {
					t.Fatalf("seed %d: %d bytes in use, %d taken", seed, taken, budget.total-budget.left)
				}
			}
			if b.held.ledger.coarse {
				coarse++
			}
			if want := b.again(); b.z < want && want > b.now {
				t.Fatalf("seed %d: full at %d, and by what is left at %d", seed, b.z, want)
			}
			if over := b.over(); over != "" {
				t.Fatalf("seed %d: %s", seed, over)
			}
		}
		inexact += b.held.TakeInexact()
		if b.held.Within(nil); budget.left != budget.total {
			t.Fatalf("seed %d: %d of %d bytes came back", seed, budget.left, budget.total)
		}
	}
	if inexact == 0 || coarse == 0 {
		t.Errorf("%d inexact, %d coarse: the budget was never too small", inexact, coarse)
	}
}

// TestCoarseLedgersOfFewTokens: where bounds are small numbers, as the tokens of an IntervalBucket are, all of them could differ by the least
// step, and the ledger grew beyond its bound.
func TestCoarseLedgersOfFewTokens(t *testing.T) {
	var l Ledger
	l.Within(new(bytes))
	for i := range uint64(100) {
		l.coarse = true // bounds may be 0
		l.Charged(u128.From(i % 4))
		if l.Add(ID(i + 1)); len(l.groups) > FreeEntries {
			t.Fatalf("%d groups: %+v", len(l.groups), l.groups)
		}
	}
}

// sum is an algorithm whose state is the sum of all costs.
type sum struct{}

func (sum) Again(s []int64, c Charge) []int64 { return append(s[:0], s[0]+c.Cost) }

// TestJournalsWithoutRoom keep the latest charges.
func TestJournalsWithoutRoom(t *testing.T) {
	var j Journal
	budget := new(bytes)
	j.Within(budget)
	again := sum{}
	state := []int64{0}
	for i := range int64(10) {
		c := Charge{ID: ID(i + 1), Cost: 1 << i, By: again}
		j.Charged(state, c)
		state = again.Again(state, c)
	}
	if n := j.TakeInexact(); n != 10-FreeEntries || cap(j.charges) > FreeEntries {
		t.Errorf("%d inexact, room for %d", n, cap(j.charges))
	}
	if state = j.GiveBack(state, 1, 1); state[0] != 1023 {
		t.Errorf("a charge that was pushed out gave back: %d", state[0])
	}
	if state = j.GiveBack(state, 8, 128); state[0] != 1023-128 {
		t.Errorf("%d", state[0])
	}
}
