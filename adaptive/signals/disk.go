package signals

import (
	"bytes"
	"time"
)

// disks are the disks of the machine, by name.
type disks map[string]*disk

type disk struct {
	busy, queue counter
	seen        time.Duration
}

// sampleDisks reads the time in which the busiest disk had work, and how many requests the disk with
// the most of them had on average. A partition is never busier than its disk, so it does no harm
// that they are read as well.
func (l *linux) sampleDisks(at time.Duration, r *Reading) {
	b, err := l.read("/proc/diskstats")
	if err != nil {
		r.SetAbsent(Disk, err.Error())
		r.SetAbsent(DiskQueue, err.Error())
		return
	}
	if l.disks == nil {
		l.disks = disks{}
	}
	busiest, longest := -1.0, -1.0
	for line := range bytes.Lines(b) {
		// major, minor, name, then: 9 requests in flight, 10 ms with work, 11 ms of all requests
		var name []byte
		var busy, queue uint64
		fine, i := true, 0
		for f := range bytes.FieldsSeq(line) {
			ok := true
			switch i {
			case 2:
				name = f
			case 12:
				busy, ok = parse(f)
			case 13:
				queue, ok = parse(f)
			}
			fine = fine && ok
			i++
		}
		if !fine || i < 14 || virtual(name) || busy == 0 && queue == 0 {
			continue
		}
		d := l.disks[string(name)]
		if d == nil {
			d = &disk{}
			l.disks[string(name)] = d
		}
		d.seen = at
		if share, ok := d.busy.share(busy, at, 1000); ok {
			busiest = max(busiest, share)
		}
		if by, in, ok := d.queue.grown(queue, at); ok {
			longest = max(longest, by/(in.Seconds()*1000))
		}
	}
	for name, d := range l.disks {
		if d.seen != at {
			delete(l.disks, name)
		}
	}
	set := func(s Signal, level float64) {
		if level >= 0 {
			r.Set(s, level, "/proc/diskstats")
		} else {
			r.SetAbsent(s, "/proc/diskstats: no disk with two readings of a counter that grew")
		}
	}
	set(Disk, busiest)
	set(DiskQueue, longest)
}

// virtual reports whether a disk is memory, or a file on another one.
func virtual(name []byte) bool {
	for _, prefix := range [...]string{"loop", "ram", "zram", "sr", "fd"} {
		if rest, ok := bytes.CutPrefix(name, []byte(prefix)); ok {
			if _, ok := parse(rest); ok {
				return true
			}
		}
	}
	return false
}
