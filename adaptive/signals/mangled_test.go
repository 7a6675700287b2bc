package signals

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// TestMangledFiles: whatever files of the kernel say, and while they come and go, a signal is absent for a reason,
// or its level is a number that it can have.
func TestMangledFiles(t *testing.T) {
	r := seeds.Of(t.Name())
	own := func(version2 bool) files {
		if !version2 {
			return with(files{"proc/self/cgroup": "3:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n", "proc/self/mountinfo": mountDocker1,
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 10\nnr_throttled 3\n", "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage": "1000000\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "500000\n",
				"sys/fs/cgroup/memory/memory.stat": "total_inactive_file 100\n"})
		}
		return with(files{"proc/self/cgroup": "0::/pod/app\n", "proc/self/mountinfo": mountV2, "proc/schedstat": "version 15\ncpu0 0 0 0 0 0 0 10 20 3\n",
			"sys/fs/cgroup/pod/app/cpu.pressure": "some avg10=1.00 avg60=0.00 avg300=0.00 total=1000\n"},
			v2("sys/fs/cgroup/pod", "150000 100000", "1000", "1", "4000000", "1000000", "1"),
			v2("sys/fs/cgroup/pod/app", "50000 100000", "1000", "1", "max", "1000", "1"))
	}
	values := []string{"", "0", "-1", "max", "18446744073709551615", "9223372036854775807", "99999999999999999999", "1", "0x10", "1e9", "\x00", "NaN", "\n", " ", "cpu9 1 2 3 4 5 6 7 8\n"}
	mangle := func(text string) string {
		fields := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == '\n' })
		if len(fields) == 0 || r.IntN(4) == 0 {
			return strings.Repeat(text, r.IntN(3)) + values[r.IntN(len(values))]
		}
		old := fields[r.IntN(len(fields))]
		return strings.Replace(text, old, values[r.IntN(len(values))], 1)
	}
	for round := range 20 {
		all := own(round%2 == 0)
		tr := plant(t, all)
		names := slices.Sorted(maps.Keys(all))
		for range 40 {
			for range 1 + r.IntN(4) {
				name := names[r.IntN(len(names))]
				path := filepath.Join(tr.l.root, name)
				switch r.IntN(5) {
				case 0:
					_ = os.Remove(path)
				case 1: // it is well again, perhaps with other counters
					tr.set(files{name: all[name]})
				default:
					tr.set(files{name: mangle(all[name])})
				}
			}
			if r.IntN(3) == 0 {
				tr.find()
			}
			reading := tr.tick([]time.Duration{0, time.Nanosecond, 250 * time.Millisecond, time.Hour}[r.IntN(4)])
			for _, s := range All()[:SchedulerLatency] {
				level, known := reading.Level(s)
				switch {
				case known && reading.Origin(s) == "" || !known && strings.HasPrefix(reading.Origin(s), "it was not"):
					t.Fatalf("%v: %s", s, reading.Origin(s))
				case known && (math.IsNaN(level) || math.IsInf(level, 0) || level < 0 || level > 1 && s.IsShare()):
					t.Fatalf("%v: %g from %s", s, level, reading.Origin(s))
				}
			}
		}
	}
}
