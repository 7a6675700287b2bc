package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestGiveBack: the count of a FixedWindow is lowered, at most to nothing, in its window only; a waiter
// goes as soon as there is room. No other limit can do so.
func TestGiveBack(t *testing.T) {
	now := func() int64 { return 0 }
	l, err := weir.New(weir.FixedWindow{Limit: 5, Window: time.Hour}, weir.WithClock(now), weir.WithWallClock(now))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ take, back, remaining int64 }{{4, 1, 2}, {1, 100, 5}, {5, 0, 0}, {0, -3, 0}, {0, 2, 2}} {
		l.Take(c.take)
		if d, ok := l.GiveBack(c.back); !ok || d.Remaining != c.remaining {
			t.Errorf("%+v: %+v, %t", c, d, ok)
		}
	}
	bucket, err := weir.New(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}, weir.WithClock(now), weir.WithWallClock(now))
	if err != nil {
		t.Fatal(err)
	}
	bucket.Take(3)
	if d, ok := bucket.GiveBack(1); ok || d.Remaining != 2 {
		t.Errorf("a bucket: %+v, %t", d, ok)
	}
}
