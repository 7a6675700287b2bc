package outstanding

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirflow/weir/internal/u128"
)

// A plain ledger is the rule of docs/guarantees.md as it is written there: one bound for each
// outstanding reservation.
type plain struct{ all []*plainReservation }

type plainReservation struct {
	id    ID
	bound int64
}

const unbounded = 1 << 60

func (p *plain) charged(backlog int64) {
	for _, r := range p.all {
		r.bound = min(r.bound, backlog)
	}
}

func (p *plain) giveBack(id ID, amount, backlog int64) int64 {
	i := slices.IndexFunc(p.all, func(r *plainReservation) bool { return r.id == id })
	a := p.all[i]
	given := min(amount, a.bound, backlog)
	for j, r := range p.all {
		switch {
		case j < i:
			r.bound = min(r.bound, max(a.bound-given, 0))
		case j > i && r.bound < unbounded:
			r.bound = max(r.bound-given, 0)
		}
	}
	p.all = slices.Delete(p.all, i, i+1)
	return given
}

// A drawn bucket has a backlog that drains by 1 per unit of time.
type drawn struct {
	backlog int64
	cost    map[ID]int64
	ledger  Ledger
	plain   plain
	last    ID
}

func (d *drawn) charge(cost int64) {
	d.ledger.Charged(u128.From(uint64(d.backlog)))
	d.plain.charged(d.backlog)
	d.backlog += cost
}

func (d *drawn) reserve(cost int64) {
	d.charge(cost)
	d.last++
	id := d.last
	d.ledger.Add(id)
	d.cost[id] = cost
	d.plain.all = append(d.plain.all, &plainReservation{id, unbounded})
}

func (d *drawn) giveBack(t *testing.T, id ID, amount int64) {
	got := d.ledger.GiveBack(id, u128.From(uint64(amount)), u128.Uint{}, u128.From(uint64(d.backlog)))
	if want := d.plain.giveBack(id, amount, d.backlog); got != u128.From(uint64(want)) {
		t.Fatalf("%d of reservation %d are given back, want %d", got.Lo, id, want)
	}
	d.backlog -= int64(got.Lo)
	delete(d.cost, id)
}

// any draws an outstanding reservation; there must be one.
func (d *drawn) any(rnd *rand.Rand) ID { return d.plain.all[rnd.IntN(len(d.plain.all))].id }

func TestLedgerIsThePlainRule(t *testing.T) {
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		d := drawn{cost: map[ID]int64{}}
		for range 300 {
			switch n := rnd.IntN(10); {
			case n < 4:
				d.reserve(rnd.Int64N(6) + 1)
			case n < 5:
				d.charge(rnd.Int64N(6) + 1)
			case n < 6:
				d.backlog = max(d.backlog-rnd.Int64N(12), 0)
			case len(d.plain.all) == 0:
			case n < 7:
				id := d.any(rnd)
				d.ledger.Drop(id)
				d.plain.giveBack(id, 0, 0)
				delete(d.cost, id)
			default:
				id := d.any(rnd)
				d.giveBack(t, id, rnd.Int64N(d.cost[id])+1)
			}
			for i := 1; i < len(d.ledger.groups); i++ {
				if !d.ledger.groups[i-1].bound.Less(d.ledger.groups[i].bound) {
					t.Fatalf("the bounds do not rise: %+v", d.ledger.groups)
				}
			}
		}
		for len(d.plain.all) > 0 {
			id := d.any(rnd)
			d.giveBack(t, id, d.cost[id])
		}
		if !d.ledger.Empty() {
			t.Fatalf("%+v is left", d.ledger.groups)
		}
	}
}

// TestLedgerAsIfNeverCharged: after refunds, the backlog is as it would be without those charges.
func TestLedgerAsIfNeverCharged(t *testing.T) {
	type charge struct{ at, cost int64 }
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		d := drawn{cost: map[ID]int64{}}
		var now int64
		var made []*charge
		byID := map[ID]*charge{}
		for range 200 {
			switch n := rnd.IntN(6); {
			case n < 3:
				cost := rnd.Int64N(6) + 1
				d.reserve(cost)
				c := &charge{now, cost}
				made, byID[d.last] = append(made, c), c
			case n < 5:
				if len(d.plain.all) > 0 {
					id := d.any(rnd)
					amount := rnd.Int64N(d.cost[id]) + 1
					d.giveBack(t, id, amount)
					byID[id].cost -= amount
				}
			default:
				gone := rnd.Int64N(10)
				now, d.backlog = now+gone, max(d.backlog-gone, 0)
			}
			var full int64 // the time at which the bucket is full
			for _, c := range made {
				full = max(full, c.at) + c.cost
			}
			if want := max(full-now, 0); d.backlog != want {
				t.Fatalf("seed %d: the backlog is %d, without what was given back it is %d", seed, d.backlog, want)
			}
		}
	}
}

// TestLedgerIsBounded: a million reservations that nobody ends take bounded memory, those beyond
// the bound are counted, and none gives back more than it took.
func TestLedgerIsBounded(t *testing.T) {
	var l Ledger
	const n = 1_000_000
	var ids []ID
	for i := range uint64(n) {
		l.Charged(u128.From(i))
		ids = append(ids, ID(i+1))
		l.Add(ID(i + 1))
	}
	if len(l.groups) > MaxGroups || cap(l.groups) > 2*MaxGroups {
		t.Errorf("%d groups, in memory for %d", len(l.groups), cap(l.groups))
	}
	if got := l.TakeInexact(); got < n-MaxGroups || l.TakeInexact() != 0 {
		t.Errorf("%d were too many", got)
	}
	backlog := u128.From(n)
	for _, id := range slices.Backward(ids) {
		backlog = backlog.Sub(l.GiveBack(id, u128.From(1), u128.Uint{}, backlog))
	}
	if backlog.Lo > n/10 || !l.Empty() {
		t.Errorf("a backlog of %d is left, and %d groups", backlog.Lo, len(l.groups))
	}
	l.Charged(u128.From(5))
	l.Add(n + 1)
	l.Charged(u128.Uint{})
	if l.Reset(); !l.Empty() || l.TakeInexact() != 0 || cap(l.groups) > 16 {
		t.Errorf("%+v", l)
	}
}

// TestLedgerRescales: a change of the limit rescales what can be given back.
func TestLedgerRescales(t *testing.T) {
	var l Ledger
	l.Charged(u128.Uint{})
	l.Add(1)
	l.Charged(u128.From(3))
	l.Add(2)
	l.Charged(u128.From(9))
	l.Add(3)
	l.Rescale(func(v u128.Uint) u128.Uint { return u128.From(v.Lo / 9) })
	for id, want := range map[ID]uint64{1: 0, 2: 1, 3: 7} {
		clone := l
		clone.groups = slices.Clone(l.groups)
		if got := clone.GiveBack(id, u128.From(7), u128.Uint{}, u128.From(8)); got.Lo != want {
			t.Errorf("of reservation %d %d are given back, want %d", id, got.Lo, want)
		}
	}
}
