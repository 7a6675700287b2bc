//go:build unix

package main

import (
	"syscall"
	"time"
)

// ownCPUTime returns the CPU time of this process so far, in user and kernel mode, to the
// microsecond.
func ownCPUTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
