package outstanding

import (
	"slices"
	"testing"

	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/internal/u128"
)

// TestForgedBuckets: bytes that Append never writes are refused. Each of these was once read, and what was
// written after a later charge could not be read: its key was lost.
func TestForgedBuckets(t *testing.T) {
	const newest = 9 // as in bucketWith
	for name, b := range map[string]*Bucket{
		"the last ID is later than the newest":             {ledger: Ledger{groups: []group{{3, 1, u128.Max()}}}, last: newest + 1},
		"the last ID is earlier than one in the ledger":    {ledger: Ledger{groups: []group{{3, 1, u128.Max()}}}, last: 2},
		"a promised charge is older than one in a ledger":  bucketWith(u128.Uint{}, []group{{3, 1, u128.Max()}}, promised{2, at(7), at(1)}),
		"a promised charge is one that is in the ledger":   bucketWith(u128.Uint{}, []group{{3, 1, u128.Max()}}, promised{3, at(7), at(1)}),
		"times beyond the clock before promised charges":   bucketWith(u128.Max(), nil, promised{2, at(7), at(1)}),
		"times beyond the clock after promised charges":    bucketWith(u128.Uint{}, nil, promised{2, at(7), u128.Uint{Hi: 1 << 63}}),
		"more reservations in a group than it has IDs":     {ledger: Ledger{groups: []group{{3, 3, at(4)}, {5, 1, u128.Max()}}}, last: newest},
		"more reservations in the last group than are IDs": {ledger: Ledger{groups: []group{{3, 8, u128.Max()}}}, last: newest},
		"a ledger that begins with no reservation":         {ledger: Ledger{groups: []group{{0, 1, u128.Max()}}}, last: newest},
	} {
		r := packed.NewReader(b.Append(nil))
		if new(Bucket).Read(r, newest); r.Err() == nil {
			t.Errorf("%s: read without an error", name)
		}
	}
}

func bucketWith(before u128.Uint, groups []group, promises ...promised) *Bucket {
	b := &Bucket{ledger: Ledger{groups: groups}, before: before, last: 9}
	for _, p := range promises {
		b.promised.makeRoom()
		b.promised.add(p, p.id)
	}
	return b
}

// TestChangedBuckets: whatever is changed in a bucket that was written, it is not read, or what is written after
// later calls can be read.
func TestChangedBuckets(t *testing.T) {
	random := seeds.Of("changed buckets")
	read := 0
	for range 20_000 {
		b := &bucketOf{burst: 20, passes: []int64{-1, 5, 20}[random.IntN(3)], open: map[ID]*work{}}
		step := func() {
			b.now += random.Int64N(4)
			cost := 1 + random.Int64N(6)
			goes, ok := b.plan(cost)
			switch id := ID(0); {
			case ok && random.IntN(3) > 0:
				b.last++
				id = b.last
				fallthrough
			case ok && goes == b.now:
				b.charge(id, goes, cost)
			}
			if id := ID(random.Uint64N(uint64(b.last) + 1)); b.open[id] != nil && random.IntN(3) == 0 {
				b.settle(id, random.Int64N(b.open[id].cost+1))
			}
		}
		for range 1 + random.IntN(20) {
			step()
		}
		whole := b.held.Append(nil)
		r := packed.NewReader(whole)
		if new(Bucket).Read(r, b.last); r.End() != nil {
			t.Fatalf("%x is not read, although it was written", whole)
		}
		changed := slices.Clone(whole)
		for range 1 + random.IntN(3) {
			changed[random.IntN(len(changed))] = []byte{byte(random.IntN(256)), byte(random.IntN(8))}[random.IntN(2)]
		}
		r = packed.NewReader(changed)
		b.held = Bucket{}
		if b.held.Read(r, b.last); r.End() != nil {
			continue
		}
		read++
		for range 1 + random.IntN(6) {
			step()
			written := b.held.Append(nil)
			r = packed.NewReader(written)
			if new(Bucket).Read(r, b.last); r.End() != nil {
				t.Fatalf("%x was changed to %x, and became %x, which is not read", whole, changed, written)
			}
		}
	}
	if read < 1000 {
		t.Errorf("only %d changed buckets were read", read)
	}
}
