//go:build !race

package eventloop

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls here do not wait, so the runtime is not told of them: telling it costs more than the
// shorter ones take, and wakes its monitor whenever the process was idle. mostAtOnce bounds the others.

func read(fd int, p []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(min(len(p), mostAtOnce)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func write(fd int, p []byte) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(min(len(p), mostAtOnce)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func writev(fd int, parts []unix.Iovec) (int, unix.Errno) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(parts))), uintptr(len(parts)))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// epollWait returns the events that have happened.
func epollWait(epoll int, events []unix.EpollEvent) int {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case unix.EINTR:
		default:
			return 0
		}
	}
}
