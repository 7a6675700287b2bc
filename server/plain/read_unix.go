//go:build unix

package plain

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A rawReader reads what comes next from a connection into a buffer that it takes only once something is there.
type rawReader struct {
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	lent *[maxHead]byte
	n    int
	err  error
}

// newRawReader returns nil for a connection that is no socket, or of which something was read already.
func newRawReader(c net.Conn) *rawReader {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	r := &rawReader{raw: raw}
	r.try = r.readNow // one closure for all reads
	return r
}

// read waits for bytes, no longer than the connection's deadline. An error comes without a buffer.
func (r *rawReader) read() (*[maxHead]byte, int, error) {
	err := r.raw.Read(r.try)
	if err == nil {
		err = r.err
	}
	if err == nil && r.n == 0 {
		err = io.EOF
	}
	lent, n := r.lent, r.n
	r.lent, r.n, r.err = nil, 0, nil
	if err != nil && lent != nil {
		buffers.Put(lent)
		return nil, 0, err
	}
	return lent, n, err
}

// readNow reads what is there. It reports false where nothing is, and is then called again once that has changed.
func (r *rawReader) readNow(fd uintptr) bool {
	r.lent = buffers.Get().(*[maxHead]byte)
	for {
		r.n, r.err = syscall.Read(int(fd), r.lent[:])
		if r.err != syscall.EINTR { //nolint:errorlint // system calls return it as it is
			break
		}
	}
	if r.err == syscall.EAGAIN { //nolint:errorlint // as above
		buffers.Put(r.lent)
		r.lent, r.n, r.err = nil, 0, nil
		return false
	}
	if r.err != nil {
		r.n, r.err = 0, os.NewSyscallError("read", r.err)
	}
	return true
}

// newLook returns what looks at a connection on which nothing is to come: it reports whether nothing has. It returns nil where that cannot be seen.
func newLook(c net.Conn) func() bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	var one [1]byte
	silent := false
	try := func(fd uintptr) {
		_, err := syscall.Read(int(fd), one[:]) // what comes is of no use, nor is then the connection
		silent = err == syscall.EAGAIN          //nolint:errorlint // system calls return it as it is
	}
	return func() bool { return raw.Control(try) == nil && silent } // not Read: the time of the last read is over
}
