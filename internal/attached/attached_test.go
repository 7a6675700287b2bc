package attached

import (
	"errors"
	"sync"
	"testing"
)

// TestOf: a value of each type is made once, and not at all if that panics.
func TestOf(t *testing.T) {
	var b Box
	func() {
		defer func() { _ = recover() }()
		_, _ = Of(&b, func() (int, error) { panic("no") })
	}()
	if n, err := Of(&b, func() (int, error) { return 8, errors.New("no") }); n != 8 || err == nil {
		t.Error(n, err)
	}
	var all sync.WaitGroup
	made := 0
	for range 8 {
		all.Go(func() {
			if n, err := Of(&b, func() (int, error) { made++; return 7, nil }); n != 7 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			if s, err := Of(&b, func() (string, error) { return "s", nil }); s != "s" || err != nil {
				t.Error(s, err)
			}
		})
	}
	all.Wait()
	if made != 1 || len(b.values) != 2 {
		t.Errorf("made %d times, %d values", made, len(b.values))
	}
}
