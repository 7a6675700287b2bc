//go:build unix

package plain

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A rawReader waits for the next bytes of a connection without a buffer. It takes a buffer from the
// pool only when there is something to read.
type rawReader struct {
	raw  syscall.RawConn
	try  func(fd uintptr) bool
	lent *[maxHead]byte
	n    int
	err  error
}

// newRawReader returns nil for a connection that is no socket, or from which something was read
// already.
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
	r.try = r.readNow // one closure for all reads, so that a read does not allocate
	return r
}

// read waits for bytes until the connection's deadline. It returns no buffer with an error.
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

// readNow reads what is available. It reports false if nothing is; the runtime calls it again when
// the socket becomes readable.
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

// newLook returns a function that reports whether an idle connection has received nothing. It
// returns nil if that cannot be checked.
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
		// the byte is lost, but then the connection is closed anyway
		_, err := syscall.Read(int(fd), one[:])
		silent = err == syscall.EAGAIN //nolint:errorlint // system calls return it as it is
	}
	// Control instead of Read, because the deadline of the last read may have passed.
	return func() bool { return raw.Control(try) == nil && silent }
}
