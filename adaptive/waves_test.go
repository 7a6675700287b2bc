package adaptive

import (
	"testing"

	"github.com/weirflow/weir"
)

// TestWaves: requests that come in waves, each as large as the limit and more, raise it as others do.
func TestWaves(t *testing.T) {
	for initial := range int64(40) {
		now := int64(0)
		l, err := New(Options{Algorithm: Knee{Initial: initial + 1}, Clock: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			var held []Hold
			for range 200 {
				if h, ok := l.TryEnter(); ok {
					held = append(held, h)
				}
			}
			now += 10e6
			for _, h := range held {
				h.Done(weir.OK)
			}
			now += 10e6
		}
		if n := l.Limit(); n < 100 {
			t.Errorf("from %d, the limit is %d after 1000 waves of 200", initial+1, n)
		}
	}
}
