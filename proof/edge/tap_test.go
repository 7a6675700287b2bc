package edge

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// tap passes connections on to an upstream, and keeps all that is said on them: what the gateway has
// sent is then known to the byte, and so is what the upstream has read in it.
type tap struct {
	addr  string
	to    string
	mu    sync.Mutex
	conns []*tapped
	wg    sync.WaitGroup
	l     net.Listener
}

// tapped is one connection of the gateway to the upstream.
type tapped struct {
	mu               sync.Mutex
	request, respond bytes.Buffer
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: l.Addr().String(), to: to, l: l}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.pass(c) })
		}
	})
	t.Cleanup(func() { p.close() })
	return p
}

// close waits for the ends of all connections, which the gateway has closed before.
func (p *tap) close() { p.l.Close(); p.wg.Wait() }

func (p *tap) pass(gateway net.Conn) {
	defer gateway.Close()
	upstream, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer upstream.Close()
	upstream.SetDeadline(time.Now().Add(servers.Patience))
	c := &tapped{}
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	var wg sync.WaitGroup
	more := make(chan struct{}, 1) // the gateway has sent something, or has closed the connection
	wg.Go(func() {                 // as long as the upstream speaks, also after the gateway has left
		io.Copy(io.MultiWriter(upstream, signal(more)), io.TeeReader(gateway, c.keep(&c.request)))
		signal(more).Write(nil)
		upstream.(*net.TCPConn).CloseWrite()
	})
	b := make([]byte, 16<<10)
	for {
		n, err := upstream.Read(b)
		c.keep(&c.respond).Write(b[:n])
		head, rest := b[:n], b[n:n]
		if end := bytes.Index(head, []byte("\r\n\r\n")); end >= 0 && bytes.Contains(head[:end], []byte("X-Seen: HEAD ")) {
			head, rest = b[:end+4], b[end+4:n]
		}
		select {
		case <-more:
		default:
		}
		gateway.Write(head)
		if bytes.Contains(head, []byte("X-Seen: HEAD ")) {
			// A body that must not be there comes late: with the next response, if there is one.
			select {
			case <-more:
			case <-time.After(100 * time.Millisecond):
			}
			gateway.Write(rest)
		}
		if err != nil {
			break
		}
	}
	gateway.Close()
	wg.Wait()
}

// signal returns a writer that only says that something was written.
func signal(to chan<- struct{}) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		select {
		case to <- struct{}{}:
		default:
		}
		return len(b), nil
	})
}

// keep writes to a buffer of the connection.
func (c *tapped) keep(to *bytes.Buffer) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return to.Write(b)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

var seenLine = regexp.MustCompile(`(?i)\r\nX-Seen: ([^\r\n]*)`)

// seen is what the upstream says that it has read, in order.
func (c *tapped) seen() (all []string) {
	for _, found := range seenLine.FindAllSubmatch(c.respond.Bytes(), -1) {
		all = append(all, string(found[1]))
	}
	return all
}

// sent is all that the gateway has sent.
func (p *tap) sent() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all strings.Builder
	for _, c := range p.conns {
		c.mu.Lock()
		all.Write(c.request.Bytes())
		c.mu.Unlock()
	}
	return all.String()
}
