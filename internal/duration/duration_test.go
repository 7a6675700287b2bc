package duration_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/duration"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "+1s": time.Second, "-1s": -time.Second, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond, "1µs": time.Microsecond,
		"1d": day, "2w": 14 * day, "1w1d1h1ms": 8*day + time.Hour + time.Millisecond, "-1d12h": -36 * time.Hour, "1d0": day, "106751d": 106751 * day,
	} {
		if got, err := duration.Parse(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "+", "d", "w", "1", "s", "1.5d", "1d1w", "1d1d", "1h1d", "+1d", "1d-1h", "1d+1h", "--1s", "-+1s",
		"106752d", "99999999999999999999d", "106751d24h", "15250w2d", " 1s", "1 d", "1day", "1m "} {
		if got, err := duration.Parse(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestFormat(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 500 * time.Millisecond: "500ms", 10 * time.Second: "10s", 90 * time.Minute: "1h30m", time.Hour: "1h", 20 * time.Minute: "20m",
		24 * time.Hour: "1d", 36 * time.Hour: "1d12h", 25*time.Hour + 500*time.Microsecond: "1d1h0m0.0005s", math.MaxInt64: "106751d23h47m16.854775807s", -time.Hour: "-1h0m0s",
	} {
		got := duration.Format(d)
		if back, err := duration.Parse(got); got != want || err != nil || back != d {
			t.Errorf("%v: %q, read back as %v, %v", int64(d), got, back, err)
		}
	}
}
