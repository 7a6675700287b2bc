package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/plain"
	"github.com/weirflow/weir/server/policyfile"
)

// edge is the gateway's side towards clients: its addresses, their certificates, and the access
// log. It is a face.Face.
type edge struct {
	gateway   *Gateway
	port      *listen.Port
	listeners []*edgeListener
	server    *plain.Server

	mu     sync.Mutex       // updates, Tick, Reopen and metrics come from goroutines of their own
	file   *policyfile.File // whose certificates are in force
	seen   [][32]byte       // versions of the files of certificates, for each listener
	warned time.Time        // when it was last looked which certificates expire
	access accessLog
}

// edgeListener is one address of the gateway.
type edgeListener struct {
	bound net.Addr
	*listen.Listener
}

// Certificates that expire soon are logged so long before, once a day.
const (
	expiresSoon = 14 * 24 * time.Hour
	warnEvery   = 24 * time.Hour
)

// Kind is the gateway as a face.
func Kind() face.Kind { return face.Kind{Name: "gateway", Open: open, Check: Check} }

// open opens the addresses of the gateway, and all that is behind them.
func open(ctx context.Context, h face.Host) (face.Face, error) {
	g, err := New(ctx, h.Policy, h.Log)
	if err != nil {
		return nil, err
	}
	p := &h.Policy.File().Policy
	e := &edge{gateway: g, port: listen.NewPort(p.Listen.Bounds, p.TrustedProxies)}
	e.port.OnRefused(g.Refused)
	if err := e.open(ctx, h, p.Listen.Gateway); err != nil {
		e.Close()
		return nil, err
	}
	e.server = e.port.Front(g, face.AnonymousLog(h.Log.Handler()), WithConn)
	return e, nil
}

func (e *edge) open(ctx context.Context, h face.Host, all []policy.Listener) error {
	for _, l := range all {
		socket, err := h.Listen(l.Address)
		if err != nil {
			return err
		}
		o := listen.Options{Address: l.Address, H2C: l.H2C, ProxyProtocol: l.ProxyProtocol}
		if l.TLS != nil {
			o.Certificates = new(listen.Certificates) // which joining the policy fills
		}
		e.listeners = append(e.listeners, &edgeListener{bound: socket.Addr(), Listener: e.port.Listen(socket, o)})
	}
	e.redirect(all)
	if err := h.Policy.Join(ctx, e); err != nil {
		return err
	}
	return errors.Join(h.Metrics.Register(edgeMetrics{e}), h.Metrics.Register(requestMetrics{e.gateway}), h.Metrics.Register(roomMetrics{e.gateway}))
}

// redirect tells the listeners that send requests to TLS which port has it.
func (e *edge) redirect(all []policy.Listener) {
	port := ""
	for i, l := range all {
		if tcp, ok := e.listeners[i].bound.(*net.TCPAddr); ok && l.TLS != nil && port == "" {
			port = strconv.Itoa(tcp.Port)
		}
	}
	for i, l := range all {
		if l.RedirectHTTPS {
			e.listeners[i].RedirectHTTPS, e.listeners[i].RedirectHosts = port, l.RedirectHosts
		}
	}
}

// Prepare reads the certificates and opens the access log of the next policy.
func (e *edge) Prepare(_ context.Context, _ *active.Snapshot, next active.Candidate) (active.Change, error) {
	c := &edgeChange{edge: e, file: next.File}
	var err error
	if c.certificates, err = loadCertificates(next.File); err != nil {
		return nil, err
	}
	e.mu.Lock()
	current := e.access.settings
	e.mu.Unlock()
	c.log, err = openLog(next.File, current, e.gateway.log)
	return c, err
}

// edgeChange is an edge that is prepared for another policy.
type edgeChange struct {
	edge         *edge
	file         *policyfile.File
	certificates loadedCertificates
	log          *nextLog
}

// Commit puts the certificates and the access log in force.
func (c *edgeChange) Commit(*active.Snapshot) {
	e := c.edge
	e.mu.Lock()
	defer e.mu.Unlock()
	e.file = c.file
	e.useCertificates(c.certificates)
	e.warnOfExpiry()
	e.useLog(c.log)
}

// Discard closes the access log that was opened.
func (c *edgeChange) Discard() { c.log.discard() }

// loadedCertificates are those of each listener, nil for one without TLS, and the versions of their
// files.
type loadedCertificates struct {
	all  []*listen.Certificates
	seen [][32]byte
}

// loadCertificates reads the certificates that a policy names.
func loadCertificates(file *policyfile.File) (loadedCertificates, error) {
	seen := certificateVersions(file) // first: a change from now on is seen as one
	all, wrong := certificatesOf(file)
	if len(wrong) > 0 {
		return loadedCertificates{}, &policyfile.InvalidError{Problems: wrong}
	}
	return loadedCertificates{all, seen}, nil
}

// certificateVersions are the versions of the files of certificates, for each listener.
func certificateVersions(file *policyfile.File) [][32]byte {
	all := make([][32]byte, len(file.Policy.Listen.Gateway))
	for i, l := range file.Policy.Listen.Gateway {
		if l.TLS != nil {
			all[i] = listen.Version(l.TLS, file.Beside)
		}
	}
	return all
}

// useCertificates puts certificates in force. The lock is held, here and in all below.
func (e *edge) useCertificates(c loadedCertificates) {
	e.seen = c.seen
	e.warned = time.Time{}
	for i, next := range c.all {
		if next != nil {
			e.listeners[i].Certificates.Replace(next)
		}
	}
}

// Tick reads certificates again whose files have changed, all or nothing. A certificate and its key
// are two files: while only one of them has changed they do not match, which is logged once, and
// ends with the other change.
func (e *edge) Tick() {
	e.mu.Lock()
	file, seen := e.file, e.seen
	e.mu.Unlock()
	now := certificateVersions(file) // without the lock: a disk may be slow
	changed := !reflect.DeepEqual(now, seen)
	var certificates loadedCertificates
	var err error
	if changed {
		certificates, err = loadCertificates(file)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if changed && e.file == file { // otherwise another policy has brought its own
		e.seen = now
		if err != nil {
			e.gateway.log.Error("certificates not reloaded: the old ones stay in use", "error", err)
			return
		}
		e.useCertificates(certificates)
		e.gateway.log.Info("certificates reloaded")
	}
	e.warnOfExpiry()
}

// warnOfExpiry logs certificates that expire soon, once a day.
func (e *edge) warnOfExpiry() {
	now := time.Now()
	if now.Sub(e.warned) < warnEvery {
		return
	}
	e.warned = now
	for _, x := range e.expiries() {
		switch left := x.NotAfter.Sub(now); {
		case left <= 0:
			e.gateway.log.Error("a certificate has expired: clients will not connect", "file", x.File, "not_after", x.NotAfter)
		case left < expiresSoon:
			e.gateway.log.Warn("a certificate expires soon", "file", x.File, "not_after", x.NotAfter)
		}
	}
}

// expiries needs no lock.
func (e *edge) expiries() (all []listen.Expiry) {
	for _, l := range e.listeners {
		if l.Certificates != nil {
			all = append(all, l.Certificates.Expiries()...)
		}
	}
	return all
}

// Addresses returns where the gateway listens.
func (e *edge) Addresses() (all []string) {
	for _, l := range e.listeners {
		all = append(all, l.bound.String())
	}
	return all
}

// Serve serves all addresses. The first that fails ends the others.
func (e *edge) Serve() error {
	failed := make(chan error, len(e.listeners))
	for _, l := range e.listeners {
		go func() { failed <- e.server.Serve(l.Listener) }()
	}
	var first error
	for range e.listeners {
		if err := <-failed; err != http.ErrServerClosed && first == nil {
			first = err
			e.server.Close()
		}
	}
	return first
}

// Leave has each response from now on close its connection.
func (e *edge) Leave(replaced bool) {
	e.gateway.Leave()
	if replaced {
		for _, l := range e.listeners {
			l.Stop()
		}
	}
}

// Draining returns how many connections of clients are open.
func (e *edge) Draining() int { return e.port.Counts().Open }

// Shutdown lets requests in flight end. Clients that stall in the middle of a body do not hold it up.
func (e *edge) Shutdown(ctx context.Context) error {
	e.port.Drain()
	var all sync.WaitGroup
	for _, l := range e.listeners {
		l.Stop()
		all.Go(func() { l.Settle(ctx) })
	}
	all.Wait()
	return e.server.Shutdown(ctx)
}

// Close ends the gateway at once.
func (e *edge) Close() error {
	if e.server != nil {
		e.server.Close()
	}
	for _, l := range e.listeners {
		l.Close()
	}
	e.mu.Lock()
	access := e.access
	e.mu.Unlock()
	access.close()
	return e.gateway.Close()
}
