//go:build unix && !linux

package servers

import "syscall"

// attributes make a process the leader of a group, which can be killed as a whole. Nobody tells it
// when we die.
func attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stands would report whether a process is stopped, but here we have no cheap way to see it.
func stands(int) bool { return true }
