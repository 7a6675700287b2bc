package descriptors

import (
	"net"
	"os"
	"syscall"
	"testing"
)

// TestReserve: as descriptors run out, first clients are refused, then connections to upstreams,
// and some descriptors are left.
func TestReserve(t *testing.T) {
	for _, limit := range []uint64{0, 16, 64, 80, 256, 1024, 4096, 1 << 20, 1 << 40} {
		r := Of(limit)
		if limit == 0 || limit > 1<<30 {
			if r != (Reserve{}) {
				t.Errorf("%d: %+v", limit, r)
			}
			continue
		}
		if r.clients < uintptr(limit)/2 || r.clients >= r.upstreams || r.upstreams >= uintptr(limit) {
			t.Errorf("%d: %+v", limit, r)
		}
	}
}

// TestNumberDecides compares with the real number of a socket.
func TestNumberDecides(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial := func(r Reserve) (net.Conn, error) {
		d := net.Dialer{Control: r.Control}
		return d.DialContext(t.Context(), "tcp", l.Addr().String())
	}
	conn, err := dial(Reserve{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var number uintptr
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { number = fd }); err != nil {
		t.Fatal(err)
	}
	if (Reserve{clients: number}).AdmitsClient(conn) || !(Reserve{clients: number + 1}).AdmitsClient(conn) || !(Reserve{}).AdmitsClient(conn) {
		t.Errorf("a client with descriptor %d", number)
	}
	if !(Reserve{clients: 1}).AdmitsClient(struct{}{}) {
		t.Error("a connection without a descriptor is refused")
	}
	if _, err := dial(Reserve{upstreams: 1}); err == nil {
		t.Error("a connection to an upstream used the reserve")
	}
	if again, err := dial(Reserve{upstreams: 1 << 20}); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
	if _, err := os.Stat("/proc/self/fd"); err == nil && Current() == (Reserve{}) {
		t.Error("this process has no reserve")
	}
}
