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
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
