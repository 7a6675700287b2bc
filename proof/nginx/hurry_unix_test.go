//go:build unix

package nginx

import (
	"syscall"
	"testing"
)

// hurry asks the system to run this process, and the servers that it starts, before others: what is compared here are moments. Not everyone
// may ask.
func hurry(t *testing.T) {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, -15); err != nil {
		t.Logf("without priority over other programs: %v", err)
	}
}
