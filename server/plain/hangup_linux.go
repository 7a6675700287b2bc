package plain

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// hangups waits for hangups of all connections of a Server, in one goroutine, from the first
// connection on. It is an epoll instance apart from the runtime's, which reports only the end of
// connections: what clients send does not wake it.
type hangups struct {
	file *os.File
	raw  syscall.RawConn
	runs sync.Once

	mu    sync.Mutex
	conns map[uint64]*conn // by token
	last  uint64           // the last token
}

// newHangups returns nil if the system lacks descriptors.
func newHangups() *hangups {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or the goroutine would need a thread of its own
		unix.Close(fd) //nolint:errcheck // nothing is in it
		return nil
	}
	file := os.NewFile(uintptr(fd), "hangups")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil
	}
	return &hangups{file: file, raw: raw, conns: map[uint64]*conn{}}
}

// run reports hangups until close.
func (h *hangups) run() {
	var events [64]unix.EpollEvent
	for {
		n := 0
		err := h.raw.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events[:], 0)
			return n > 0 || err != nil && err != unix.EINTR //nolint:errorlint // system calls return it as it is
		})
		if err != nil || n < 0 {
			return
		}
		for _, e := range events[:n] {
			if c := h.find(tokenOf(e)); c != nil {
				c.hangup.hungUp()
			}
		}
	}
}

func tokenOf(e unix.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }

func (h *hangups) find(token uint64) *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[token]
}

// add registers a connection and returns its token, or 0 if the system refuses. A connection that has
// ended before is reported as well.
func (h *hangups) add(c *conn, raw syscall.RawConn) uint64 {
	h.mu.Lock()
	h.last++
	token := h.last
	h.conns[token] = c
	h.mu.Unlock()
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(token)), Pad: int32(uint32(token >> 32))}
	err := error(unix.EBADF)
	_ = raw.Control(func(fd uintptr) { // err stays if one of them is closed
		_ = h.raw.Control(func(epoll uintptr) {
			err = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd), &e)
		})
	})
	if err != nil {
		h.remove(token)
		return 0
	}
	h.runs.Do(func() { go h.run() })
	return token
}

// remove forgets a connection. The system does so when its socket is closed.
func (h *hangups) remove(token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, token)
}

// close ends run.
func (h *hangups) close() { h.file.Close() }
