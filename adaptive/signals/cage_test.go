//go:build linux

package signals_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/adaptive/signals"
)

// A child of the tests is this program again: it waits for a line, and then burns CPU time or leaks
// memory until a signal says so. It prints which.
const childOf = "WEIR_SIGNALS_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childOf); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(what string) error {
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	m, err := signals.Open(signals.Options{Interval: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	defer m.Close()
	if what == "burn" {
		for range 2 * runtime.NumCPU() {
			go func() {
				for {
					runtime.Gosched()
				}
			}()
		}
	}
	var leak [][]byte
	defer func() { runtime.KeepAlive(leak) }()
	last := m.Reading()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(3 * time.Minute); ; <-look.C {
		if e, over := (signals.Thresholds{}).Over(m.Reading()); over {
			r := m.Reading()
			fmt.Fprintf(os.Stdout, "%v from %s; %v\n", e, r.Origin(e.Signal), r)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no signal after 3 minutes: %v", m.Reading())
		}
		if r := m.Reading(); what == "leak" && r != last {
			last = r
			page := make([]byte, 2<<20)
			for i := 0; i < len(page); i += 4096 {
				page[i] = 1
			}
			leak = append(leak, page)
		}
	}
}

// cage makes cgroups with a CPU quota and a limit of memory, and returns what puts a process into
// them. It skips the test where that is not allowed.
func cage(t *testing.T, quota time.Duration, bytes int) func(pid int) {
	t.Helper()
	const top, period = "/sys/fs/cgroup", 100 * time.Millisecond
	name := fmt.Sprintf("weir-test-%d", os.Getpid())
	settings := map[string]map[string]string{}
	if _, err := os.Stat(top + "/cgroup.controllers"); err == nil {
		_ = os.WriteFile(top+"/cgroup.subtree_control", []byte("+cpu +memory"), 0o600)
		settings[top] = map[string]string{"cpu.max": fmt.Sprint(quota.Microseconds(), period.Microseconds()), "memory.max": strconv.Itoa(bytes)}
	} else {
		settings[top+"/cpu"] = map[string]string{"cpu.cfs_period_us": strconv.FormatInt(period.Microseconds(), 10), "cpu.cfs_quota_us": strconv.FormatInt(quota.Microseconds(), 10)}
		settings[top+"/cpuacct"] = nil
		settings[top+"/memory"] = map[string]string{"memory.limit_in_bytes": strconv.Itoa(bytes)}
	}
	var dirs []string
	for at, values := range settings {
		dir := filepath.Join(at, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			t.Skipf("this machine lets nobody make a cgroup here: %v", err)
		}
		t.Cleanup(func() { removeCage(t, dir) })
		for file, value := range values {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o600); err != nil {
				t.Skipf("this machine lets nobody limit a cgroup: %v", err)
			}
		}
		dirs = append(dirs, dir)
	}
	return func(pid int) {
		for _, dir := range dirs {
			if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// removeCage removes a cgroup, which is busy for a moment after its last process has ended.
func removeCage(t *testing.T, dir string) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-look.C {
		err := os.Remove(dir)
		if err == nil || os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Error(err)
			return
		}
	}
}

// TestBurnAndLeak: of two programs in containers, one burns CPU time and the other leaks memory. The
// signals tell them apart, however busy the machine is.
func TestBurnAndLeak(t *testing.T) {
	for what, want := range map[string]string{"burn": "cpu ", "leak": "memory "} {
		t.Run(what, func(t *testing.T) {
			quota := 10 * time.Millisecond // of 100 ms: so little is left to it on a busy machine, too
			if what == "leak" {
				quota = time.Duration(runtime.NumCPU()) * 90 * time.Millisecond
			}
			put := cage(t, quota, 400<<20)
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
			c.Env = append(os.Environ(), childOf+"="+what)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			c.Stdout, c.Stderr = &out, &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			put(c.Process.Pid)
			if _, err := fmt.Fprintln(in); err != nil {
				t.Error(err)
			}
			if err := c.Wait(); err != nil {
				t.Fatalf("%v: %s", err, out.String())
			}
			if got := out.String(); !strings.HasPrefix(got, want) || !strings.Contains(got, "/weir-test-") {
				t.Errorf("it is told as %q", got)
			}
			t.Log(strings.TrimSpace(out.String()))
		})
	}
}
