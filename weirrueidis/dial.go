package weirrueidis

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// A dialer connects for calls whose deadlines may be shorter than connecting takes. A connection
// attempt goes on when the call that began it ends, and the next call continues with it. Otherwise
// a short deadline and a slow TLS handshake could keep a client disconnected for ever.
type dialer struct {
	connect func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error)
	timeout time.Duration // of an attempt

	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	paces  paces

	mu     sync.Mutex
	left   map[string][]*attempt // by the calls that began them, by address
	closed bool
}

// An attempt is a connection that is being made, or has been.
type attempt struct {
	done chan struct{} // closed once there is a connection or an error
	conn net.Conn
	err  error
	at   time.Time // when it was done
}

// keepFor is how long an unused connection is good: a server may end one that sends nothing.
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

// dial returns a connection or an error, no later than the context ends. Before the address may be
// connected to again it returns the error of the attempt before, at once.
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

// take returns an attempt that another call left, unless it has failed or its connection has waited
// too long.
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

// begin connects, in the background, at the pace of the address.
func (d *dialer) begin(addr string, by *net.Dialer, config *tls.Config) *attempt {
	a := &attempt{done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		a.err = net.ErrClosed
		close(a.done)
		return a
	}
	if a.err = d.paces.begin(addr); a.err != nil {
		close(a.done)
		return a
	}
	d.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(d.ctx, d.timeout)
		defer cancel()
		a.conn, a.err = d.connect(ctx, addr, by, config)
		d.paces.ended(addr, a.err)
		a.at = time.Now()
		close(a.done)
	})
	return a
}

// leave keeps an attempt for the next call.
func (d *dialer) leave(addr string, a *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left[addr] = append(d.left[addr], a)
}

// close ends attempts in flight, and closes connections that no call took.
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

// drop closes the connection, if there is one.
func (a *attempt) drop() {
	if a.conn != nil {
		a.conn.Close()
	}
}
