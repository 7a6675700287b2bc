package weir

import (
	"context"
	"iter"
)

// Pace yields 0, 1, 2 and so on, each when the limiter lets cost units go, and so at most at its rate:
//
//	for i, err := range l.Pace(ctx, 1) {
//		if err != nil {
//			return err
//		}
//		poll(i)
//	}
//
// It ends with the loop, or with an error of Wait, which it yields once: the context's, or a *LimitedError where no wait helps or where the
// next turn would come after the context's deadline. A turn is taken when the loop asks for it, after the body of the one before; what
// takes longer than the rate allows is not made up for beyond the limit's burst.
func (l *Limiter) Pace(ctx context.Context, cost int64) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := 0; ; i++ {
			if err := l.Wait(ctx, cost); !yield(i, err) || err != nil {
				return
			}
		}
	}
}

// Do waits as Wait does, and then calls fn and returns its error. Where the wait fails, fn is not called, and the error is Wait's. What fn
// was charged stays charged, however it ends: for work that may yet be called off, there is Reserve.
func (l *Limiter) Do(ctx context.Context, cost int64, fn func(context.Context) error) error {
	if err := l.Wait(ctx, cost); err != nil {
		return err
	}
	return fn(ctx)
}
