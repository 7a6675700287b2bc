// Package attached keeps what one package makes once for a value of another that cannot import it,
// like the fallback of a *weir.Shared. It lives as long as that value.
package attached

import "sync"

// A Box is a part of the value. The zero value is empty. It is safe for concurrent use.
type Box struct {
	mu     sync.Mutex
	values []any // at most one of each type
}

// Of returns the T in a box. If there is none, it calls first, once also for callers at the same
// time. If first fails or panics, the box stays as it was.
func Of[T any](b *Box, first func() (T, error)) (T, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.values {
		if t, ok := v.(T); ok {
			return t, nil
		}
	}
	t, err := first()
	if err == nil {
		b.values = append(b.values, t)
	}
	return t, err
}
