package signals

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// A limitedCPU is a cgroup with a CPU quota.
type limitedCPU struct {
	dir              string
	quota            float64 // CPUs
	v1               bool
	usage            string // the file that has the used CPU time
	used             counter
	periods, stopped counter
	origin           string
}

// findCPUs reads which CPUs the process may use, and which of its cgroups have a quota below that.
// Counters of cgroups that are still there go on.
func (l *linux) findCPUs() {
	l.cpus.allowed = nil
	if b, err := l.read("/proc/self/status"); err == nil {
		for line := range bytes.Lines(b) {
			if list, ok := bytes.CutPrefix(line, []byte("Cpus_allowed_list:")); ok {
				l.cpus.allowed = set(list)
			}
		}
	}
	before := l.limited
	l.limited = nil
	all := l.cpuGroups()
	for _, c := range all {
		for _, old := range before {
			if old.dir == c.dir && old.v1 == c.v1 {
				c.used, c.periods, c.stopped = old.used, old.periods, old.stopped
			}
		}
		l.limited = append(l.limited, c)
	}
}

// cpuGroups returns the cgroups with a quota.
func (l *linux) cpuGroups() (all []limitedCPU) {
	if dirs, ok := l.groups.v1["cpu"]; ok {
		usages := l.groups.v1["cpuacct"]
		for i, dir := range dirs {
			quota, limit, err := l.number(dir + "/cpu.cfs_quota_us")
			period, ok, err2 := l.number(dir + "/cpu.cfs_period_us")
			if err != nil || err2 != nil || !limit || !ok || period == 0 {
				continue
			}
			// the CPU time is another controller, perhaps at another place: of the same cgroup, its
			// folder is as far from the innermost one
			usage := ""
			if len(usages) == len(dirs) {
				usage = usages[i] + "/cpuacct.usage"
			}
			all = append(all, limitedCPU{
				dir: dir, v1: true, quota: float64(quota) / float64(period), usage: usage,
				origin: usage + " beside " + dir + "/cpu.cfs_quota_us",
			})
		}
		return all
	}
	for _, dir := range l.groups.v2 {
		b, err := l.read(dir + "/cpu.max")
		if err != nil {
			continue
		}
		fields := bytes.Fields(b)
		if len(fields) != 2 {
			continue
		}
		quota, ok := parse(fields[0])
		period, ok2 := parse(fields[1])
		if !ok || !ok2 || period == 0 {
			continue // max: no limit
		}
		all = append(all, limitedCPU{
			dir: dir, quota: float64(quota) / float64(period), usage: dir + "/cpu.stat",
			origin: dir + "/cpu.stat beside cpu.max",
		})
	}
	return all
}

// sampleCPU reads the CPU time in use: of the cgroup whose quota is nearest to its end, or of the
// machine's CPUs that the process may use if no quota is below them.
func (l *linux) sampleCPU(at time.Duration, r *Reading) {
	machine, ready, err := l.sampleStat()
	count := float64(l.cpus.count)
	var most, stopped struct {
		level  float64
		known  bool
		origin string
	}
	absent, limited := "", false
	for i := range l.limited {
		c := &l.limited[i]
		if count > 0 && c.quota >= count {
			continue // the CPUs end before the quota
		}
		limited = true
		share, throttled, ok, ok2, err := l.sampleLimited(c, at)
		switch {
		case err != nil:
			absent = err.Error()
		case !ok && absent == "":
			absent = c.origin + twoReadings
		}
		if ok && (!most.known || share > most.level) {
			most.level, most.known, most.origin = share, true, c.origin
		}
		if ok2 && (!stopped.known || throttled > stopped.level) {
			stopped.level, stopped.known, stopped.origin = throttled, true, c.dir+"/cpu.stat"
		}
	}
	switch {
	case limited && most.known:
		r.Set(CPU, most.level, most.origin)
	case limited:
		r.SetAbsent(CPU, absent)
	case err != nil:
		r.SetAbsent(CPU, err.Error())
	case !ready:
		r.SetAbsent(CPU, "/proc/stat"+twoReadings)
	default:
		r.Set(CPU, machine, "/proc/stat")
	}
	switch {
	case stopped.known:
		r.Set(Throttled, stopped.level, stopped.origin)
	case limited:
		r.SetAbsent(Throttled, "cpu.stat"+twoReadings)
	default:
		r.SetAbsent(Throttled, "no cgroup of this process has a CPU quota"+l.why())
	}
}

// why returns why no cgroup was found, to be added to a sentence.
func (l *linux) why() string {
	if l.groups.err != nil {
		return ": " + l.groups.err.Error()
	}
	return ""
}

// sampleLimited reads a cgroup with a quota: the share of the quota that is in use, and the share
// of the periods in which it was used up.
func (l *linux) sampleLimited(c *limitedCPU, at time.Duration) (share, throttled float64, ok, ok2 bool, err error) {
	b, err := l.read(c.dir + "/cpu.stat")
	if err == nil {
		periods, known := field(b, "nr_periods")
		stops, known2 := field(b, "nr_throttled")
		if known && known2 {
			in, _, fine := c.periods.grown(periods, at)
			out, _, fine2 := c.stopped.grown(stops, at)
			if ok2 = fine && fine2; ok2 && in > 0 {
				throttled = min(out/in, 1)
			}
		}
	}
	perSecond, used, known := 1e6*c.quota, uint64(0), false
	switch {
	case !c.v1 && err != nil:
		return 0, 0, false, false, err
	case !c.v1:
		used, known = field(b, "usage_usec")
	case c.usage == "":
		return 0, throttled, false, ok2, fmt.Errorf("%s has a quota, but its CPU time is not mounted at the same depth (cpuacct)", c.dir)
	default:
		perSecond = 1e9 * c.quota
		if used, known, err = l.number(c.usage); err != nil {
			return 0, throttled, false, ok2, err
		}
	}
	if !known {
		return 0, throttled, false, ok2, fmt.Errorf("%s has no usage_usec", c.usage)
	}
	share, ok = c.used.share(used, at, perSecond)
	return share, throttled, ok, ok2, nil
}

// cpus are the CPUs of /proc/stat.
type cpus struct {
	allowed map[int]bool // those that the process may use; nil: all
	count   int          // how many of these are there
	online  int          // how many there are in all
	times   map[int]cpuTime
}

type cpuTime struct{ busy, total uint64 }

// sampleStat returns the share of the CPU time in use. A CPU that was not there before, or whose
// times went back, does not count this time.
func (l *linux) sampleStat() (share float64, ready bool, err error) {
	b, err := l.read("/proc/stat")
	if err != nil {
		return 0, false, err
	}
	before := l.cpus.times
	now := make(map[int]cpuTime, len(before))
	busy, total := uint64(0), uint64(0)
	l.cpus.online = 0
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("cpu"))
		if !ok {
			break // those of CPUs come first
		}
		id, times, ok := bytes.Cut(rest, []byte(" "))
		n, isCPU := parse(id)
		if ok && isCPU {
			l.cpus.online++
		}
		if !ok || !isCPU || n > 1<<16 || l.cpus.allowed != nil && !l.cpus.allowed[int(n)] {
			continue
		}
		t, ok := parseTimes(times)
		if !ok {
			return 0, false, fmt.Errorf("/proc/stat: %q has no times", strings.TrimSpace(string(line)))
		}
		now[int(n)] = t
		if was, known := before[int(n)]; known && t.total > was.total && t.busy >= was.busy {
			busy += t.busy - was.busy
			total += t.total - was.total
		}
	}
	l.cpus.times, l.cpus.count = now, len(now)
	if len(now) == 0 {
		return 0, false, fmt.Errorf("/proc/stat names none of the CPUs that the process may use")
	}
	if total == 0 {
		return 0, false, nil
	}
	return min(float64(busy)/float64(total), 1), true, nil
}

// parseTimes returns the time of a CPU: user, nice, system, idle, iowait, irq, softirq and steal.
// What a guest takes is a part of user. Time that another machine took (steal) is not left, so it is
// busy.
func parseTimes(b []byte) (t cpuTime, ok bool) {
	i := 0
	for f := range bytes.FieldsSeq(b) {
		n, isNumber := parse(f)
		if !isNumber {
			return cpuTime{}, false
		}
		if i < 8 {
			t.total += n
			if i != 3 && i != 4 {
				t.busy += n
			}
		}
		i++
	}
	return t, i >= 4
}
