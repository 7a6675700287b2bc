package keyed_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

func TestAllOfAKey(t *testing.T) {
	now := int64(0)
	second, hour := weir.TokenBucket{Rate: weir.PerSecond(2), Burst: 2}, weir.SlidingLog{Limit: 3, Window: time.Hour}
	l, err := keyed.New[string](weir.All(second, hour), keyed.Options{Name: "api", Clock: func() int64 { return now }, Timers: neverFires, MaxKeys: 2, Full: keyed.Refuse})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Take("a", 2)
	if d := l.Take("a", 1); d.Allowed || d.By != "api/token_bucket.1" || d.RetryAfter != time.Second/2 {
		t.Errorf("%+v", d)
	}
	if d := l.Peek("b", 2); !d.Allowed || d.By != "api/token_bucket.1" {
		t.Errorf("%+v", d)
	}
	r, _ := l.Reserve("b", 2, 0)
	r.Cancel()
	if d := l.Take("b", 2); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := l.Take("c", 1); d.Allowed || d.By != "api" || d.RetryAfter != time.Hour {
		t.Errorf("no room: %+v", d)
	}
	now = int64(time.Second)
	if p, d := l.Join("a", 2, -1); p == nil || d.By != "api/sliding_log.2" || p.Delay() != time.Hour-time.Second {
		t.Errorf("%+v", d)
	}
	now += int64(time.Minute)
	if err := l.SetLimit(weir.All(hour, weir.FixedWindow{Limit: 100, Window: time.Hour, Align: weir.AlignFirst})); err != nil {
		t.Fatal(err)
	}
	if d := l.Take("b", 2); d.Allowed || d.By != "api/sliding_log.1" || d.RetryAfter != time.Hour-time.Duration(now) {
		t.Errorf("%+v", d)
	}
	now = int64(3 * time.Hour)
	if d := l.Take("c", 1); !d.Allowed {
		t.Errorf("%+v", d)
	}

	// A part that starts with less than its capacity never equals that of a new key.
	l, err = keyed.New[string](weir.All(hour, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5, Initial: weir.InitialEmpty}),
		keyed.Options{Clock: func() int64 { return now }, Timers: neverFires, MaxKeys: 1, Full: keyed.Refuse})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Take("a", 1)
	now += int64(24 * time.Hour)
	if d := l.Take("b", 1); d.Allowed || d.RetryAfter != weir.Never {
		t.Errorf("a key was evicted: %+v", d)
	}
}
