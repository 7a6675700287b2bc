// Package descriptors keeps a reserve of file descriptors. Connections of clients may not use the
// last ones, so that requests already accepted still reach their upstreams; and neither of the two
// may use the very last ones, which are left to the admin pages, the policy file, logs and stores.
//
// The system gives out the lowest free descriptor. So the number of a new one says how many are in
// use at least, and nothing has to be counted.
package descriptors

import (
	"errors"
	"syscall"
)

// ErrExhausted is the error of a connection that would have used a descriptor of the reserve.
var ErrExhausted = errors.New("no file descriptors are left for it: raise the limit (ulimit -n, LimitNOFILE of systemd)")

// A Reserve says which descriptors are in reserve. The zero value has none.
type Reserve struct {
	clients   uintptr // the first descriptor that clients may not use; 0: they may use all
	upstreams uintptr // the same for connections to upstreams
}

// Bounds of how many descriptors are kept for upstreams, and as many again for everything else.
const (
	fewest = 8
	most   = 256
)

// Of returns the reserve of a process that may open that many descriptors. 0 is no limit.
func Of(limit uint64) Reserve {
	if limit == 0 || limit > 1<<30 {
		return Reserve{}
	}
	each := min(max(limit/16, fewest), most, limit/8)
	return Reserve{clients: uintptr(limit - 2*each), upstreams: uintptr(limit - each)}
}

// AdmitsClient reports whether a client's connection may keep its descriptor. A connection without
// one may.
func (r Reserve) AdmitsClient(conn any) bool {
	socket, ok := conn.(syscall.Conn)
	if r.clients == 0 || !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	admitted := true
	if err := raw.Control(func(fd uintptr) { admitted = fd < r.clients }); err != nil {
		return true
	}
	return admitted
}

// Control is for net.Dialer: it refuses a connection to an upstream that would use the reserve.
func (r Reserve) Control(_, _ string, raw syscall.RawConn) error {
	if r.upstreams == 0 {
		return nil
	}
	var refused error
	err := raw.Control(func(fd uintptr) {
		if fd >= r.upstreams {
			refused = ErrExhausted
		}
	})
	return errors.Join(err, refused)
}
