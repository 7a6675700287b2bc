package nginx

import (
	"os"
	"strconv"
	"syscall"
	"testing"
)

// hurry asks the system to run this process, and the servers that it starts, before others: what is compared here are moments. Not everyone
// may ask. On Linux each thread has a priority of its own, which those that it starts inherit.
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
