package signals

import (
	"testing"
	"time"
)

const quarter = 250 * time.Millisecond

// TestContainer2: a container with version 2 sees its own cgroup as the top: half a CPU and 100 MB.
func TestContainer2(t *testing.T) {
	own := "sys/fs/cgroup"
	tr := plant(t, with(files{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2},
		v2(own, "50000 100000", "1000000", "4", "100000000", "90000000", "40000000")))
	r := tr.tick(0)
	level(t, r, CPU, absent, "two readings")
	level(t, r, Throttled, absent, "two readings")
	level(t, r, Memory, 0.5, "/sys/fs/cgroup/memory.current beside memory.max")
	// 100 ms of the 125 ms that half a CPU has in 250 ms, and 3 of 5 periods were throttled, while
	// the CPUs of the machine are idle
	tr.set(files{own + "/cpu.stat": "usage_usec 1100000\nnr_periods 15\nnr_throttled 7\n", "proc/stat": "cpu0 100 0 0 125 0 0 0 0\ncpu1 100 0 0 125 0 0 0 0\n"})
	r = tr.tick(quarter)
	level(t, r, CPU, 0.8, "/sys/fs/cgroup/cpu.stat beside cpu.max")
	level(t, r, Throttled, 0.6, "cpu.stat")
	// nothing runs: no period, nothing throttled
	r = tr.tick(quarter)
	level(t, r, CPU, 0, "cpu.stat")
	level(t, r, Throttled, 0, "cpu.stat")
}

// TestNested: each cgroup above may have a limit, and that which is nearest to its end counts.
func TestNested(t *testing.T) {
	const pod, own = "sys/fs/cgroup/kubepods/pod1", "sys/fs/cgroup/kubepods/pod1/c1"
	tr := plant(t, with(files{"proc/self/cgroup": "0::/kubepods/pod1/c1\n", "proc/self/mountinfo": mountV2},
		v2(own, "150000 100000", "0", "0", "1000000000", "500000000", "100000000"),
		v2(pod, "50000 100000", "0", "0", "2000000000", "1900000000", "300000000"),
		v2("sys/fs/cgroup/kubepods", "max 100000", "0", "0", "max", "1900000000", "300000000")))
	tr.set(v2(own, "", "100000", "0", "", "500000000", "100000000"))
	tr.set(v2(pod, "", "120000", "2", "", "1900000000", "300000000"))
	r := tr.tick(quarter)
	level(t, r, CPU, 0.96, pod+"/cpu.stat")
	level(t, r, Memory, 0.8, pod+"/memory.current")
	// the limits have changed
	tr.set(v2(own, "150000 100000", "450000", "0", "1000000000", "500000000", "100000000"))
	tr.set(v2(pod, "max 100000", "470000", "2", "max", "1900000000", "300000000"))
	tr.find()
	r = tr.tick(quarter)
	level(t, r, CPU, 350.0/375, own+"/cpu.stat")
	level(t, r, Memory, 0.4, own+"/memory.current")
	// memory.high slows a cgroup down before memory.max
	tr.set(files{own + "/memory.high": "500000000\n"})
	tr.find()
	level(t, tr.tick(quarter), Memory, 0.8, own+"/memory.current beside memory.high")
}

// TestNoLimit: without a limit, or with one above what the machine has, the machine counts.
func TestNoLimit(t *testing.T) {
	busy := files{"proc/stat": "cpu0 120 0 0 105 0 0 0 0 0 0\ncpu1 110 0 0 115 0 0 0 0 0 0\n"}
	for name, all := range map[string]files{
		"no cgroup file": {},
		"max":            with(files{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2}, v2("sys/fs/cgroup", "max 100000", "0", "0", "max", "1", "0")),
		"above":          with(files{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2}, v2("sys/fs/cgroup", "200000 100000", "0", "0", "9000000000", "1", "0")),
		"v1": {
			"proc/self/cgroup": "2:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n", "proc/self/mountinfo": mountDocker1,
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":  "-1\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":  "9223372036854771712\n",
		},
		"the root of v2": {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mountV2, "sys/fs/cgroup/cpu.stat": "usage_usec 5\n"},
		"not mounted":    {"proc/self/cgroup": "0::/a\n1:cpu:/a\n", "proc/self/mountinfo": "1 2 0:1 / / rw - ext4 /dev/vda rw\n"},
		"broken":         {"proc/self/cgroup": "::\n\n0\nx:y\n", "proc/self/mountinfo": "- cgroup2\n\n - \n1 2 3 4 5 6\n"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := plant(t, with(all))
			tr.set(busy)
			r := tr.tick(quarter)
			level(t, r, CPU, 0.6, "/proc/stat")
			level(t, r, Throttled, absent, "no cgroup of this process has a CPU quota")
			level(t, r, Memory, 0.25, "/proc/meminfo")
		})
	}
}

// TestContainer1: a container with version 1, of which /proc/self/cgroup names the cgroup as the
// machine does.
func TestContainer1(t *testing.T) {
	const cpu, memory = "sys/fs/cgroup/cpu,cpuacct/", "sys/fs/cgroup/memory/"
	tr := plant(t, with(files{
		"proc/self/cgroup":       "9:name=systemd:/docker/abc\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n",
		"proc/self/mountinfo":    mountDocker1,
		cpu + "cpu.cfs_quota_us": "100000\n", cpu + "cpu.cfs_period_us": "100000\n", cpu + "cpuacct.usage": "5000000000\n",
		cpu + "cpu.stat":                 "nr_periods 10\nnr_throttled 1\nthrottled_time 12345\n",
		memory + "memory.limit_in_bytes": "1000000000\n", memory + "memory.usage_in_bytes": "950000000\n",
		memory + "memory.stat": "cache 1\ninactive_file 9\ntotal_cache 1\ntotal_inactive_file 250000000\n",
	}))
	tr.set(files{cpu + "cpuacct.usage": "5225000000\n", cpu + "cpu.stat": "nr_periods 14\nnr_throttled 2\n"})
	r := tr.tick(quarter)
	level(t, r, CPU, 0.9, "cpuacct.usage beside /sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us")
	level(t, r, Throttled, 0.25, "cpu.stat")
	level(t, r, Memory, 0.7, "memory.usage_in_bytes")
	level(t, r, CPUPressure, 0, "/proc/pressure/cpu")
}

// TestHybrid: a machine with both versions has its controllers in version 1, and the pressure of the
// cgroup in version 2.
func TestHybrid(t *testing.T) {
	const dir = "sys/fs/cgroup/"
	tr := plant(t, with(files{
		"proc/self/cgroup":           "4:memory:/svc/a\n2:cpuacct:/svc/a\n1:cpu:/svc/a\n0::/svc/a\n",
		"proc/self/mountinfo":        mountHybrid,
		dir + "cpu/svc/a/cpu.stat":   "nr_periods 0\nnr_throttled 0\n",
		dir + "cpu/svc/cpu.stat":     "nr_periods 0\nnr_throttled 0\n",
		dir + "cpu/cpu.cfs_quota_us": "-1\n", dir + "cpu/cpu.cfs_period_us": "100000\n",
		dir + "cpu/svc/cpu.cfs_quota_us": "50000\n", dir + "cpu/svc/cpu.cfs_period_us": "100000\n",
		dir + "cpu/svc/a/cpu.cfs_quota_us": "-1\n", dir + "cpu/svc/a/cpu.cfs_period_us": "100000\n",
		dir + "cpuacct/cpuacct.usage": "0\n", dir + "cpuacct/svc/cpuacct.usage": "0\n", dir + "cpuacct/svc/a/cpuacct.usage": "0\n",
		dir + "memory/svc/a/memory.limit_in_bytes": "9223372036854771712\n",
		dir + "unified/svc/a/cpu.pressure":         "some avg10=0.00 avg60=0.00 avg300=0.00 total=5000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		dir + "unified/svc/a/memory.pressure":      "some avg10=0.00 total=0\nfull avg10=0.00 total=0\n",
	}))
	tr.set(files{
		dir + "cpuacct/svc/cpuacct.usage": "62500000\n", dir + "cpuacct/svc/a/cpuacct.usage": "62500000\n",
		dir + "unified/svc/a/cpu.pressure":    "some avg10=0.00 avg60=0.00 avg300=0.00 total=105000\nfull avg10=0.00 total=0\n",
		dir + "unified/svc/a/memory.pressure": "some avg10=0.00 total=250000\nfull avg10=0.00 total=50000\n",
		"proc/pressure/cpu":                   "some avg10=1.00 avg60=0.00 avg300=0.00 total=201000\n",
	})
	r := tr.tick(quarter)
	level(t, r, CPU, 0.5, "cpuacct/svc/cpuacct.usage beside /sys/fs/cgroup/cpu/svc/cpu.cfs_quota_us")
	level(t, r, Throttled, 0, "cpu/svc/cpu.stat")
	level(t, r, Memory, 0.25, "/proc/meminfo")
	level(t, r, CPUPressure, 0.4, "unified/svc/a/cpu.pressure")
	level(t, r, MemoryPressure, 0.2, "unified/svc/a/memory.pressure")
	level(t, r, IOPressure, 0, "/proc/pressure/io")
	level(t, r, MachineCPUPressure, 0.8, "/proc/pressure/cpu")
}

// TestNoCPUTime: a quota of version 1 whose CPU time is not mounted is no 0 %.
func TestNoCPUTime(t *testing.T) {
	const dir = "sys/fs/cgroup/cpu/"
	tr := plant(t, with(files{
		"proc/self/cgroup":           "1:cpu:/svc\n",
		"proc/self/mountinfo":        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
		dir + "svc/cpu.cfs_quota_us": "50000\n", dir + "svc/cpu.cfs_period_us": "100000\n", dir + "svc/cpu.stat": "nr_periods 5\nnr_throttled 0\n",
	}))
	tr.set(files{dir + "svc/cpu.stat": "nr_periods 7\nnr_throttled 1\n"})
	r := tr.tick(quarter)
	level(t, r, CPU, absent, "cpuacct")
	level(t, r, Throttled, 0.5, "cpu.stat")
}

// TestVanish: a cgroup that is removed takes its signals with it, and the next search finds the new
// one. Counters that go back are no level.
func TestVanish(t *testing.T) {
	const own = "sys/fs/cgroup/a"
	tr := plant(t, with(files{"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": mountV2},
		v2(own, "50000 100000", "1000000", "4", "100000000", "90000000", "10000000")))
	tr.set(files{own + "/cpu.stat": "usage_usec 500\nnr_periods 1\nnr_throttled 1\n"})
	r := tr.tick(quarter)
	level(t, r, CPU, absent, "two readings")
	level(t, r, Throttled, absent, "two readings")
	tr.set(files{own + "/cpu.stat": "usage_usec 62500\nnr_periods x\n", own + "/memory.stat": "nothing\n"})
	r = tr.tick(quarter)
	level(t, r, CPU, 62000.0/125000, own)
	level(t, r, Throttled, absent, "two readings")
	level(t, r, Memory, absent, "inactive_file")
	tr.set(files{own + "/cpu.stat": "-", own + "/memory.stat": "-", own + "/memory.current": "-"})
	r = tr.tick(quarter)
	level(t, r, CPU, absent, "no such file")
	level(t, r, Memory, absent, "no such file")
	tr.set(files{"proc/self/cgroup": "0::/b\n"})
	tr.set(v2("sys/fs/cgroup/b", "100000 100000", "0", "0", "100000000", "50000000", "0"))
	tr.find()
	level(t, tr.tick(0), Memory, 0.5, "cgroup/b/memory.current")
	tr.set(v2("sys/fs/cgroup/b", "", "125000", "0", "", "50000000", "0"))
	level(t, tr.tick(quarter), CPU, 0.5, "cgroup/b/cpu.stat")
}

// TestSpaces: mountinfo writes a space as \040.
func TestSpaces(t *testing.T) {
	tr := plant(t, with(files{"proc/self/cgroup": "0::/a b\n", "proc/self/mountinfo": "30 23 0:26 / /sys/c\\040g\\134 rw - cgroup2 none rw\n"},
		v2(`sys/c g\/a b`, "max 100000", "0", "0", "1000", "300", "100")))
	level(t, tr.tick(0), Memory, 0.2, `/sys/c g\/a b/memory.current`)
}

// TestOutside: a process outside of what is mounted sees the top of the mount, as nsenter does it.
func TestOutside(t *testing.T) {
	tr := plant(t, with(files{"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mountV2},
		v2("sys/fs/cgroup", "max 100000", "0", "0", "1000", "300", "100")))
	level(t, tr.tick(0), Memory, 0.2, "/sys/fs/cgroup/memory.current")
}
