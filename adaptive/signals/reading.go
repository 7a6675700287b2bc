package signals

import (
	"fmt"
	"strconv"
	"strings"
)

// A Signal is something that can run out. Levels are shares from 0 to 1, unless a comment says
// otherwise.
type Signal int

// The signals. Those of the cgroup are the machine's where no cgroup has a limit.
const (
	CPU                   Signal = iota // used CPU time of what may be used
	Throttled                           // periods in which the cgroup had to stop, as its CPU quota was used up
	Memory                              // used memory of what may be used, without file pages that are free at once
	CPUPressure                         // time in which something waited for a CPU; of the cgroup
	MemoryPressure                      // time in which everything waited for memory; of the cgroup
	IOPressure                          // time in which everything waited for I/O; of the cgroup
	MachineCPUPressure                  // as CPUPressure, of the machine
	MachineMemoryPressure               // as MemoryPressure, of the machine
	MachineIOPressure                   // as IOPressure, of the machine
	Disk                                // time in which the busiest disk had work
	DiskQueue                           // how many requests that disk had, on average which had most: a number
	RunQueue                            // threads that run or could run, for each CPU: a number
	Descriptors                         // open file descriptors of those that the process may have
	SchedulerLatency                    // how long all but 1 in 100 goroutines waited until they ran, at most: seconds
	GC                                  // CPU time that the garbage collector took of all that the program may use
	signalCount
)

var names = [signalCount]string{
	"cpu", "throttled", "memory", "cpu_pressure", "memory_pressure", "io_pressure",
	"machine_cpu_pressure", "machine_memory_pressure", "machine_io_pressure",
	"disk", "disk_queue", "run_queue", "descriptors", "scheduler_latency", "gc",
}

// String returns the name, such as "cpu_pressure".
func (s Signal) String() string {
	if s < 0 || s >= signalCount {
		return "signal " + strconv.Itoa(int(s))
	}
	return names[s]
}

// All returns all signals, in their order.
func All() []Signal {
	all := make([]Signal, signalCount)
	for i := range all {
		all[i] = Signal(i)
	}
	return all
}

// A Source has the latest reading. It never waits, and never returns nil. Monitor is one.
type Source interface{ Reading() *Reading }

// IsShare reports whether levels are from 0 to 1.
func (s Signal) IsShare() bool { return s != DiskQueue && s != RunQueue && s != SchedulerLatency }

// A Reading is what was read at one time. The zero Reading has no signal. It is a Source of itself, for
// tests and simulations.
type Reading struct{ values [signalCount]value }

// Reading returns the receiver.
func (r *Reading) Reading() *Reading { return r }

type value struct {
	level float64
	known bool
	text  string // where it is from; of an absent one, why it is absent
}

// Level returns the level of a signal, or false if it is absent, or none of All.
func (r *Reading) Level(s Signal) (float64, bool) {
	if s < 0 || s >= signalCount {
		return 0, false
	}
	v := &r.values[s]
	return v.level, v.known
}

// Origin returns what the level of a signal is read from, such as a file; of an absent signal, why
// it is absent.
func (r *Reading) Origin(s Signal) string {
	if s < 0 || s >= signalCount {
		return "there is no such signal"
	}
	if v := &r.values[s]; v.known || v.text != "" {
		return v.text
	}
	return "it was not read"
}

// Set sets a level, and what it was read from.
func (r *Reading) Set(s Signal, level float64, origin string) {
	r.values[s] = value{level, true, origin}
}

// SetAbsent says why a signal has no level.
func (r *Reading) SetAbsent(s Signal, why string) { r.values[s] = value{text: why} }

// String lists the levels, such as "cpu 0.31, memory 0.62, ...", and then the names of what is
// absent.
func (r *Reading) String() string {
	var levels, absent []string
	for _, s := range All() {
		if level, ok := r.Level(s); ok {
			levels = append(levels, s.String()+" "+number(level))
		} else {
			absent = append(absent, s.String())
		}
	}
	text := strings.Join(levels, ", ")
	if len(absent) > 0 {
		text = strings.TrimPrefix(text+"; absent: "+strings.Join(absent, ", "), "; ")
	}
	return text
}

// number writes a level with as many digits as are of use.
func number(level float64) string {
	if level != 0 && level < 0.01 {
		return strconv.FormatFloat(level, 'g', 2, 64)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", level), "0"), ".")
}
