package weir

import (
	"context"
	"iter"
)

// Pace yields 0, 1, 2 and so on, each when the limiter admits cost units, and so at most at its
// rate:
//
//	for i, err := range l.Pace(ctx, 1) {
//		if err != nil {
//			return err
//		}
//		poll(i)
//	}
//
// Pace ends with the loop, or with an error of Wait, which it yields once. That is the context's
// error, or a *LimitedError if no wait helps or if the next turn would come after the context's
// deadline.
//
// Each turn is taken when the loop asks for it, after the previous iteration's body. A body that
// takes longer than the rate allows is only made up for within the limit's burst.
func (l *Limiter) Pace(ctx context.Context, cost int64) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := 0; ; i++ {
			if err := l.Wait(ctx, cost); !yield(i, err) || err != nil {
				return
			}
		}
	}
}

// Do waits as Wait does, and then calls fn and returns its error. If the wait fails, Do returns
// Wait's error and does not call fn. The charge stays, whatever fn returns: for work that may still
// be cancelled, use Reserve.
func (l *Limiter) Do(ctx context.Context, cost int64, fn func(context.Context) error) error {
	if err := l.Wait(ctx, cost); err != nil {
		return err
	}
	return fn(ctx)
}
