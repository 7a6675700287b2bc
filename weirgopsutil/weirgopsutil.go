// Package weirgopsutil reads the signals of package adaptive/signals where that package cannot: on
// macOS, Windows, the BSDs and others that gopsutil knows.
//
//	m, err := weirgopsutil.Open(signals.Options{})
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.BBR{}, Signals: m})
//
// It has the CPU time and the memory in use of the machine, the run queue as an average of the last
// minute (not on Windows), and the signals of the Go runtime. It knows no limits of containers: on
// Linux, use signals.Open.
package weirgopsutil

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/load"
	"github.com/shirou/gopsutil/v4/mem"

	"github.com/weirflow/weir/adaptive/signals"
)

// Open begins to read. The caller must call Close. Root and Sample of the options must not be set.
func Open(o signals.Options) (*signals.Monitor, error) {
	switch {
	case o.Root != "":
		return nil, errors.New("weirgopsutil: Root: it is for signals.Open: leave it empty")
	case o.Sample != nil:
		return nil, errors.New("weirgopsutil: Sample: this package is one: leave it empty, or call signals.Open")
	}
	s := &sampler{times: cpu.Times, memory: mem.VirtualMemory, load: load.Avg}
	if runtime.GOOS == "windows" {
		s.load = nil // gopsutil would start to estimate one
	}
	if _, err := s.memory(); err != nil {
		return nil, fmt.Errorf("weirgopsutil: the memory of this machine: %w", err)
	}
	o.Sample = s.sample
	return signals.Open(o)
}

// A sampler calls gopsutil, or what a test has instead.
type sampler struct {
	times  func(percpu bool) ([]cpu.TimesStat, error)
	memory func() (*mem.VirtualMemoryStat, error)
	load   func() (*load.AvgStat, error) // nil: there is none

	busy, total float64
	known       bool
}

func (s *sampler) sample(_ time.Duration, r *signals.Reading) {
	for _, signal := range signals.All() {
		r.SetAbsent(signal, "weirgopsutil does not read it")
	}
	s.sampleCPU(r)
	m, err := s.memory()
	switch {
	case err != nil:
		r.SetAbsent(signals.Memory, "gopsutil: mem.VirtualMemory: "+err.Error())
	case m.Total == 0:
		r.SetAbsent(signals.Memory, "gopsutil: mem.VirtualMemory: there is none")
	default:
		r.Set(signals.Memory, share(float64(m.Total)-float64(m.Available), float64(m.Total)), "gopsutil: mem.VirtualMemory")
	}
	if s.load == nil {
		r.SetAbsent(signals.RunQueue, runtime.GOOS+" has no load average")
		return
	}
	if l, err := s.load(); err != nil {
		r.SetAbsent(signals.RunQueue, "gopsutil: load.Avg: "+err.Error())
	} else {
		r.Set(signals.RunQueue, l.Load1/float64(runtime.NumCPU()), "gopsutil: load.Avg, of the last minute")
	}
}

// sampleCPU compares the times of all CPUs with those of the last sample.
func (s *sampler) sampleCPU(r *signals.Reading) {
	all, err := s.times(false)
	if err == nil && len(all) == 0 {
		err = errors.New("there is no CPU")
	}
	if err != nil {
		r.SetAbsent(signals.CPU, "gopsutil: cpu.Times: "+err.Error())
		return
	}
	t := all[0]
	// the times of guests are a part of user and nice
	busy := t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal
	total := busy + t.Idle + t.Iowait
	if s.known && total > s.total {
		r.Set(signals.CPU, share(busy-s.busy, total-s.total), "gopsutil: cpu.Times")
	} else {
		r.SetAbsent(signals.CPU, "gopsutil: cpu.Times: there are no two readings yet that grew")
	}
	s.busy, s.total, s.known = busy, total, true
}

func share(part, of float64) float64 { return min(max(part/of, 0), 1) }
