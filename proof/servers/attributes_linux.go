package servers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// attributes make a process the leader of a group, which can be killed as a whole, and have the
// system signal it when this process dies: a killed test leaves no server behind.
func attributes(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}

// stands reports whether every thread of a process is stopped. A signal takes a moment to arrive,
// and each thread stops by itself.
func stands(pid int) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range files {
		stat, err := os.ReadFile(file)
		// The state follows the program's name, which is in parentheses and may contain some.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if err != nil || !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return err == nil && len(files) > 0
}
