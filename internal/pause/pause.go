// Package pause waits for a time that a context can cut short.
package pause

import (
	"context"
	"time"
)

// For waits for a duration, or until the context ends: then it returns the context's error.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return Until(ctx, timer.C)
}

// Until waits until a channel can be read, or the context ends: then it returns the context's error.
func Until[T any](ctx context.Context, done <-chan T) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
