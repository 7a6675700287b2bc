package signals

import (
	"bytes"
	"time"
)

// A pressure is a file of the kernel's pressure stall information: for how many microseconds some
// threads, or all of them (full), waited for something.
type pressure struct {
	signal Signal
	file   string
	kind   string // some or full
	total  counter
}

// findPressure chooses the files: those of the cgroup where version 2 is mounted, and else the
// machine's. For a CPU something always waits for another, so there it is some.
func (l *linux) findPressure() {
	for i, p := range []pressure{
		{signal: CPUPressure, file: "cpu", kind: "some"},
		{signal: MemoryPressure, file: "memory", kind: "full"},
		{signal: IOPressure, file: "io", kind: "full"},
		{signal: MachineCPUPressure, file: "cpu", kind: "some"},
		{signal: MachineMemoryPressure, file: "memory", kind: "full"},
		{signal: MachineIOPressure, file: "io", kind: "full"},
	} {
		name := p.file
		p.file = "/proc/pressure/" + name
		if i < 3 && len(l.groups.v2) > 0 {
			own := l.groups.v2[0] + "/" + name + ".pressure"
			if _, err := l.read(own); err == nil {
				p.file = own
			}
		}
		if was := l.some[i]; was.file == p.file {
			p.total = was.total
		}
		l.some[i] = p
	}
}

func (l *linux) samplePressure(at time.Duration, r *Reading) {
	for i := range l.some {
		p := &l.some[i]
		b, err := l.read(p.file)
		if err != nil {
			r.SetAbsent(p.signal, err.Error())
			continue
		}
		total, ok := parsePressure(b, p.kind)
		if !ok {
			r.SetAbsent(p.signal, p.file+" has no total of "+p.kind)
			continue
		}
		if share, ok := p.total.share(total, at, 1e6); ok {
			r.Set(p.signal, share, p.file)
		} else {
			r.SetAbsent(p.signal, p.file+twoReadings)
		}
	}
}

// parsePressure returns the total of a line such as "some avg10=0.00 avg60=0.00 avg300=0.00
// total=0".
func parsePressure(b []byte, kind string) (uint64, bool) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(kind+" "))
		if !ok {
			continue
		}
		if _, total, ok := bytes.Cut(rest, []byte("total=")); ok {
			return parse(bytes.TrimSpace(total))
		}
	}
	return 0, false
}
