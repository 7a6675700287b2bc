package cluster

import (
	"io"
	"net"
	"regexp"
	"sync"
	"testing"
)

// A wire passes connections on to a node, from the address that the other nodes know. It learns which node a
// connection is from by what that says of itself, so that a node can be cut off in both directions.
type wire struct {
	net.Listener
	to   string // where the node listens
	cuts *cuts
}

// cuts are the nodes that are cut off, by their addresses, and all connections between nodes.
type cuts struct {
	mu    sync.Mutex
	off   map[string]bool
	conns map[*relayed]bool
	wg    sync.WaitGroup
}

// relayed is a connection between two nodes.
type relayed struct {
	from, to string // from is "" until it is known
	ends     [2]net.Conn
}

func (r *relayed) close() {
	_ = r.ends[0].Close()
	_ = r.ends[1].Close()
}

// wires stands between n nodes until the test ends.
func wires(t *testing.T, n int) (all []*wire, c *cuts) {
	t.Helper()
	c = &cuts{off: map[string]bool{}, conns: map[*relayed]bool{}}
	for _, to := range addresses(t, n) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := &wire{l, to, c}
		all = append(all, w)
		c.wg.Go(w.serve)
	}
	t.Cleanup(func() {
		for _, w := range all {
			_ = w.Close()
		}
		c.mu.Lock()
		for r := range c.conns {
			r.close()
		}
		c.mu.Unlock()
		c.wg.Wait()
	})
	return all, c
}

func (w *wire) node() string { return w.Addr().String() }

func (w *wire) serve() {
	for {
		from, err := w.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		r := &relayed{to: w.node(), ends: [2]net.Conn{from, to}}
		w.cuts.mu.Lock()
		w.cuts.conns[r] = true
		if w.cuts.off[r.to] {
			r.close()
		}
		w.cuts.mu.Unlock()
		w.cuts.wg.Go(func() { w.cuts.relay(r) })
	}
}

// says is what a node tells of itself when it has connected.
var says = regexp.MustCompile(`"server_name":"([^"]+)"`)

func (c *cuts) relay(r *relayed) {
	defer func() {
		r.close()
		c.mu.Lock()
		delete(c.conns, r)
		c.mu.Unlock()
	}()
	c.wg.Go(func() {
		defer r.close()
		_, _ = io.Copy(r.ends[0], r.ends[1])
	})
	buffer, first := make([]byte, 64<<10), []byte(nil)
	for {
		n, err := r.ends[0].Read(buffer)
		if err != nil {
			return
		}
		if r.from == "" && len(first) < 64<<10 {
			first = append(first, buffer[:n]...)
			if found := says.FindSubmatch(first); found != nil {
				c.mu.Lock()
				r.from = string(found[1])
				off := c.off[r.from]
				c.mu.Unlock()
				if off {
					return
				}
			}
		}
		if _, err := r.ends[1].Write(buffer[:n]); err != nil {
			return
		}
	}
}

// set cuts a node off, or connects it again.
func (c *cuts) set(node string, off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off[node] = off
	for r := range c.conns {
		if off && (r.to == node || r.from == node) {
			r.close()
		}
	}
}
