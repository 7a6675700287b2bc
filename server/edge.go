package server

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/handover"
	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
)

// edge is the gateway's side towards clients.
type edge struct {
	port      *listen.Port
	listeners []*edgeListener
	mu        sync.Mutex // for log, which metrics look at
	log       accessLog
	seen      [][32]byte // of the files of certificates, for each listener
	told      time.Time  // when it was last looked whether a certificate ends
}

// edgeListener is one address of the gateway.
type edgeListener struct {
	address string       // as the policy says it
	socket  net.Listener // what is handed over
	*listen.Listener
}

// Certificates are told to end so long before, once a day.
const (
	expiresSoon = 14 * 24 * time.Hour
	tellEvery   = 24 * time.Hour
)

// openEdge opens the addresses of the gateway, and its access log. What it has begun when it fails, stop ends.
func (s *server) openEdge(file *policyfile.File) error {
	p := &file.Policy
	s.edge.port = listen.NewPort(p.Listen.Bounds, p.TrustedProxies)
	s.edge.port.OnRefused(s.gateway.Refused)
	certificates, err := s.edge.load(file)
	if err != nil {
		return err
	}
	for i, l := range p.Listen.Gateway {
		socket, err := s.open(gatewayServer, l.Address)
		if err != nil {
			return err
		}
		s.edge.listeners = append(s.edge.listeners, &edgeListener{address: l.Address, socket: socket, Listener: s.edge.port.Listen(socket, listen.Options{
			Certificates: certificates.all[i], H2C: l.H2C, ProxyProtocol: l.ProxyProtocol,
		})})
		s.addrs.Gateways = append(s.addrs.Gateways, socket.Addr().String())
	}
	s.addrs.Gateway = s.addrs.Gateways[0]
	s.redirects(p.Listen.Gateway)
	s.edge.use(certificates)
	s.tellExpiries()
	if err := s.admin.Register(edgeMetrics{&s.edge}); err != nil {
		return err
	}
	logging, err := s.nextLog(file)
	if err != nil {
		return err
	}
	s.useLog(logging)
	return nil
}

// redirects says to the listeners that send requests to TLS where that is.
func (s *server) redirects(all []policy.Listener) {
	port := ""
	for i, l := range all {
		if l.TLS != nil && port == "" {
			port = portOf(s.edge.listeners[i].socket.Addr())
		}
	}
	for i, l := range all {
		if l.RedirectHTTPS {
			s.edge.listeners[i].RedirectHTTPS = port
		}
	}
}

func portOf(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return strconv.Itoa(tcp.Port)
	}
	return ""
}

// serveEdge begins to serve what openEdge opened.
func (s *server) serveEdge() {
	srv := s.edge.port.Front(s.gateway, anonymous{s.Log.Handler()}, gateway.WithConn)
	s.servers[gatewayServer] = srv
	for _, l := range s.edge.listeners {
		s.serve(gatewayServer, srv, l.Listener)
	}
}

// close ends what was opened and may not be served.
func (e *edge) close() {
	for _, l := range e.listeners {
		l.Close()
	}
	e.log.close()
}

// load reads the certificates of a policy, nil for each listener without. It changes nothing.
func (e *edge) load(file *policyfile.File) (loadedCertificates, error) {
	seen := versions(file) // before: a change meanwhile is then seen as one
	all := make([]*listen.Certificates, len(file.Policy.Listen.Gateway))
	for i, l := range file.Policy.Listen.Gateway {
		if l.TLS == nil {
			continue
		}
		var err error
		if all[i], err = listen.LoadCertificates(l.TLS, filepath.Dir(file.Path)); err != nil {
			return loadedCertificates{}, fmt.Errorf("%s: the certificates of %s: %w", file.Path, l.Address, err)
		}
	}
	return loadedCertificates{all, seen}, nil
}

// loadedCertificates are those of each listener, nil for one without, and what their files held.
type loadedCertificates struct {
	all  []*listen.Certificates
	seen [][32]byte
}

// use puts certificates in force.
func (e *edge) use(c loadedCertificates) {
	e.seen = c.seen
	e.told = time.Time{}
	for i, next := range c.all {
		if next != nil {
			e.listeners[i].Certificates.Replace(next)
		}
	}
}

// versions reads the versions of the files of certificates.
func versions(file *policyfile.File) [][32]byte {
	all := make([][32]byte, len(file.Policy.Listen.Gateway))
	for i, l := range file.Policy.Listen.Gateway {
		if l.TLS != nil {
			all[i] = listen.Version(l.TLS, filepath.Dir(file.Path))
		}
	}
	return all
}

// watchCertificates reads certificates again whose files have changed, all or nothing. A certificate and its key are two files: between their
// changes they do not fit, which is told once, and mends itself.
func (s *server) watchCertificates() {
	file := s.gateway.File()
	if now := versions(file); !reflect.DeepEqual(now, s.edge.seen) {
		certificates, err := s.edge.load(file)
		s.edge.seen = now
		if err != nil {
			s.Log.Error("certificates not reloaded: the old ones go on", "error", err)
			return
		}
		s.edge.use(certificates)
		s.Log.Info("certificates reloaded")
	}
	s.tellExpiries()
}

// tellExpiries warns of certificates that end soon.
func (s *server) tellExpiries() {
	now := time.Now()
	if now.Sub(s.edge.told) < tellEvery {
		return
	}
	s.edge.told = now
	for _, e := range s.edge.expiries() {
		switch left := e.NotAfter.Sub(now); {
		case left <= 0:
			s.Log.Error("a certificate has expired: clients will not connect", "file", e.File, "not_after", e.NotAfter)
		case left < expiresSoon:
			s.Log.Warn("a certificate expires soon", "file", e.File, "not_after", e.NotAfter)
		}
	}
}

func (e *edge) expiries() (all []listen.Expiry) {
	for _, l := range e.listeners {
		if l.Certificates != nil {
			all = append(all, l.Certificates.Expiries()...)
		}
	}
	return all
}

// changedSockets says what under listen is other than it was and cannot change while it is served: all but the files of TLS.
func changedSockets(was, now policy.Listen) string {
	plain := func(l policy.Listen) policy.Listen {
		all := make([]policy.Listener, len(l.Gateway))
		for i, one := range l.Gateway {
			if one.TLS != nil {
				one.TLS = &policy.TLS{}
			}
			all[i] = one
		}
		l.Gateway = all
		return l
	}
	was, now = plain(was), plain(now)
	switch {
	case !reflect.DeepEqual(was.Gateway, now.Gateway):
		return "listen.gateway"
	case was.Bounds != now.Bounds:
		return "listen.bounds"
	case was.Admin != now.Admin:
		return "listen.admin"
	case !reflect.DeepEqual(was, now):
		return "listen"
	}
	return ""
}

// restart starts the new process, and reports whether it serves. Then this one accepts nothing more.
func (s *server) restart(ctx context.Context) bool {
	if s.Path == "" {
		s.Log.Warn("the demo is not restarted: it has no policy file")
		return false
	}
	s.Log.Info("restarting")
	var sockets []handover.Socket
	for _, l := range s.edge.listeners {
		sockets = append(sockets, handover.Socket{Name: gatewayServer, Address: l.address, Listener: l.socket})
	}
	if s.admins != nil {
		sockets = append(sockets, handover.Socket{Name: adminServer, Address: s.gateway.File().Policy.Listen.Admin, Listener: s.admins})
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	pid, err := handover.Start(starting, s.Program, sockets)
	if err != nil {
		s.Log.Error("not restarted: this process goes on", "error", err)
		return false
	}
	for _, l := range s.edge.listeners {
		l.Stop()
	}
	if srv := s.servers[adminServer]; srv != nil { // whoever asks now asks the new process
		_ = srv.Shutdown(starting)
		delete(s.servers, adminServer)
	}
	s.Log.Info("restarted: the new process serves, and this one ends", "pid", pid)
	return true
}
