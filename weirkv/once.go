package weirkv

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/packed"
)

// A settlement with a Once was carried out. The value of the key holds the latest ones. Older ones move to keys
// of their own, where they stay until they expire: in the value, each would make all writes longer, and without
// them a repeat would be carried out.
type settlement struct {
	id    uint64 // a hash of its Once
	until int64  // for how long it is remembered
	read  bool   // it is in the value that was read, and not of this call
}

func onceID(once string) uint64 {
	sum := sha256.Sum256([]byte(once))
	return binary.BigEndian.Uint64(sum[:])
}

// onceKey is the key of a settlement's own. No limit has such a key: an escape is = and a digit, a capital or a dot.
func onceKey(key string, id uint64) string { return fmt.Sprintf("%s=o%016x", key, id) }

// remembered is how long a settlement is kept after now.
func remembered(until, now int64) int64 { return min(until-min(now, until), int64(day/unit)) }

// firstTime reports whether a settlement with a Once has not been carried out, and notes that it is.
func (t *turn) firstTime(c *weir.Charge) bool {
	id := onceID(c.Once)
	if slices.ContainsFunc(t.once, func(o settlement) bool { return o.id == id && o.until > t.now }) {
		return false
	}
	if t.movedFor > t.now {
		until, known := t.moved[id]
		if !known {
			t.unknown = append(t.unknown, id)
		}
		if until > t.now {
			return false
		}
	}
	t.once = append(t.once, settlement{id: id, until: t.now + min(int64(c.OnceFor/unit), math.MaxInt64-max(t.now, 0))})
	t.dirty = true
	return true
}

// dropOnce drops the settlements that have expired. If too many are left, older ones have to move. Those of this
// call stay: the write that carries them out may fail.
func (e *entry) dropOnce(now int64) {
	e.once = slices.DeleteFunc(e.once, func(o settlement) bool { return o.until <= now })
	if e.movedFor <= now {
		e.movedFor = 0
	}
	if len(e.once) <= e.keepsOnce {
		return
	}
	n := 0
	for n < len(e.once)-e.keepsOnce/2 && e.once[n].read {
		n++
	}
	e.moves, e.once = e.once[:n], e.once[n:]
	for _, o := range e.moves {
		e.movedFor = max(e.movedFor, o.until)
	}
}

// lookUp finds out which settlements have keys of their own.
func (r *round) lookUp(ctx context.Context, ids []uint64) error {
	until := make([]int64, len(ids))
	err := together(len(ids), func(i int) error {
		item, err := r.s.kv.Get(ctx, onceKey(r.key, ids[i]))
		until[i] = movedUntil(item)
		return err
	})
	if r.s.heard(err, false); err != nil {
		return err
	}
	if r.moved == nil {
		r.moved = make(map[uint64]int64, len(ids))
	}
	for i, id := range ids {
		r.moved[id] = until[i]
	}
	return nil
}

// movedUntil is until when the settlement counts that a key of its own holds; 0 without one. One that cannot be read counts: to
// carry it out again would give back too much.
func movedUntil(item Item) int64 {
	if item.Revision == 0 {
		return 0
	}
	r := packed.NewReader(item.Value)
	until := r.Int()
	if r.End() != nil {
		return math.MaxInt64
	}
	return until
}

// move writes settlements to keys of their own, before the value is written without them. If that write then
// fails, they are in both places, which changes nothing.
func (r *round) move(ctx context.Context, t *try) error {
	return together(len(t.moves), func(i int) error {
		o := t.moves[i]
		key, value := onceKey(r.key, o.id), packed.Int(nil, o.until)
		ttl := time.Duration(remembered(o.until, t.now))*unit + time.Minute // nodes may see an earlier time than this one
		for revision := uint64(0); ; {
			_, swapped, err := r.s.kv.CompareAndSwap(ctx, key, revision, value, ttl)
			if err != nil || swapped {
				return err
			}
			item, err := r.s.kv.Get(ctx, key)
			if err != nil || movedUntil(item) >= o.until {
				return err
			}
			revision = item.Revision
		}
	})
}

// together does several things, some at a time. The error is that of any that failed.
func together(n int, do func(i int) error) error {
	const most = 32
	errs := make([]error, n)
	var wg sync.WaitGroup
	for first := range min(n, most) {
		wg.Go(func() {
			for i := first; i < n; i += most {
				if errs[i] = do(i); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
