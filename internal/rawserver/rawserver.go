// Package rawserver starts TCP servers whose bytes a test chooses, for tests of what speaks HTTP to
// servers. Only tests import this package; imports_test.go checks it.
package rawserver

import (
	"bufio"
	"context"
	"net"
	"sync"
)

// TB is the part of testing.TB that Start needs.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// Start returns the address of a server that calls talk for each connection, and closes it after
// that. When the test ends, the server ends, and with it all connections; talk must return then.
func Start(t TB, talk func(conn net.Conn, in *bufio.Reader)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() { end(); _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close() //nolint:errcheck // it may be closed already
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				talk(conn, bufio.NewReader(conn))
			})
		}
	})
	return l.Addr().String()
}
