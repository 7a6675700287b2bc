package signals

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A tree is a folder with files of /proc and /sys.
type tree struct {
	t  *testing.T
	l  *linux
	at time.Duration
}

// files are texts by name.
type files map[string]string

// base is what every machine has: two CPUs, 8 GB, of which 6 are free, no pressure.
var base = files{
	"proc/stat":            "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 100 0 0 100 0 0 0 0 0 0\nintr 1 2 3\nprocs_running 1\n",
	"proc/meminfo":         "MemTotal:        8000000 kB\nMemFree:          100000 kB\nMemAvailable:    6000000 kB\n",
	"proc/self/status":     "Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n",
	"proc/self/limits":     "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1000                 4000                 files     \n",
	"proc/self/fd/0":       "",
	"proc/loadavg":         "9.83 5.89 5.22 4/203 28863\n",
	"proc/pressure/cpu":    "some avg10=1.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
	"proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
	"proc/pressure/io":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
	"proc/diskstats":       " 254       0 vda 10 0 10 10 10 0 10 10 0 1000 2000 0 0 0 0 0 0\n",
}

// with returns base and other files.
func with(all ...files) files {
	sum := maps.Clone(base)
	for _, f := range all {
		maps.Copy(sum, f)
	}
	return sum
}

func plant(t *testing.T, all files) *tree {
	t.Helper()
	tr := &tree{t: t}
	dir := t.TempDir()
	tr.l = &linux{root: dir}
	tr.set(all)
	l, err := newLinux(dir)
	if err != nil {
		t.Fatal(err)
	}
	tr.l = l
	tr.tick(0)
	return tr
}

// set writes files. A text that is "-" removes the file.
func (tr *tree) set(all files) {
	tr.t.Helper()
	for name, text := range all {
		name = filepath.Join(tr.l.root, name)
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if text == "-" {
			err = os.Remove(name)
		} else if err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		if err != nil {
			tr.t.Fatal(err)
		}
	}
}

// tick reads everything after some time.
func (tr *tree) tick(after time.Duration) *Reading {
	tr.at += after
	r := &Reading{}
	for _, s := range tr.l.samplers(4) {
		if s.signals == nil && tr.at > 0 {
			continue // find is called rarely
		}
		s.sample(tr.at, r)
	}
	return r
}

// find looks for cgroups again.
func (tr *tree) find() { tr.l.find(tr.at, nil) }

// level checks a signal: NaN wants it to be absent, for a reason with the given text.
func level(t *testing.T, r *Reading, s Signal, want float64, origin string) {
	t.Helper()
	got, ok := r.Level(s)
	if ok == math.IsNaN(want) || ok && math.Abs(got-want) > 1e-6 || !strings.Contains(r.Origin(s), origin) {
		t.Errorf("%v: %g %v, from %q; want %g from %q", s, got, ok, r.Origin(s), want, origin)
	}
}

var absent = math.NaN()

// Mounts of cgroups, as containers and machines have them.
const (
	mountV2 = "30 23 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

	mountDocker1 = "33 32 0:30 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n" +
		"36 32 0:33 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"

	mountHybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
		"33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)

// v2 has the files of a cgroup of version 2.
func v2(dir, cpuMax, usage, throttled, memoryMax, current, inactive string) files {
	return files{
		dir + "/cpu.max":        cpuMax + "\n",
		dir + "/cpu.stat":       "usage_usec " + usage + "\nuser_usec 1\nsystem_usec 1\nnr_periods 10\nnr_throttled " + throttled + "\nthrottled_usec 5\n",
		dir + "/memory.max":     memoryMax + "\n",
		dir + "/memory.high":    "max\n",
		dir + "/memory.current": current + "\n",
		dir + "/memory.stat":    "anon 1\nfile 2\ninactive_anon 7\nactive_anon 8\ninactive_file " + inactive + "\nactive_file 9\n",
	}
}
