package weirgopsutil

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/weirflow/weir/adaptive/signals"
)

// fake is a machine whose readings a test sets.
type fake struct {
	cpu     []cpu.TimesStat
	memory  mem.VirtualMemoryStat
	load    load.AvgStat
	failure error
}

func (f *fake) sampler() *sampler {
	return &sampler{
		times:  func(bool) ([]cpu.TimesStat, error) { return f.cpu, f.failure },
		memory: func() (*mem.VirtualMemoryStat, error) { return &f.memory, f.failure },
		load:   func() (*load.AvgStat, error) { return &f.load, f.failure },
	}
}

func check(t *testing.T, r *signals.Reading, s signals.Signal, want float64, origin string) {
	t.Helper()
	got, ok := r.Level(s)
	if ok == math.IsNaN(want) || ok && math.Abs(got-want) > 1e-9 || !strings.Contains(r.Origin(s), origin) {
		t.Errorf("%v: %g %v, from %q; want %g from %q", s, got, ok, r.Origin(s), want, origin)
	}
}

// TestSample: the levels are differences of times; what is missing or fails is absent, and not 0.
func TestSample(t *testing.T) {
	f := &fake{memory: mem.VirtualMemoryStat{Total: 1000, Available: 250}}
	s := f.sampler()
	sample := func() *signals.Reading {
		r := &signals.Reading{}
		s.sample(time.Second, r)
		return r
	}
	r := sample()
	check(t, r, signals.CPU, math.NaN(), "there is no CPU")
	check(t, r, signals.Memory, 0.75, "mem.VirtualMemory")
	check(t, r, signals.Disk, math.NaN(), "does not read it")
	f.cpu = []cpu.TimesStat{{User: 10, Idle: 10}}
	check(t, sample(), signals.CPU, math.NaN(), "two readings")
	f.cpu = []cpu.TimesStat{{User: 11, System: 1, Steal: 1, Idle: 15, Iowait: 2}}
	check(t, sample(), signals.CPU, 0.3, "cpu.Times")
	f.cpu = []cpu.TimesStat{{User: 1, Idle: 1}}
	check(t, sample(), signals.CPU, math.NaN(), "two readings")
	f.memory.Total = 0
	check(t, sample(), signals.Memory, math.NaN(), "there is none")
	f.failure = errors.New("broken")
	r = sample()
	for _, signal := range []signals.Signal{signals.CPU, signals.Memory, signals.RunQueue} {
		check(t, r, signal, math.NaN(), "broken")
	}
	s.load = nil
	check(t, sample(), signals.RunQueue, math.NaN(), "no load average")
}

// TestThisMachine: what every machine has is read.
func TestThisMachine(t *testing.T) {
	m, err := Open(signals.Options{Interval: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	wait := time.NewTicker(10 * time.Millisecond)
	defer wait.Stop()
	for deadline := time.Now().Add(5 * time.Minute); ; <-wait.C {
		_, cpu := m.Reading().Level(signals.CPU)
		memory, ok := m.Reading().Level(signals.Memory)
		_, program := m.Reading().Level(signals.GC)
		if cpu && ok && program && memory > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(m.Reading())
		}
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]signals.Options{
		"Root":     {Root: "/x"},
		"Sample":   {Sample: func(time.Duration, *signals.Reading) {}},
		"Interval": {Interval: -1},
	} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestElsewhere: the package compiles for the systems that it is for.
func TestElsewhere(t *testing.T) {
	for _, system := range []string{"darwin/arm64", "windows/amd64"} {
		name, arch, _ := strings.Cut(system, "/")
		c := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, ".")
		c.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS="+name, "GOARCH="+arch)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", system, err, out)
		}
	}
}
