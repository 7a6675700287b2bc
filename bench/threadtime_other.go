//go:build !linux

package main

import (
	"errors"
	"time"
)

// threadTime is supported on Linux only.
func threadTime() (time.Duration, error) {
	return 0, errors.New("the CPU time of a thread is read as Linux has it, and this is another system")
}
