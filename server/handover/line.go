package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// lineVariable has the process id of the predecessor and the file of a connection to it. A program that
// does not know the variable passes it on: the id says whom it was for.
const lineVariable = "WEIR_LINE"

// NewLine returns both ends of a connection: one for this process, and one for Start.
func NewLine() (own net.Conn, other *os.File, err error) {
	syscall.ForkLock.RLock()
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("handover: a connection to the new process: %w", err)
	}
	mine := os.NewFile(uintptr(ends[0]), "line")
	defer mine.Close() // the connection has a copy
	other = os.NewFile(uintptr(ends[1]), "line")
	if own, err = net.FileConn(mine); err != nil {
		other.Close()
		return nil, nil, fmt.Errorf("handover: a connection to the new process: %w", err)
	}
	return own, other, nil
}

// inheritLine takes the connection to the predecessor, if it has made one.
func (s *Sockets) inheritLine() error {
	text := os.Getenv(lineVariable)
	os.Unsetenv(lineVariable)
	pid, fd, ok := strings.Cut(text, ":")
	if !ok || pid != strconv.Itoa(os.Getppid()) {
		return nil
	}
	n, err := strconv.Atoi(fd)
	if err != nil || n < firstFile {
		return fmt.Errorf("handover: %s=%q is not a file", lineVariable, text)
	}
	syscall.CloseOnExec(n)
	f := os.NewFile(uintptr(n), "line")
	defer f.Close() // the connection has a copy
	if s.line, err = net.FileConn(f); err != nil {
		return fmt.Errorf("handover: file %d is not a connection: %w", n, err)
	}
	return nil
}

// HasLine reports whether Line returns a connection.
func (s *Sockets) HasLine() bool { return s.line != nil }

// Line returns the connection to the predecessor, which the caller closes; nil for none, and at later calls.
func (s *Sockets) Line() net.Conn {
	line := s.line
	s.line = nil
	return line
}

// closeAll closes files.
func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}
