package keyed_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

func TestTakeAtMost(t *testing.T) {
	now := int64(0)
	l, err := keyed.New[any](weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10}, keyed.Options{
		Name: "api", Clock: func() int64 { return now }, Timers: neverFires, MaxKeys: 2, Full: keyed.Refuse,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, step := range []struct {
		key     any
		n, want int64
		retry   time.Duration
	}{
		{"a", 0, 0, 0},
		{"a", -1, 0, weir.Never},
		{"a", 7, 7, 0},
		{"a", math.MaxInt64, 3, 0},
		{"a", 2, 0, 100 * time.Millisecond},
		{"b", 100, 10, 0},
		{"c", 4, 0, time.Second},       // no room for another key
		{[]int{1}, 4, 0, weir.Never},   // not a valid key
		{math.NaN(), 4, 0, weir.Never}, // not a valid key
		{"b", 1, 0, 100 * time.Millisecond},
	} {
		n, d := l.TakeAtMost(step.key, step.n)
		if n != step.want || d.RetryAfter != step.retry || d.By != "api" {
			t.Errorf("%d for %v: %d, %+v", step.n, step.key, n, d)
		}
	}
	now = int64(time.Second / 2)
	if r, ok := l.Reserve("a", 1, 0); !ok { // the key has a limiter of its own from now on
		t.Errorf("%+v", r.Decision())
	}
	if n, d := l.TakeAtMost("a", 9); n != 4 || d.By != "api" {
		t.Errorf("%d, %+v", n, d)
	}
}
