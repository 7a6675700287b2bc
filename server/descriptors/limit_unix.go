//go:build unix

package descriptors

import "syscall"

// Current returns the reserve of this process.
func Current() Reserve {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return Reserve{}
	}
	return Of(uint64(limit.Cur)) //nolint:unconvert // it is signed on some systems
}
