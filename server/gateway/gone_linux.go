package gateway

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// clientGone reports whether the other side has closed its side of a connection, which may have
// bytes in it that nobody has read. It reads nothing.
func clientGone(conn net.Conn) (is bool) {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn }) // TLS, and what else wraps
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(look, 0)
		is = err == nil && n > 0 && look[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return is || err != nil // closed by ourselves
}
