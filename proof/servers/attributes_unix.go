//go:build unix && !linux

package servers

import "syscall"

// attributes make a process the leader of a group, which can be killed as a whole. On this system
// it is not signalled when this process dies.
func attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stands would report whether a process is stopped. This system has no cheap way to find out.
func stands(int) bool { return true }
