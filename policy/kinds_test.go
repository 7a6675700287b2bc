package policy_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

const day = 24 * time.Hour

// TestEveryKind: each algorithm is read from the fields of a file and from the texts of a script.
// It says when a cost is too large, and what RateLimit-Policy shows of it.
func TestEveryKind(t *testing.T) {
	for _, c := range []struct {
		kind   string
		fields string // name=value, as in a script
		file   map[string]any
		want   weir.Limit
		most   string        // the largest cost and the parameter that sets it; empty if no cost is too large
		window time.Duration // of RateLimit-Policy; 0 for none
	}{
		{"token_bucket", "rate=6/m burst=5", map[string]any{"rate": "6/m", "burst": 5},
			weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 5}, "a burst of 5", 50 * sec},
		{"token_bucket", "rate=6/m burst=5 initial=empty", map[string]any{"rate": "6/m", "burst": int64(5), "initial": "empty"},
			weir.TokenBucket{Rate: weir.PerMinute(6), Burst: 5, Initial: weir.InitialEmpty}, "a burst of 5", 50 * sec},
		{"leaky_bucket", "rate=1/s", map[string]any{"rate": "1/s"},
			weir.LeakyBucket{Rate: weir.PerSecond(1)}, "served) of 1", sec},
		{"leaky_bucket", "rate=10/s queue=4 delay_after=2", map[string]any{"rate": "10/s", "queue": 4, "delay_after": 2.0},
			weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 4, DelayAfter: 2}, "served) of 5", 500 * time.Millisecond},
		{"interval_bucket", "burst=10 refill=3 every=1m", map[string]any{"burst": 10, "refill": 3, "every": "1m"},
			weir.IntervalBucket{Burst: 10, Refill: 3, Every: time.Minute}, "a burst of 10", 4 * time.Minute},
		{"fixed_window", "limit=100 window=1d", map[string]any{"limit": 100, "window": "1d"},
			weir.FixedWindow{Limit: 100, Window: day}, "a limit of 100", day},
		{"fixed_window", "limit=100 window=1h30m align=first", map[string]any{"limit": 100, "window": "1h30m", "align": "first"},
			weir.FixedWindow{Limit: 100, Window: 90 * time.Minute, Align: weir.AlignFirst}, "a limit of 100", 90 * time.Minute},
		{"fixed_window", "limit=100 align=month:Europe/Berlin", map[string]any{"limit": 100, "align": "month:Europe/Berlin"},
			weir.FixedWindow{Limit: 100, Align: "month:Europe/Berlin"}, "a limit of 100", 31 * day},
		{"fixed_window", "limit=1 align=day", map[string]any{"limit": 1, "align": "day"}, weir.FixedWindow{Limit: 1, Align: "day"}, "a limit of 1", day},
		{"fixed_window", "limit=1 align=week-sunday", map[string]any{"limit": 1, "align": "week-sunday"},
			weir.FixedWindow{Limit: 1, Align: "week-sunday"}, "a limit of 1", 7 * day},
		{"fixed_window", "limit=1 align=year:Asia/Tokyo", map[string]any{"limit": 1, "align": "year:Asia/Tokyo"},
			weir.FixedWindow{Limit: 1, Align: "year:Asia/Tokyo"}, "a limit of 1", 366 * day},
		{"sliding_window", "limit=100 window=1s slots=10 slot_limit=20", map[string]any{"limit": 100, "window": "1s", "slots": 10, "slot_limit": 20},
			weir.SlidingWindow{Limit: 100, Window: sec, Slots: 10, SlotLimit: 20}, "a slot_limit of 20", sec},
		{"sliding_window", "limit=100 window=1m slots=6", map[string]any{"limit": 100, "window": "1m", "slots": int64(6)},
			weir.SlidingWindow{Limit: 100, Window: time.Minute, Slots: 6}, "a limit of 100", time.Minute},
		{"sliding_counter", "limit=100 window=1w", map[string]any{"limit": 100, "window": "1w"},
			weir.SlidingCounter{Limit: 100, Window: 7 * day}, "a limit of 100", 7 * day},
		{"sliding_log", "limit=100 window=1d12h", map[string]any{"limit": 100, "window": "1d12h"},
			weir.SlidingLog{Limit: 100, Window: 36 * time.Hour}, "a limit of 100", 36 * time.Hour},
		{"sliding_log", "limit=100 window=1m max_entries=10", map[string]any{"limit": 100, "window": "1m", "max_entries": 10},
			weir.SlidingLog{Limit: 100, Window: time.Minute, MaxEntries: 10}, "a limit of 100", time.Minute},
		{"smooth_bursty", "rate=10/s", map[string]any{"rate": "10/s"}, weir.SmoothBursty{Rate: weir.PerSecond(10)}, "", sec},
		{"smooth_bursty", "rate=10/s max_burst=10s", map[string]any{"rate": "10/s", "max_burst": "10s"},
			weir.SmoothBursty{Rate: weir.PerSecond(10), MaxBurst: 10 * sec}, "", 10 * sec},
		{"smooth_bursty", "rate=10/s max_burst=none", map[string]any{"rate": "10/s", "max_burst": "none"},
			weir.SmoothBursty{Rate: weir.PerSecond(10), MaxBurst: -1}, "", 0},
		{"smooth_bursty", "rate=unlimited", map[string]any{"rate": "unlimited"}, weir.SmoothBursty{Rate: weir.Unlimited}, "", sec},
		{"warm_up", "rate=10/s period=5s", map[string]any{"rate": "10/s", "period": "5s"},
			weir.WarmUp{Rate: weir.PerSecond(10), Period: 5 * sec}, "", 5 * sec},
		{"warm_up", "rate=unlimited period=5s cold_factor=1.5", map[string]any{"rate": "unlimited", "period": "5s", "cold_factor": 1.5},
			weir.WarmUp{Rate: weir.Unlimited, Period: 5 * sec, ColdFactor: 1.5}, "", 5 * sec},
		{"warm_up", "rate=10/s period=5s cold_factor=2", map[string]any{"rate": "10/s", "period": "5s", "cold_factor": int64(2)},
			weir.WarmUp{Rate: weir.PerSecond(10), Period: 5 * sec, ColdFactor: 2}, "", 5 * sec},
	} {
		script := map[string]any{}
		for word := range strings.FieldsSeq(c.fields) {
			name, value, _ := strings.Cut(word, "=")
			script[name] = value
		}
		for _, fields := range []map[string]any{script, c.file} {
			got, err := policy.ParseLimit(c.kind, fields)
			if err != nil || got != c.want || weir.Algorithm(got) != c.kind {
				t.Errorf("%s %v: %#v, %v, want %#v", c.kind, fields, got, err, c.want)
			}
		}

		one := policy.Policy{
			Limits: []policy.Limit{{Name: "l", Limit: c.want}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
		}
		e, err := policy.New(one, policy.Options{Clock: func() int64 { return 0 }})
		if err != nil {
			t.Fatal(c.kind, err)
		}
		v := e.Decide(policy.Request{Method: "GET", Path: "/"})
		asked := v.Evaluated()
		if c.window > 0 && (len(asked) != 1 || asked[0].Window != c.window) || c.window == 0 && len(asked) > 0 {
			t.Errorf("%s %s: %+v, want a window of %v", c.kind, c.fields, asked, c.window)
		}

		one.Limits[0].Cost = "9223372036854775807"
		problems := one.Check()
		switch {
		case c.most == "" && len(problems) > 0:
			t.Errorf("%s %s: %v", c.kind, c.fields, problems)
		case c.most != "" && (len(problems) != 1 || !strings.Contains(problems[0].Message, "never fits") || !strings.Contains(problems[0].Message, c.most)):
			t.Errorf("%s %s: %v, want one with %q", c.kind, c.fields, problems, c.most)
		}
	}
}

// TestWrongFields: an error names the field that it is about.
func TestWrongFields(t *testing.T) {
	for _, c := range []struct {
		kind, field string
		value       any
		want        string
	}{
		{"interval_bucket", "every", "1 day", "write it like 500ms, 1h30m or 1d"},
		{"interval_bucket", "every", 60, "60 is not a duration"},
		{"interval_bucket", "refill", 0, "never fills"},
		{"fixed_window", "align", "monht:Europe/Berlin", "is not a valid align"},
		{"fixed_window", "align", "month:Europe/Brelin", "no time zone"},
		{"fixed_window", "align", 1, "is not a valid align"},
		{"fixed_window", "window", nil, "not a duration"},
		{"sliding_window", "slots", 7, "cannot be divided"},
		{"sliding_window", "slots", "many", "not a whole number"},
		{"sliding_window", "slot_limit", 1001, "not within"},
		{"sliding_log", "max_entries", 1, "not within"},
		{"smooth_bursty", "max_burst", "never", "not a duration"},
		{"warm_up", "cold_factor", "cold", "not a number"},
		{"warm_up", "cold_factor", "NaN", "not within"},
		{"warm_up", "cold_factor", math.Inf(1), "not within"},
		{"warm_up", "cold_factor", true, "not a number"},
		{"warm_up", "period", "none", "not a duration"},
		{"token_bucket", "rate", "unlimited", "leave the limit out"},
	} {
		fields := map[string]map[string]any{
			"interval_bucket": {"burst": 1, "refill": 1, "every": "1s"},
			"fixed_window":    {"limit": 1},
			"sliding_window":  {"limit": 1000, "window": "1s", "slots": 10},
			"sliding_log":     {"limit": 1000, "window": "1s"},
			"smooth_bursty":   {"rate": "1/s"},
			"warm_up":         {"rate": "1/s", "period": "1s"},
			"token_bucket":    {"burst": 1},
		}[c.kind]
		fields[c.field] = c.value
		_, err := policy.ParseLimit(c.kind, fields)
		if err == nil || !strings.HasPrefix(err.Error(), c.field+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s=%v: %v, want one with %q", c.kind, c.field, c.value, err, c.want)
		}
	}
}
