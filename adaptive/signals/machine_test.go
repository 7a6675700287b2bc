package signals

import (
	"strings"
	"testing"
)

// TestStat: the CPUs that the process may use count, and of those that which are there both times,
// with times that grew. What waits for I/O is idle, and what another machine took is not left.
func TestStat(t *testing.T) {
	for name, c := range map[string]struct {
		before, after, allowed string
		want                   float64
		origin                 string
	}{
		"all kinds":         {"cpu0 0 0 0 0 0 0 0 0 0 0", "cpu0 10 5 5 50 20 3 2 5 10 5", "0", 0.3, "/proc/stat"},
		"an old kernel":     {"cpu0 0 0 0 0", "cpu0 10 0 0 10", "0", 0.5, "/proc/stat"},
		"not allowed":       {"cpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0", "cpu0 10 0 0 10\ncpu1 100 0 0 0\ncpu2 20 0 0 0", "0,2-3", 0.75, "/proc/stat"},
		"plugged in":        {"cpu0 0 0 0 0", "cpu0 10 0 0 30\ncpu1 5000 0 0 0", "0-7", 0.25, "/proc/stat"},
		"taken out":         {"cpu0 0 0 0 0\ncpu1 500 0 0 500", "cpu0 10 0 0 30", "0-7", 0.25, "/proc/stat"},
		"back":              {"cpu0 0 0 0 0\ncpu1 500 0 0 500", "cpu0 10 0 0 30\ncpu1 5 0 0 5", "0-7", 0.25, "/proc/stat"},
		"less iowait":       {"cpu0 0 0 0 0 50", "cpu0 30 0 0 60 40", "0", 0.375, "/proc/stat"},
		"no time passed":    {"cpu0 7 0 0 0", "cpu0 7 0 0 0", "0", absent, "two readings"},
		"none allowed":      {"cpu0 7 0 0 0", "cpu0 8 0 0 0", "5", absent, "none of the CPUs"},
		"not a number":      {"cpu0 7 0 0 0", "cpu0 x 0 0 0", "0", absent, "has no times"},
		"too few":           {"cpu0 7 0 0 0", "cpu0 8 0", "0", absent, "has no times"},
		"a list we misread": {"cpu0 0 0 0 0", "cpu0 10 0 0 30", "all", 0.25, "/proc/stat"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := plant(t, with(files{"proc/stat": "cpu  1 1 1 1\n" + c.before + "\nintr 0\n", "proc/self/status": "Cpus_allowed_list:\t" + c.allowed + "\n"}))
			tr.set(files{"proc/stat": "cpu  9 9 9 9\n" + c.after + "\nintr 0\n"})
			level(t, tr.tick(quarter), CPU, c.want, c.origin)
		})
	}
}

// TestPressure: the growth of the total counts, of some for the CPU and of full for the others. A
// kernel may have no such files, or refuse to read them.
func TestPressure(t *testing.T) {
	tr := plant(t, with())
	tr.set(files{
		"proc/pressure/cpu":    "some avg10=1.00 avg60=0.00 avg300=0.00 total=51000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=251000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=26000\n",
		"proc/pressure/io":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=900000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=900000\n",
	})
	r := tr.tick(quarter)
	for _, s := range []Signal{CPUPressure, MachineCPUPressure} {
		level(t, r, s, 0.2, "/proc/pressure/cpu")
	}
	for _, s := range []Signal{MemoryPressure, MachineMemoryPressure} {
		level(t, r, s, 0.1, "/proc/pressure/memory")
	}
	level(t, r, IOPressure, 1, "/proc/pressure/io")
	tr.set(files{"proc/pressure/cpu": "-", "proc/pressure/memory": "some avg10=0.00 total=1\n", "proc/pressure/io": "full avg10=0.00 total=5\n"})
	r = tr.tick(quarter)
	level(t, r, CPUPressure, absent, "no such file")
	level(t, r, MemoryPressure, absent, "has no total of full")
	level(t, r, IOPressure, absent, "two readings")
}

// TestDisks: the busiest disk counts. Memory and files that are disks do not; disks come and go, and
// counters start over.
func TestDisks(t *testing.T) {
	line := func(name, busy, queue string) string {
		return " 8 0 " + name + " 1 2 3 4 5 6 7 8 9 " + busy + " " + queue + " 0 0 0 0 0 0\n"
	}
	tr := plant(t, with(files{"proc/diskstats": line("vda", "1000", "2000") + line("vda1", "900", "1000") + line("vdb", "50", "60") + line("loop0", "5", "5") + line("zram1", "5", "5")}))
	level(t, tr.tick(0), Disk, absent, "two readings")
	tr.set(files{"proc/diskstats": line("vda", "1200", "2250") + line("vda1", "1000", "1100") + line("vdb", "60", "1060") + line("loop0", "255", "9999") + line("zram1", "255", "9999") + line("vdc", "999999", "999999")})
	r := tr.tick(quarter)
	level(t, r, Disk, 0.8, "/proc/diskstats")
	level(t, r, DiskQueue, 4, "/proc/diskstats")
	tr.set(files{"proc/diskstats": line("vda", "1", "1") + "broken\n 8 0 vdb 1 2 3\n 8 0 vdb 1 2 3 4 5 6 7 8 9 x y\n" + line("vdc", "999999", "1000124")})
	r = tr.tick(quarter)
	level(t, r, Disk, 0, "/proc/diskstats")
	level(t, r, DiskQueue, 0.5, "/proc/diskstats")
	if len(tr.l.disks) != 2 {
		t.Errorf("%d disks are kept", len(tr.l.disks))
	}
	tr.set(files{"proc/diskstats": "-"})
	level(t, tr.tick(quarter), Disk, absent, "no such file")
}

// TestRunQueue: threads for each CPU, from the times of the scheduler or, where it has none, from
// the load.
func TestRunQueue(t *testing.T) {
	tr := plant(t, with())
	level(t, tr.tick(quarter), RunQueue, 1.5, "/proc/loadavg") // three more than the reader, two CPUs
	tr.set(files{"proc/loadavg": "0.1 0.2 0.3\n"})
	level(t, tr.tick(quarter), RunQueue, absent, "does not say")
	tr.set(files{"proc/loadavg": "-"})
	level(t, tr.tick(quarter), RunQueue, absent, "no such file")

	tr = plant(t, with(files{"proc/schedstat": "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 1000 1000 5\ndomain0 MC 3 1 2\ncpu1 0 0 0 0 0 0 0 0 5\n"}))
	level(t, tr.tick(0), RunQueue, absent, "two readings")
	tr.set(files{"proc/schedstat": "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 250001000 500001000 5\ncpu1 0 0 0 0 0 0 250000000 0 5\ncpu2 0 0 0 0 0 0 9 9 9\ncpu3 1\n"})
	level(t, tr.tick(quarter), RunQueue, 2, "/proc/schedstat")
}

// TestDescriptors: the open files beside the soft limit.
func TestDescriptors(t *testing.T) {
	tr := plant(t, with(files{"proc/self/fd/1": "", "proc/self/fd/2": "", "proc/self/fd/77": ""}))
	level(t, tr.tick(0), Descriptors, 0.004, "/proc/self/fd beside /proc/self/limits")
	tr.set(files{"proc/self/limits": "Max open files            unlimited            unlimited            files\n"})
	level(t, tr.tick(0), Descriptors, absent, "no number of open files")
	tr.set(files{"proc/self/limits": "-"})
	level(t, tr.tick(0), Descriptors, absent, "no such file")
}

// TestEmptyTree: what has no file is absent and says so, and nothing is 0 %.
func TestEmptyTree(t *testing.T) {
	tr := plant(t, files{"proc/stat": ""})
	r := tr.tick(quarter)
	for _, s := range All()[:SchedulerLatency] {
		if got, ok := r.Level(s); ok || r.Origin(s) == "it was not read" {
			t.Errorf("%v: %g, %s", s, got, r.Origin(s))
		}
	}
	if _, err := Open(Options{Root: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "weirgopsutil") {
		t.Errorf("a machine that is not Linux: %v", err)
	}
}

// TestLongFiles: a file may be longer than the buffer.
func TestLongFiles(t *testing.T) {
	long := strings.Repeat("cpu9 0 0 0 0 0 0 0 0 0 0\n", 5000)
	tr := plant(t, with(files{"proc/stat": "cpu0 0 0 0 0\n" + long}))
	tr.set(files{"proc/stat": "cpu0 1 0 0 3\n" + long})
	level(t, tr.tick(quarter), CPU, 0.25, "/proc/stat")
}
