package attached

import (
	"sync"
	"testing"
)

// TestOf: a value of each type is made once, and not at all if that panics.
func TestOf(t *testing.T) {
	var b Box
	func() {
		defer func() { _ = recover() }()
		Of(&b, func() int { panic("no") })
	}()
	var all sync.WaitGroup
	made := 0
	for range 8 {
		all.Go(func() {
			if n := Of(&b, func() int { made++; return 7 }); n != 7 {
				t.Errorf("%d", n)
			}
			if s := Of(&b, func() string { return "s" }); s != "s" {
				t.Error(s)
			}
		})
	}
	all.Wait()
	if made != 1 || len(b.values) != 2 {
		t.Errorf("made %d times, %d values", made, len(b.values))
	}
}
