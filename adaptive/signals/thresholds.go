package signals

import (
	"fmt"
	"math"
)

// Thresholds are the levels from which on there is an overload. A field that is 0 has the default
// that its comment names; a signal whose field is negative, or 0 without a default, is not watched.
// An absent signal is no overload.
type Thresholds struct {
	CPU                   float64 // default: 0.8
	Throttled             float64
	Memory                float64 // default: 0.9
	CPUPressure           float64
	MemoryPressure        float64 // default: 0.2
	IOPressure            float64
	MachineCPUPressure    float64
	MachineMemoryPressure float64
	MachineIOPressure     float64
	Disk                  float64
	DiskQueue             float64
	RunQueue              float64
	Descriptors           float64 // default: 0.9
	SchedulerLatency      float64 // in seconds
	GC                    float64
}

// list returns the thresholds in the order of the signals, with the defaults.
func (t Thresholds) list() [signalCount]float64 {
	or := func(threshold, otherwise float64) float64 {
		if threshold == 0 {
			return otherwise
		}
		return threshold
	}
	return [signalCount]float64{
		or(t.CPU, 0.8), t.Throttled, or(t.Memory, 0.9), t.CPUPressure, or(t.MemoryPressure, 0.2), t.IOPressure,
		t.MachineCPUPressure, t.MachineMemoryPressure, t.MachineIOPressure,
		t.Disk, t.DiskQueue, t.RunQueue, or(t.Descriptors, 0.9), t.SchedulerLatency, t.GC,
	}
}

// Of returns the threshold of a signal, or false if it is not watched.
func (t Thresholds) Of(s Signal) (float64, bool) {
	threshold := t.list()[s]
	return threshold, threshold > 0
}

// Validate returns an error if a threshold is not a number, or if it is a share above 1, which no
// level exceeds. The error names the signal.
func (t Thresholds) Validate() error {
	for i, threshold := range t.list() {
		s := Signal(i)
		switch {
		case math.IsNaN(threshold) || math.IsInf(threshold, 0):
			return fmt.Errorf("%v: %g is not a number: write -1 if it shall not be watched", s, threshold)
		case threshold > 1 && s.IsShare():
			return fmt.Errorf("%v: %g is above 1, and the level is a share of at most 1: write -1 if it shall not be watched", s, threshold)
		}
	}
	return nil
}

// An Excess is a signal that has reached its threshold.
type Excess struct {
	Signal           Signal
	Level, Threshold float64
}

// String is such as "cpu 0.93 of 0.8".
func (e Excess) String() string {
	return fmt.Sprintf("%v %s of %s", e.Signal, number(e.Level), number(e.Threshold))
}

// Over returns the signal that exceeds its threshold most, in multiples of it, or false if none has
// reached it.
func (t Thresholds) Over(r *Reading) (Excess, bool) {
	var most Excess
	for i, threshold := range t.list() {
		level, ok := r.Level(Signal(i))
		if ok && threshold > 0 && level >= threshold && (most.Threshold == 0 || level/threshold > most.Level/most.Threshold) {
			most = Excess{Signal(i), level, threshold}
		}
	}
	return most, most.Threshold > 0
}
