package signals

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// runQueue has the times of /proc/schedstat, by CPU.
type runQueue map[string]*counter

// sampleRunQueue reads how many threads run or could run, for each CPU of the machine: on average,
// from the times of /proc/schedstat, or where the kernel has none, now and then, from /proc/loadavg.
func (l *linux) sampleRunQueue(at time.Duration, r *Reading) {
	b, err := l.read("/proc/schedstat")
	if err != nil {
		l.sampleLoad(r)
		return
	}
	if l.queue == nil {
		l.queue = runQueue{}
	}
	sum, count := 0.0, 0
	for line := range bytes.Lines(b) {
		if !bytes.HasPrefix(line, []byte("cpu")) {
			continue
		}
		// the name, then: 7 the time that threads ran, 8 the time that they waited, in nanoseconds
		var name []byte
		var ran, waited uint64
		i, fine := 0, true
		for f := range bytes.FieldsSeq(line) {
			ok := true
			switch i {
			case 0:
				name = f
			case 7:
				ran, ok = parse(f)
			case 8:
				waited, ok = parse(f)
			}
			fine = fine && ok
			i++
		}
		if !fine || i < 9 {
			continue
		}
		c := l.queue[string(name)]
		if c == nil {
			c = &counter{}
			l.queue[string(name)] = c
		}
		if by, in, ok := c.grown(ran+waited, at); ok {
			sum += by / float64(in)
			count++
		}
	}
	if count == 0 {
		r.SetAbsent(RunQueue, "/proc/schedstat"+twoReadings)
		return
	}
	r.Set(RunQueue, sum/float64(count), "/proc/schedstat")
}

// sampleLoad reads the fourth field of /proc/loadavg, such as 3/205: threads that run or could run,
// of all. One of them is that which reads.
func (l *linux) sampleLoad(r *Reading) {
	b, err := l.read("/proc/loadavg")
	if err != nil {
		r.SetAbsent(RunQueue, err.Error())
		return
	}
	fields := bytes.Fields(b)
	if len(fields) >= 4 {
		running, _, _ := bytes.Cut(fields[3], []byte("/"))
		if n, ok := parse(running); ok && l.cpus.online > 0 {
			r.Set(RunQueue, max(float64(n)-1, 0)/float64(l.cpus.online), "/proc/loadavg")
			return
		}
	}
	r.SetAbsent(RunQueue, fmt.Sprintf("/proc/loadavg: %.60q does not say how many threads run", bytes.TrimSpace(b)))
}

// descriptors are the open files of this process.
type descriptors struct {
	checked bool
	sized   bool // the size of the folder is their number, as Linux has it since 6.2
	skip    int  // so many samples keep the last level: counting very many takes time
	level   float64
}

// sampleDescriptors reads how many file descriptors are open, of those that the process may have.
func (l *linux) sampleDescriptors(_ time.Duration, r *Reading) {
	const origin = "/proc/self/fd beside /proc/self/limits"
	if l.fds.skip > 0 {
		l.fds.skip--
		r.Set(Descriptors, l.fds.level, origin)
		return
	}
	limit, err := l.mostFiles()
	if err != nil {
		r.SetAbsent(Descriptors, err.Error())
		return
	}
	open, err := l.openFiles()
	if err != nil {
		r.SetAbsent(Descriptors, err.Error())
		return
	}
	l.fds.level = min(float64(open)/limit, 1)
	r.Set(Descriptors, l.fds.level, origin)
}

// mostFiles returns how many descriptors the process may have. There is always such a limit.
func (l *linux) mostFiles() (float64, error) {
	b, err := l.read("/proc/self/limits")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Max open files")); ok {
			if fields := bytes.Fields(rest); len(fields) > 0 {
				if n, ok := parse(fields[0]); ok && n > 0 {
					return float64(n), nil
				}
			}
		}
	}
	return 0, fmt.Errorf("/proc/self/limits has no number of open files")
}

func (l *linux) openFiles() (int, error) {
	name := l.name("/proc/self/fd")
	size := int64(-1)
	if info, err := os.Stat(name); err == nil {
		size = info.Size()
	}
	if l.fds.sized {
		return int(size), nil
	}
	dir, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	count := len(names)
	if !l.fds.checked && l.root == "/" {
		// one more is open now: the folder
		l.fds.checked, l.fds.sized = true, count > 1 && (size == int64(count-1) || size == int64(count))
	}
	l.fds.skip = count / 1000
	return count, nil
}
