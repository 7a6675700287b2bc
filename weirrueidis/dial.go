package weirrueidis

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// A dialer connects for calls that may have less time than that takes. What a call has begun goes on when it ends, and the next one takes it up:
// otherwise, over TLS and a long way, a short deadline would keep a client from ever being connected again.
type dialer struct {
	connect func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error)
	timeout time.Duration // of an attempt

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex
	left   map[string][]*attempt // by whoever began them, by address
	closed bool
}

// attempt is a connection that is being made, or was.
type attempt struct {
	done chan struct{} // closed once there is one or an error
	conn net.Conn
	err  error
	at   time.Time // when it was done
}

// keepFor is how long a connection may wait for somebody to take it: a server may end one that says nothing.
const keepFor = 5 * time.Second

func newDialer(network string, timeout time.Duration) *dialer {
	d := &dialer{timeout: timeout, left: map[string][]*attempt{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.connect = func(ctx context.Context, addr string, by *net.Dialer, config *tls.Config) (net.Conn, error) {
		if config == nil {
			return by.DialContext(ctx, network, addr)
		}
		secure := tls.Dialer{NetDialer: by, Config: config}
		return secure.DialContext(ctx, network, addr)
	}
	return d
}

// dial returns a connection, or an error, at the latest when the context ends.
func (d *dialer) dial(ctx context.Context, addr string, by *net.Dialer, config *tls.Config) (net.Conn, error) {
	a := d.take(addr)
	if a == nil {
		a = d.begin(addr, by, config)
	}
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		d.leave(addr, a)
		return nil, ctx.Err()
	}
}

// take takes up what somebody left. An attempt that has failed meanwhile, and a connection that has waited too long, are no use.
func (d *dialer) take(addr string) *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.left[addr]) > 0 {
		a := d.left[addr][0]
		d.left[addr] = d.left[addr][1:]
		select {
		case <-a.done:
			if a.err == nil && time.Since(a.at) < keepFor {
				return a
			}
			a.drop()
		default:
			return a
		}
	}
	delete(d.left, addr)
	return nil
}

// begin connects, in the background.
func (d *dialer) begin(addr string, by *net.Dialer, config *tls.Config) *attempt {
	a := &attempt{done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		a.err = net.ErrClosed
		close(a.done)
		return a
	}
	d.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(d.ctx, d.timeout)
		defer cancel()
		a.conn, a.err = d.connect(ctx, addr, by, config)
		a.at = time.Now()
		close(a.done)
	})
	return a
}

// leave is for who cannot wait any longer.
func (d *dialer) leave(addr string, a *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left[addr] = append(d.left[addr], a)
}

// close ends what is under way, and what nobody took.
func (d *dialer) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.tasks.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, left := range d.left {
		for _, a := range left {
			a.drop()
		}
	}
	d.left = map[string][]*attempt{}
}

// drop closes what was made.
func (a *attempt) drop() {
	if a.conn != nil {
		a.conn.Close()
	}
}
