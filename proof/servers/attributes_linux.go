package servers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// attributes make a process the leader of a group, which can be killed as a whole, and have it sent
// a signal when we die: a test that is killed leaves no server behind.
func attributes(orphaned syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
}

// stands reports whether each thread of a process is stopped. A signal is on its way for a moment,
// and each thread takes its own.
func stands(pid int) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range files {
		stat, err := os.ReadFile(file)
		// The state follows the name of the program, which is in parentheses and may have some
		// itself.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if err != nil || !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return err == nil && len(files) > 0
}
