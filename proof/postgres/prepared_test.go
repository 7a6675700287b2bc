package postgres

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

// A tap passes connections on to a server, and notes whether clients name prepared statements.
type tap struct {
	net.Listener
	to    string
	named atomic.Bool
	all   sync.WaitGroup
}

// startTap returns a tap and the URL that leads through it.
func startTap(t *testing.T, serverURL string) (*tap, string) {
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{to: u.Host}
	if p.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.all.Go(func() {
		for {
			client, err := p.Accept()
			if err != nil {
				return // closed
			}
			p.all.Go(func() { p.pass(client) })
		}
	})
	t.Cleanup(func() {
		p.Close()
		p.all.Wait()
	})
	u.Host = p.Addr().String()
	return p, u.String()
}

// pass passes one connection on until an end closes it.
func (p *tap) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	var replies sync.WaitGroup
	defer replies.Wait()
	defer server.Close()
	replies.Go(func() {
		defer client.Close()
		_, _ = io.Copy(client, server) // it ends with the connection
	})
	_, _ = io.Copy(server, io.TeeReader(client, p))
}

// Write implements io.Writer. pgx sends the messages that prepare a statement at once.
func (p *tap) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("stmtcache_")) {
		p.named.Store(true)
	}
	return len(b), nil
}

// testPrepared: statements are prepared on connections with the server itself, and never where a pgbouncer is in
// between, whose connections lead to any process of the server.
func testPrepared(t *testing.T, server *servers.PostgresServer) {
	for _, c := range []struct {
		name, url string
		prepared  bool
	}{
		{"the server", server.URL(), true},
		{"the server, with a mode of the user's own", server.URL() + "&default_query_exec_mode=exec", false},
		{"pgbouncer", servers.StartPgbouncer(t, server, 2), false},
	} {
		p, through := startTap(t, c.url)
		s, err := weirpgx.Open(through, weirsql.Options{Prefix: "prepared", SweepEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20 {
					if err := try(t, s.Store, []weir.Charge{{Name: "x", Limit: bucket, Cost: 1}}, make([]weir.Decision, 1)); err != nil {
						t.Errorf("%s: %v", c.name, err)
						return
					}
				}
			})
		}
		all.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := p.named.Load(); got != c.prepared {
			t.Errorf("%s: prepared statements: %v, want %v", c.name, got, c.prepared)
		}
	}
}
