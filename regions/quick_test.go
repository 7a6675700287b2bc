package regions

import (
	"context"

	"github.com/weirflow/weir"
)

// quick is a store of one weir.Limiter for each key: a hundred times as fast as weirtest.Store, whose
// models are exact fractions. A change of the limit converts the state, as a store does when the next
// call comes. It knows takes and peeks, and groups of takes.
type quick struct {
	now  func() int64
	keys map[string]*weir.Limiter
}

func (q *quick) Close() error { return nil }

// Do implements weir.Store.
func (q *quick) Do(_ context.Context, batch []weir.Charge, out []weir.Decision) error {
	for i := 0; i < len(batch); {
		end := i + 1
		for batch[i].Group > 0 && end < len(batch) && batch[end].Group == batch[i].Group {
			end++
		}
		admits := true
		for j := i; j < end; j++ {
			c := &batch[j]
			l, err := q.of(c)
			if err != nil {
				return err
			}
			out[j] = l.Peek(c.Cost)
			admits = admits && out[j].Allowed
		}
		for j := i; j < end && admits; j++ {
			if c := &batch[j]; c.Op == weir.OpTake {
				l, err := q.of(c)
				if err != nil {
					return err
				}
				out[j] = l.Take(c.Cost)
			}
		}
		i = end
	}
	return nil
}

// of returns the limiter of a key.
func (q *quick) of(c *weir.Charge) (*weir.Limiter, error) {
	l := q.keys[c.Name+":"+c.Key]
	if l == nil {
		l, err := weir.New(c.Limit, weir.WithClock(q.now))
		q.keys[c.Name+":"+c.Key] = l
		return l, err
	}
	if l.Limit() != c.Limit {
		return l, l.SetLimit(c.Limit)
	}
	return l, nil
}
