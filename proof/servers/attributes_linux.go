package servers

import "syscall"

// attributes make a process the leader of a group, which can be killed as a whole, and have it asked to end when we die: a test that is
// killed leaves no server behind.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
