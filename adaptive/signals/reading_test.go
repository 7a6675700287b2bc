package signals_test

import (
	"math"
	"strings"
	"testing"

	"github.com/weirflow/weir/adaptive/signals"
)

// TestReading: a signal that was not set is absent, and is never 0.
func TestReading(t *testing.T) {
	r := &signals.Reading{}
	for _, s := range signals.All() {
		if level, ok := r.Level(s); ok || level != 0 || r.Origin(s) == "" {
			t.Errorf("%v: %g %v %q", s, level, ok, r.Origin(s))
		}
	}
	r.Set(signals.CPU, 0.314, "/proc/stat")
	r.Set(signals.GC, 0, "the runtime")
	r.Set(signals.SchedulerLatency, 0.000123, "the runtime")
	r.SetAbsent(signals.Memory, "no file")
	if level, ok := r.Level(signals.GC); !ok || level != 0 {
		t.Error("a level of 0 is absent")
	}
	if _, ok := r.Level(signals.Memory); ok || r.Origin(signals.Memory) != "no file" {
		t.Error("it is there, or nobody says why not")
	}
	if got := r.String(); !strings.HasPrefix(got, "cpu 0.31, scheduler_latency 0.00012, gc 0; absent: throttled, memory, ") {
		t.Error(got)
	}
	seen := map[string]bool{}
	for _, s := range signals.All() {
		if name := s.String(); name == "" || seen[name] {
			t.Errorf("signal %d has the name %q", s, name)
		}
		seen[s.String()] = true
	}
}

// TestThresholds: which signal is over, and how that is told.
func TestThresholds(t *testing.T) {
	levels := func(pairs map[signals.Signal]float64) *signals.Reading {
		r := &signals.Reading{}
		for s, level := range pairs {
			r.Set(s, level, "a test")
		}
		return r
	}
	type is = map[signals.Signal]float64
	for name, c := range map[string]struct {
		thresholds signals.Thresholds
		levels     is
		want       string
	}{
		"nothing known":   {signals.Thresholds{}, nil, ""},
		"below":           {signals.Thresholds{}, is{signals.CPU: 0.79, signals.Memory: 0.89}, ""},
		"cpu":             {signals.Thresholds{}, is{signals.CPU: 0.931}, "cpu 0.93 of 0.8"},
		"the most":        {signals.Thresholds{}, is{signals.CPU: 0.81, signals.Memory: 0.99}, "memory 0.99 of 0.9"},
		"set":             {signals.Thresholds{CPU: 0.5}, is{signals.CPU: 0.5}, "cpu 0.5 of 0.5"},
		"not watched":     {signals.Thresholds{CPU: -1}, is{signals.CPU: 1, signals.Disk: 1, signals.CPUPressure: 1}, ""},
		"watched":         {signals.Thresholds{RunQueue: 4}, is{signals.RunQueue: 12}, "run_queue 12 of 4"},
		"a short latency": {signals.Thresholds{SchedulerLatency: 0.005}, is{signals.SchedulerLatency: 0.0071}, "scheduler_latency 0.0071 of 0.005"},
	} {
		got := ""
		if e, over := c.thresholds.Over(levels(c.levels)); over {
			got = e.String()
		}
		if got != c.want || c.thresholds.Validate() != nil {
			t.Errorf("%s: %q %v", name, got, c.thresholds.Validate())
		}
	}
	for want, wrong := range map[string]signals.Thresholds{
		"cpu":       {CPU: 80},
		"disk":      {Disk: math.NaN()},
		"run_queue": {RunQueue: math.Inf(1)},
	} {
		if err := wrong.Validate(); err == nil || !strings.HasPrefix(err.Error(), want+": ") || !strings.Contains(err.Error(), "write -1") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if at, ok := (signals.Thresholds{}).Of(signals.Memory); !ok || at != 0.9 {
		t.Error(at, ok)
	}
	if _, ok := (signals.Thresholds{}).Of(signals.Disk); ok {
		t.Error("the disk is watched")
	}
}

// TestReadingOfNoSignal: a number that is no signal has no level.
func TestReadingOfNoSignal(t *testing.T) {
	var r signals.Reading
	for _, s := range []signals.Signal{-1, signals.Signal(len(signals.All()))} {
		if level, ok := r.Level(s); ok || level != 0 || r.Origin(s) == "" {
			t.Errorf("%d: %v, %v", s, level, ok)
		}
	}
}
