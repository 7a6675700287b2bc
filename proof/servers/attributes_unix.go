//go:build unix && !linux

package servers

import "syscall"

// attributes make a process the leader of a group, which can be killed as a whole.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
