package weirkv

import (
	"context"
	"time"
)

// update writes a try by a driver that lets nobody else write in between. If another node has written the key
// since it was read, or callers have left while the driver waited, the requests are evaluated anew within the
// write. The results are as those of attempt.
func (r *round) update(ctx context.Context, u Updater, t *try) (done, conflict bool, err error) {
	var again, found bool
	r.s.swaps.Add(1)
	next, err := u.Update(ctx, r.key, func(item Item) (value []byte, ttl time.Duration, write bool) {
		if r.dropLeft() {
			t = new(try)
			return nil, 0, false
		}
		if item.Revision != r.item.Revision {
			r.s.lost.Add(1)
			r.item, r.fresh, r.moved = item, true, nil
			if earlier := r.found(); earlier != nil {
				t, found = earlier, true
				return nil, 0, false
			}
			t = nil
		}
		if t == nil || len(t.requests) != len(r.batch) {
			t = r.s.evaluate(r.item, r.batch, r.moved)
			if again = len(t.unknown) > 0 || len(t.moves) > 0; again { // these need keys of their own first
				return nil, 0, false
			}
		}
		return t.value, t.ttl, t.write > 0
	})
	r.s.heard(err, true)
	switch {
	case err != nil:
		r.have = false
		r.s.rememberItem(r.key, Item{})
		if t.write > 0 && !found && !again {
			r.unknown = append(r.unknown, t)
		}
		return false, false, err
	case again:
		return false, true, nil // on the item that has just been read
	case found || t.write == 0:
		r.s.rememberItem(r.key, r.item)
	default:
		r.s.rememberItem(r.key, Item{t.value, next})
	}
	return r.delivered(t), false, nil
}
