//go:build race

package eventloop

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The race detector knows of the system calls of package syscall that what one goroutine has written
// happened before another has read it.

func read(fd int, p []byte) (int, unix.Errno) {
	for {
		n, err := syscall.Read(fd, p[:min(len(p), mostAtOnce)])
		if errno := errnoOf(err); errno != unix.EINTR {
			return max(n, 0), errno
		}
	}
}

func write(fd int, p []byte) (int, unix.Errno) {
	for {
		n, err := syscall.Write(fd, p[:min(len(p), mostAtOnce)])
		if errno := errnoOf(err); errno != unix.EINTR {
			return max(n, 0), errno
		}
	}
}

func writev(fd int, parts []unix.Iovec) (int, unix.Errno) {
	return write(fd, unsafe.Slice(parts[0].Base, int(parts[0].Len)))
}

// epollWait returns the events that have happened.
func epollWait(epoll int, events []unix.EpollEvent) int {
	n, err := unix.EpollWait(epoll, events, 0)
	if err != nil {
		return 0
	}
	return n
}

func errnoOf(err error) (errno unix.Errno) {
	errors.As(err, &errno)
	return errno
}
