// Package held calls a function while a place is held, and ends the hold with the outcome.
package held

import (
	"context"
	"errors"
)

// A Hold is a place that is held. O is weir.Outcome.
type Hold[O ~uint8] interface{ Done(O) }

// The outcomes of package weir, which imports this one.
const (
	ok = iota
	ignore
	dropped
)

// Do calls fn, ends the hold and returns fn's error. The outcome depends on how fn ends:
//
//   - OK: fn returns nil.
//   - Dropped: fn returns an error in which errors.Is finds context.DeadlineExceeded or limited
//     (weir.ErrLimited); or fn panics or ends the goroutine, which Do lets continue.
//   - Ignore: fn returns any other error, such as context.Canceled.
func Do[O ~uint8, H Hold[O]](ctx context.Context, h H, limited error, fn func(context.Context) error) error {
	outcome := O(dropped)
	defer func() { h.Done(outcome) }()
	err := fn(ctx)
	switch {
	case err == nil:
		outcome = ok
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, limited):
		outcome = ignore
	}
	return err
}
