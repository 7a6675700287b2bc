package listen

import (
	"sync"
	"time"
)

// drainTimeout is how long a client may stall in the middle of a body while the port drains. It is long
// enough for a few lost packets: clients of a gateway send large bodies over bad networks.
const drainTimeout = 5 * time.Second

// incoming is what clients have not sent in full: bodies, and the connections of HTTP/1 on which
// net/http reads the rest of a body whose handler has returned.
type incoming struct {
	mu       sync.Mutex
	all      map[drainable]struct{}
	draining bool
}

// A drainable is bounded by drainTimeout once drain was called.
type drainable interface{ drain() }

// add reports whether the port drains, so that drain is not going to be called.
func (i *incoming) add(d drainable) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.draining {
		return true
	}
	if i.all == nil {
		i.all = map[drainable]struct{}{}
	}
	i.all[d] = struct{}{}
	return false
}

func (i *incoming) remove(d drainable) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, d)
}

// Drain gives clients less time for bodies from now on: one that stalls would hold up a shutdown for
// the whole grace. A body that keeps coming at MinBodyRate, and does not stall for drainTimeout, goes on.
func (p *Port) Drain() {
	p.incoming.mu.Lock()
	defer p.incoming.mu.Unlock()
	p.incoming.draining = true
	for d := range p.incoming.all {
		d.drain()
	}
	p.incoming.all = nil
}

// drain starts the count of time and bytes over, with the shorter timeout.
func (p *pacedBody) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining, p.timeout, p.waited, p.n = true, min(p.timeout, drainTimeout), 0, 0
	now := time.Now()
	switch until := now.Add(p.timeout); {
	case !p.began.IsZero():
		p.began = now
		p.bound(until)
	case p.lines && !p.complete:
		p.setDeadline(until) // net/http may read the rest, before it sends a response
	}
}

// drain bounds the rest of a body whose handler has returned.
func (c *Conn) drain() {
	_ = c.Conn.SetReadDeadline(time.Now().Add(min(c.listener.port.bounds.BodyTimeout, drainTimeout))) // reading reports a closed connection
}

// endRest is called when the rest of the last request's body was read, or is not going to be. It
// reports whether a drain may have set a deadline, which must not end the next request.
func (c *Conn) endRest() (bounded bool) {
	if !c.restUnread.Load() {
		return false
	}
	c.restUnread.Store(false)
	i := &c.listener.port.incoming
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.all, c)
	return i.draining
}
