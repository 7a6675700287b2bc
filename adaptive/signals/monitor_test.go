package signals_test

import (
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/adaptive/signals"
)

// sampled opens a monitor whose CPU has the level of a number.
func sampled(t *testing.T, o signals.Options, level *atomic.Uint64) *signals.Monitor {
	t.Helper()
	o.Sample = func(_ time.Duration, r *signals.Reading) {
		if v := math.Float64frombits(level.Load()); v >= 0 {
			r.Set(signals.CPU, v, "a test")
		} else {
			r.SetAbsent(signals.CPU, "gone")
		}
	}
	m, err := signals.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSmoothing: a level that jumps from 0 to 1 is 0.63 after a second, whatever the interval, and
// 0.8 after 1.6 s. (Kratos weighs each new reading by 5 %, so that 0.8 takes 16 s.)
func TestSmoothing(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var level atomic.Uint64
			m := sampled(t, signals.Options{Interval: interval}, &level)
			defer m.Close()
			if got, ok := m.Reading().Level(signals.CPU); !ok || got != 0 {
				t.Errorf("the first reading: %g %v", got, ok)
			}
			level.Store(math.Float64bits(1))
			<-time.After(time.Second)
			synctest.Wait()
			if got, _ := m.Reading().Level(signals.CPU); math.Abs(got-(1-1/math.E)) > 1e-9 {
				t.Errorf("every %v: %g after a second", interval, got)
			}
			// a signal that goes is absent at once, and begins with what it is when it comes again
			level.Store(math.Float64bits(-1))
			<-time.After(interval)
			synctest.Wait()
			if got, ok := m.Reading().Level(signals.CPU); ok || m.Reading().Origin(signals.CPU) != "gone" {
				t.Errorf("%g %v %q", got, ok, m.Reading().Origin(signals.CPU))
			}
			level.Store(math.Float64bits(0.25))
			<-time.After(interval)
			synctest.Wait()
			if got, ok := m.Reading().Level(signals.CPU); !ok || got != 0.25 {
				t.Errorf("%g %v", got, ok)
			}
			level.Store(math.Float64bits(math.NaN()))
			<-time.After(interval)
		})
	}
}

// TestAmounts: memory and descriptors are amounts that are what they are, and not smoothed.
func TestAmounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var level atomic.Uint64
		m, err := signals.Open(signals.Options{Sample: func(_ time.Duration, r *signals.Reading) {
			r.Set(signals.Memory, math.Float64frombits(level.Load()), "a test")
			r.Set(signals.Descriptors, math.Float64frombits(level.Load()), "a test")
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		level.Store(math.Float64bits(0.95))
		<-time.After(250 * time.Millisecond)
		synctest.Wait()
		for _, s := range []signals.Signal{signals.Memory, signals.Descriptors} {
			if got, _ := m.Reading().Level(s); got != 0.95 {
				t.Errorf("%v: %g", s, got)
			}
		}
	})
}

// TestClose: the goroutine ends, and a reading that is no longer true is not kept: an overload would
// last for ever.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var level atomic.Uint64
		level.Store(math.Float64bits(1))
		m := sampled(t, signals.Options{}, &level)
		for range 2 {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, s := range signals.All() {
			if _, ok := m.Reading().Level(s); ok || m.Reading().Origin(s) != "the monitor is closed" {
				t.Errorf("%v: %q", s, m.Reading().Origin(s))
			}
		}
		if _, over := (signals.Thresholds{}).Over(m.Reading()); over {
			t.Error("there is an overload")
		}
	})
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]signals.Options{
		"Interval":  {Interval: time.Millisecond},
		"Smoothing": {Smoothing: -1},
	} {
		if _, err := signals.Open(o); err == nil || !strings.HasPrefix(err.Error(), "signals: "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestProgram: a program that allocates has a garbage collector that takes CPU time, and goroutines
// that wait to run.
func TestProgram(t *testing.T) {
	var level atomic.Uint64
	m := sampled(t, signals.Options{Interval: 10 * time.Millisecond}, &level)
	defer m.Close()
	var keep [][]byte
	deadline := time.Now().Add(5 * time.Minute)
	for gc, latency := 0.0, 0.0; gc <= 0 || latency <= 0; {
		if time.Now().After(deadline) {
			t.Fatal(m.Reading())
		}
		for range 100 {
			keep = append(keep[max(0, len(keep)-1000):], make([]byte, 1<<12))
			go func() {}()
		}
		runtime.GC()
		gc, _ = m.Reading().Level(signals.GC)
		latency, _ = m.Reading().Level(signals.SchedulerLatency)
	}
	runtime.KeepAlive(keep)
	if gc, _ := m.Reading().Level(signals.GC); gc > 1 {
		t.Errorf("the collector takes %g of the CPU time", gc)
	}
}

// TestThisMachine: on Linux, what every machine has is read.
func TestThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("this is not Linux")
	}
	m, err := signals.Open(signals.Options{Interval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		missing := ""
		for _, s := range []signals.Signal{signals.CPU, signals.Memory, signals.RunQueue, signals.Descriptors, signals.GC, signals.SchedulerLatency} {
			if level, ok := m.Reading().Level(s); !ok || level < 0 || level > 1 && s != signals.RunQueue && s != signals.SchedulerLatency {
				missing += s.String() + ": " + m.Reading().Origin(s) + "\n"
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(missing)
		}
		runtime.Gosched()
	}
}

// BenchmarkReading is what a limiter pays to look at the signals.
func BenchmarkReading(b *testing.B) {
	m, err := signals.Open(signals.Options{})
	if err != nil {
		b.Skip(err)
	}
	defer m.Close()
	b.ReportAllocs()
	for b.Loop() {
		(signals.Thresholds{}).Over(m.Reading())
	}
}
