// Package listen accepts the connections of clients: it learns their addresses, speaks TLS, and
// bounds what one client may use, so that no client can keep the others out.
//
// A Listener returns connections that are ready to be read (a *Conn, or a *tls.Conn over one).
// Front serves them: plain requests by package plain, and the rest by net/http, behind a guard for
// HTTP/1. Handler checks each request before the gateway sees it.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirflow/weir/internal/tally"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/descriptors"
	"github.com/weirflow/weir/server/eventloop"
)

// A Port is all listeners of a gateway, with their common bounds and counters.
type Port struct {
	bounds policy.Bounds
	places *places
	counts counts
	spare  descriptors.Reserve

	incoming incoming

	refused func(*http.Request, int) // nil for nobody
}

// counts are the counters behind Counts.
type counts struct {
	accepted, full, client, untrusted, header, handshake, descriptors atomic.Uint64
	http11, http2                                                     tally.Counter // the frequent ones
	http10                                                            atomic.Uint64
	unclear, fields                                                   atomic.Uint64
}

// Counts counts connections and requests by outcome. It names no client.
type Counts struct {
	Open      int    // open connections
	Accepted  uint64 // accepted connections
	Full      uint64 // refused: max_connections were open
	Client    uint64 // refused: the client had max_client_connections open
	Untrusted uint64 // refused: the peer may not use the PROXY protocol here
	Header    uint64 // closed: the PROXY header was missing or invalid
	Handshake uint64 // closed before the TLS handshake was complete

	Descriptors uint64 // refused: too few file descriptors are left

	HTTP10, HTTP11, HTTP2 uint64 // requests, by protocol
	Unclear               uint64 // ambiguous requests, which were refused
	Fields                uint64 // requests refused for more than max_fields header fields
}

// NewPort returns a Port with no listener. Connections from trusted prefixes are not counted per
// client: a proxy opens many.
func NewPort(b policy.Bounds, trusted []netip.Prefix) *Port {
	b = b.WithDefaults()
	return &Port{bounds: b, spare: descriptors.Current(), places: &places{
		max: b.MaxConnections, maxClient: b.MaxClientConnections, trusted: trusted, clients: map[netip.Prefix]int{},
	}}
}

// Counts returns the counters.
func (p *Port) Counts() Counts {
	c := &p.counts
	return Counts{
		Open: p.places.open(), Accepted: c.accepted.Load(), Full: c.full.Load(), Client: c.client.Load(),
		Untrusted: c.untrusted.Load(), Header: c.header.Load(), Handshake: c.handshake.Load(), Descriptors: c.descriptors.Load(),
		HTTP10: c.http10.Load(), HTTP11: c.http11.Load(), HTTP2: c.http2.Load(), Unclear: c.unclear.Load(), Fields: c.fields.Load(),
	}
}

// Options are the settings of a listener.
type Options struct {
	Address      string        // as the policy says it
	Certificates *Certificates // nil without TLS
	H2C          bool          // HTTP/2 without TLS
	// the peers that may connect, and send the client's address first; nil without the PROXY
	// protocol
	ProxyProtocol []netip.Prefix
	RedirectHTTPS string   // the port that every request is sent to; empty answers them
	RedirectHosts []string // the only hosts that are redirected; nil for all
}

// A Listener gives connections that are ready: their client is known, and their TLS handshake is
// over. It is safe to use concurrently.
type Listener struct {
	net.Listener
	Options
	port *Port

	start   sync.Once
	ready   chan accepted
	done    chan struct{}
	close   func() error
	stopped atomic.Bool
	wg      sync.WaitGroup // what prepares connections, and what lingers

	mu     sync.Mutex
	apart  map[net.Conn]struct{} // connections that are being prepared, or linger
	ending bool

	preparing atomic.Int32 // how many are being prepared
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listen wraps an open listener.
func (p *Port) Listen(inner net.Listener, o Options) *Listener {
	if o.Certificates == nil {
		inner = eventloop.Listener(inner)
	}
	l := &Listener{
		Listener: inner, Options: o, port: p,
		ready: make(chan accepted), done: make(chan struct{}), apart: map[net.Conn]struct{}{},
	}
	l.close = sync.OnceValue(func() error {
		l.Stop()
		close(l.done)
		l.mu.Lock()
		l.ending = true
		for c := range l.apart {
			c.Close()
		}
		l.mu.Unlock()
		l.wg.Wait()
		return nil
	})
	return l
}

// Stop accepts no more connections. Accept still returns those whose handshake is in progress,
// until Close.
func (l *Listener) Stop() {
	if l.stopped.CompareAndSwap(false, true) {
		l.Listener.Close()
	}
}

// Settle waits for handshakes that are in progress after Stop, for restOfHandshake at most.
func (l *Listener) Settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, restOfHandshake)
	defer cancel()
	ticker := time.NewTicker(restOfHandshake / 100)
	defer ticker.Stop()
	for l.preparing.Load() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// restOfHandshake is how long a client that has just connected has for the TLS handshake, or the PROXY header, as a
// shutdown begins.
const restOfHandshake = time.Second

// Close closes the listener, and the connections that Accept has not returned.
func (l *Listener) Close() error { return l.close() }

// Accept returns the next connection that is ready: a *tls.Conn or a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	if l.Certificates == nil && len(l.ProxyProtocol) == 0 {
		return l.acceptPlain()
	}
	l.start.Do(func() { l.wg.Go(l.acceptAll) })
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// acceptPlain is Accept for listeners that read nothing before a connection is ready.
func (l *Listener) acceptPlain() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			if l.stopped.Load() {
				<-l.done
				return nil, net.ErrClosed
			}
			return nil, err
		}
		if c := l.enter(raw); c != nil && l.known(c) {
			return c, nil
		}
	}
}

// acceptAll accepts connections for Accept, and prepares each in a goroutine of its own.
func (l *Listener) acceptAll() {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			if l.stopped.Load() || !l.give(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // Accept has returned the error: its caller may pause before it accepts again
		}
		c := l.enter(raw)
		if c == nil {
			continue
		}
		if !l.prepares(c) {
			c.Close()
			return
		}
		l.preparing.Add(1)
		l.wg.Go(func() {
			defer l.preparing.Add(-1)
			conn := l.prepare(c)
			l.mu.Lock()
			delete(l.apart, c)
			l.mu.Unlock()
			if conn != nil && !l.give(accepted{conn: conn}) {
				conn.Close()
			}
		})
	}
}

// prepares registers a connection that is being prepared, and reports false if the listener is
// closing.
func (l *Listener) prepares(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ending {
		l.apart[c] = struct{}{}
	}
	return !l.ending
}

func (l *Listener) give(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.done:
		return false
	}
}

// enter counts a connection, or closes it if there are too many. It sends no response: before a TLS
// handshake it could not.
func (l *Listener) enter(raw net.Conn) *Conn {
	p := l.port
	peer := addrOf(raw.RemoteAddr())
	if len(l.ProxyProtocol) > 0 && !slices.ContainsFunc(l.ProxyProtocol, func(b netip.Prefix) bool { return b.Contains(peer) }) {
		p.counts.untrusted.Add(1)
		raw.Close()
		return nil
	}
	if !p.spare.AdmitsClient(raw) {
		p.counts.descriptors.Add(1)
		raw.Close()
		return nil
	}
	if !p.places.enter() {
		p.counts.full.Add(1)
		raw.Close()
		return nil
	}
	p.counts.accepted.Add(1)
	c := &Conn{Conn: raw, listener: l, remote: raw.RemoteAddr(), writeTimeout: p.bounds.WriteTimeout}
	if in, ok := raw.(*eventloop.Conn); ok {
		in.SetWriteTimeout(c.writeTimeout)
		c.writeTimeout = 0
	}
	return c
}

// known counts a connection for its client.
func (l *Listener) known(c *Conn) bool {
	leaveClient, ok := l.port.places.enterClient(addrOf(c.remote))
	if !ok {
		l.port.counts.client.Add(1)
		c.Close()
		return false
	}
	c.of(leaveClient)
	return true
}

// prepare reads the PROXY header and completes the TLS handshake. It returns nil for a connection
// that it has closed.
func (l *Listener) prepare(c *Conn) net.Conn {
	timeout := l.port.bounds.HeaderTimeout
	if len(l.ProxyProtocol) > 0 {
		err := c.Conn.SetReadDeadline(time.Now().Add(timeout))
		client, rest, readErr := readProxyHeader(c.Conn)
		if errors.Join(err, readErr, c.Conn.SetReadDeadline(time.Time{})) != nil {
			l.port.counts.header.Add(1)
			c.Close()
			return nil
		}
		c.rest = rest
		if client.IsValid() {
			c.remote = net.TCPAddrFromAddrPort(client)
		}
	}
	if !l.known(c) {
		return nil
	}
	if l.Certificates == nil {
		return c
	}
	conn := tls.Server(c, l.Certificates.config())
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		l.port.counts.handshake.Add(1)
		sayPlain(err)
		c.Close()
		return nil
	}
	return conn
}

// sayPlain responds to a client that speaks HTTP to a TLS address.
func sayPlain(err error) {
	var record tls.RecordHeaderError
	if !errors.As(err, &record) || record.Conn == nil {
		return
	}
	switch string(record.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		io.WriteString(record.Conn, "HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\nThis address speaks HTTPS.\n")
	}
}

func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// remedy says what to do about an address that cannot be listened on.
func remedy(err error) string {
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		return "write an address of this machine instead of the name"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine does not have that address: write one that it has, or 0.0.0.0 for all"
	case errors.Is(err, os.ErrPermission):
		return "a port below 1024 may need root or CAP_NET_BIND_SERVICE; or choose a higher one"
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop what listens there, or choose another address"
	}
	return "choose another address"
}

// Open listens on an address. The error says what to do.
func Open(name, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("%s: cannot listen on %s: %w: %s", name, address, err, remedy(err))
	}
	return l, nil
}
