package signals

import (
	"fmt"
	"time"
)

// memory has the cgroups with a limit of memory.
type memory struct {
	limited []limitedMemory
	last    Reading
	at      time.Duration // when last was read
	read    bool
}

type limitedMemory struct {
	dir    string
	limit  float64
	v1     bool
	origin string
}

// findMemory reads which cgroups have a limit. In version 1 no limit is a very large number; it is
// left out when the memory of the machine is known, see sampleMemory.
func (l *linux) findMemory() {
	l.memory.limited, l.memory.read = nil, false
	if dirs, ok := l.groups.v1["memory"]; ok {
		for _, dir := range dirs {
			if n, limit, err := l.number(dir + "/memory.limit_in_bytes"); err == nil && limit && n < 1<<60 {
				l.memory.limited = append(l.memory.limited, limitedMemory{dir, float64(n), true, dir + "/memory.usage_in_bytes beside memory.limit_in_bytes"})
			}
		}
		return
	}
	for _, dir := range l.groups.v2 {
		for _, file := range []string{"memory.max", "memory.high"} {
			if n, limit, err := l.number(dir + "/" + file); err == nil && limit {
				l.memory.limited = append(l.memory.limited, limitedMemory{dir, float64(n), false, dir + "/memory.current beside " + file})
			}
		}
	}
}

// sampleMemory reads the memory in use: of the cgroup that is nearest to its limit, or of the
// machine if no limit is below what it has. Pages of files that nobody reads now (inactive_file) are
// free at once, and are subtracted. While there is much left, it is read once in a second.
func (l *linux) sampleMemory(at time.Duration, r *Reading) {
	m := &l.memory
	if level, ok := m.last.Level(Memory); !m.read || !ok || level >= muchMemory || at-m.at >= time.Second {
		m.last, m.at, m.read = Reading{}, at, true
		l.readMemory(&m.last)
	}
	r.values[Memory] = m.last.values[Memory]
}

// muchMemory is the level from which on memory is read each time.
const muchMemory = 0.7

func (l *linux) readMemory(r *Reading) {
	total, free, err := l.machineMemory()
	limited, origin, absent := -1.0, "", ""
	for _, m := range l.memory.limited {
		if err == nil && m.limit >= total {
			continue
		}
		used, err := l.groupMemory(m)
		if err != nil {
			absent = err.Error()
			continue
		}
		level := 1.0
		if m.limit > 0 {
			level = min(used/m.limit, 1)
		}
		if level > limited {
			limited, origin = level, m.origin
		}
	}
	switch {
	case limited >= 0:
		r.Set(Memory, limited, origin)
	case absent != "":
		r.SetAbsent(Memory, absent)
	case err != nil:
		r.SetAbsent(Memory, err.Error())
	default:
		r.Set(Memory, min(max(1-free/total, 0), 1), "/proc/meminfo")
	}
}

func (l *linux) machineMemory() (total, free float64, err error) {
	b, err := l.read("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	all, ok := field(b, "MemTotal")
	rest, ok2 := field(b, "MemAvailable")
	if !ok || !ok2 || all == 0 {
		return 0, 0, fmt.Errorf("/proc/meminfo has no MemTotal and MemAvailable")
	}
	return float64(all) * 1024, float64(rest) * 1024, nil
}

// groupMemory returns how much memory a cgroup uses.
func (l *linux) groupMemory(m limitedMemory) (float64, error) {
	current, inactive := "/memory.current", "inactive_file"
	if m.v1 {
		current, inactive = "/memory.usage_in_bytes", "total_inactive_file"
	}
	used, ok, err := l.number(m.dir + current)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, fmt.Errorf("%s%s is not a number", m.dir, current)
	}
	b, err := l.read(m.dir + "/memory.stat")
	if err != nil {
		return 0, err
	}
	unused, ok := field(b, inactive)
	if !ok {
		return 0, fmt.Errorf("%s/memory.stat has no %s", m.dir, inactive)
	}
	return max(float64(used)-float64(unused), 0), nil
}
