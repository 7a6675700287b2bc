package nginx

import (
	"os"
	"strconv"
	"syscall"
	"testing"
)

// hurry raises the priority of this process and of the servers that it starts, because the tests compare
// times. Without the permission it has no effect. On Linux each thread has a priority of its own, which
// the threads that it starts inherit.
func hurry(t *testing.T) {
	ids := []int{0}
	if threads, err := os.ReadDir("/proc/self/task"); err == nil {
		for _, thread := range threads {
			if id, err := strconv.Atoi(thread.Name()); err == nil {
				ids = append(ids, id)
			}
		}
	}
	for _, id := range ids {
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, -15); err != nil {
			t.Logf("without priority over other programs: %v", err)
			return
		}
	}
}
