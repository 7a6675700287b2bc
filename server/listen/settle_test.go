package listen

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/policy"
)

// inMemory is a listener whose connections are in memory.
type inMemory struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (m *inMemory) Accept() (net.Conn, error) {
	select {
	case c := <-m.accepted:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *inMemory) Close() error   { close(m.closed); return nil }
func (m *inMemory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// fromLoopback is a connection from an address that may send a PROXY header.
type fromLoopback struct{ net.Conn }

func (fromLoopback) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234}
}

// TestSettle: a client that has connected just before the end has a second for what comes before its first request,
// and is accepted then; one that sends nothing is not waited for any longer.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		sends bool
		takes time.Duration
	}{"soon": {true, restOfHandshake / 2}, "never": {false, restOfHandshake}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &inMemory{make(chan net.Conn), make(chan struct{})}
				l := NewPort(policy.Bounds{}, nil).Listen(inner, Options{ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
				got := make(chan net.Conn, 1)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						got <- conn
					}
				}()
				client, server := net.Pipe()
				defer client.Close()
				inner.accepted <- fromLoopback{server}
				synctest.Wait()
				l.Stop()
				began := time.Now()
				if c.sends {
					go func() {
						<-time.After(restOfHandshake / 2)
						io.WriteString(client, "PROXY TCP4 192.0.2.1 192.0.2.2 1 80\r\n")
					}()
				}
				l.Settle(context.Background())
				if took := time.Since(began); took < c.takes || took > c.takes+restOfHandshake/10 {
					t.Errorf("after %v, want %v", took, c.takes)
				}
				if c.sends {
					conn := <-got
					if conn.RemoteAddr().String() != "192.0.2.1:1" {
						t.Error(conn.RemoteAddr())
					}
					conn.Close()
				}
				l.Close()
				<-ended
			})
		})
	}
}
