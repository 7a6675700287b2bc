package signals

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// linux reads /proc, and the cgroups of this process.
type linux struct {
	root   string
	buffer []byte

	groups  groups
	cpus    cpus
	limited []limitedCPU
	memory  memory
	some    [6]pressure
	disks   disks
	queue   runQueue
	fds     descriptors
}

func newLinux(root string) (*linux, error) {
	l := &linux{root: root, buffer: make([]byte, 0, 1<<14)}
	if _, err := l.read("/proc/stat"); err != nil {
		return nil, err
	}
	return l, nil
}

// samplers returns what reads which signals. What costs more, or changes slowly, is read once in a
// second.
func (l *linux) samplers(second int) []sampler {
	return []sampler{
		{nil, 10 * second, l.find},
		{[]Signal{CPU, Throttled}, 1, l.sampleCPU},
		{[]Signal{CPUPressure, MemoryPressure, IOPressure, MachineCPUPressure, MachineMemoryPressure, MachineIOPressure}, 1, l.samplePressure},
		{[]Signal{Disk, DiskQueue}, 1, l.sampleDisks},
		{[]Signal{RunQueue}, 1, l.sampleRunQueue},
		{[]Signal{Memory}, 1, l.sampleMemory},
		{[]Signal{Descriptors}, second, l.sampleDescriptors},
	}
}

// find looks for the cgroups of this process and their limits: it may be moved, and they may change.
func (l *linux) find(time.Duration, *Reading) {
	l.groups = l.findGroups()
	l.findCPUs()
	l.findMemory()
	l.findPressure()
}

// name returns where a file is.
func (l *linux) name(file string) string { return filepath.Join(l.root, file) }

// read reads a file as a whole. The bytes are valid until the next call.
func (l *linux) read(file string) ([]byte, error) {
	f, err := open(l.name(file))
	if err != nil {
		return nil, err
	}
	defer f.close()
	b := l.buffer[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := f.read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		l.buffer = b
		switch {
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", file, err)
		case n == 0:
			return b, nil
		case len(b) > 1<<24:
			return nil, fmt.Errorf("%s is longer than 16 MiB", file)
		}
	}
}

// number reads a file that is a number. "max" and -1, which mean that there is no limit, are false.
func (l *linux) number(file string) (n uint64, limit bool, err error) {
	b, err := l.read(file)
	if err != nil {
		return 0, false, err
	}
	b = bytes.TrimSpace(b)
	if string(b) == "max" || string(b) == "-1" {
		return 0, false, nil
	}
	if n, ok := parse(b); ok {
		return n, true, nil
	}
	return 0, false, fmt.Errorf("%s: %.40q is not a number", file, b)
}

// parse returns a decimal number. It allocates nothing.
func parse(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// field returns the number after a name in lines of names and numbers.
func field(b []byte, name string) (uint64, bool) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte(name))
		if !ok || len(rest) == 0 || rest[0] != ' ' && rest[0] != ':' && rest[0] != '\t' {
			continue
		}
		rest = bytes.TrimSpace(bytes.TrimPrefix(rest, []byte(":")))
		rest = bytes.TrimSuffix(rest, []byte(" kB"))
		return parse(rest)
	}
	return 0, false
}

// A counter is a number that only grows.
type counter struct {
	value uint64
	at    time.Duration
	known bool
}

// grown returns by how much it has grown in which time, or false if there was no reading before, or
// if it went back.
func (c *counter) grown(value uint64, at time.Duration) (by float64, in time.Duration, ok bool) {
	was := *c
	*c = counter{value, at, true}
	if !was.known || value < was.value || at <= was.at {
		return 0, 0, false
	}
	return float64(value - was.value), at - was.at, true
}

// share returns by how much the counter has grown of what it could have grown in that time, at most
// 1.
func (c *counter) share(value uint64, at time.Duration, perSecond float64) (float64, bool) {
	by, in, ok := c.grown(value, at)
	if !ok || perSecond <= 0 {
		return 0, false
	}
	return min(by/(in.Seconds()*perSecond), 1), true
}

const twoReadings = ": there are no two readings yet of a counter that grew"

// set parses a list such as 0-3,8.
func set(b []byte) map[int]bool {
	all := map[int]bool{}
	for part := range bytes.SplitSeq(bytes.TrimSpace(b), []byte(",")) {
		first, last, ok := bytes.Cut(part, []byte("-"))
		if !ok {
			last = first
		}
		from, err := strconv.Atoi(string(first))
		to, err2 := strconv.Atoi(string(last))
		if err != nil || err2 != nil || from < 0 || to < from || to > 1<<16 {
			return nil
		}
		for i := from; i <= to; i++ {
			all[i] = true
		}
	}
	return all
}
