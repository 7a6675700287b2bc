// Package endpoint is what faces listen on that have one address below listen, such as listen.rls:
// the address, the certificates, and the rule about who may connect.
package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/eventloop"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
)

// An Endpoint is the open address of a face. Its certificates follow the policy and their files. It
// is a part of the active policy, and safe for concurrent use.
type Endpoint struct {
	listener     *listener
	log          *slog.Logger
	face         string
	certificates *listen.Certificates // nil without TLS

	mu     sync.Mutex
	file   *policyfile.File // whose certificates are in force
	seen   [32]byte         // the version of their files
	warned time.Time        // when it was last looked which certificates expire
}

// Certificates that expire soon are logged so long before, once a day.
const (
	expiresSoon = 14 * 24 * time.Hour
	warnEvery   = 24 * time.Hour
)

// defaultMaxConnections is the default of max_connections.
const defaultMaxConnections = 20000

// Open listens where the active policy says for a face, and joins the policy.
func Open(ctx context.Context, h face.Host, name string) (*Endpoint, error) {
	o, ok := h.Policy.File().Policy.Listen.Endpoint(name)
	if !ok {
		return nil, errors.New("the policy has no listen." + name)
	}
	e := &Endpoint{log: h.Log, face: name}
	if o.TLS != nil {
		e.certificates = new(listen.Certificates) // which joining the policy fills
	}
	socket, err := h.Listen(o.Address)
	if err != nil {
		return nil, err
	}
	e.listener = newListener(socket, o.MaxConnections)
	if err := h.Policy.Join(ctx, e); err != nil {
		return nil, errors.Join(err, e.listener.Close())
	}
	if err := h.Metrics.Register(metrics{e, descsOf(name)}); err != nil {
		return nil, errors.Join(err, e.listener.Close())
	}
	return e, nil
}

// Listener returns the socket, which accepts at most max_connections at once. What it accepts is not
// TLS yet: see TLS.
func (e *Endpoint) Listener() net.Listener { return e.listener }

// SetFarewell sets what connections beyond max_connections get before they are closed. It is called
// before Accept, and has no effect with TLS, as it would come before the handshake.
func (e *Endpoint) SetFarewell(text string) {
	if e.certificates == nil {
		e.listener.farewell = text
	}
}

// UseLoops puts connections into loops, for faces that serve them there. It is called before Accept,
// and has no effect with TLS, whose handshakes wait for clients.
func (e *Endpoint) UseLoops() {
	if e.certificates == nil {
		e.listener.Listener = eventloop.Listener(e.listener.Listener)
	}
}

// Address returns where the endpoint listens.
func (e *Endpoint) Address() string { return e.listener.Addr().String() }

// Open returns how many connections are open.
func (e *Endpoint) Open() int { return int(e.listener.open.Load()) }

// TLS returns the configuration of handshakes, which use the newest certificates; nil without TLS.
func (e *Endpoint) TLS(protocols ...string) *tls.Config {
	if e.certificates == nil {
		return nil
	}
	return e.certificates.Config(protocols...)
}

// Prepare reads the certificates of the next policy.
func (e *Endpoint) Prepare(_ context.Context, _ *active.Snapshot, next active.Candidate) (active.Change, error) {
	o, _ := next.File.Policy.Listen.Endpoint(e.face)
	c := &change{endpoint: e, file: next.File, maxConnections: o.MaxConnections}
	if e.certificates == nil {
		return c, nil
	}
	c.seen = listen.Version(o.TLS, next.File.Beside) // first: a change from now on is seen as one
	var err error
	if c.certificates, err = listen.LoadCertificates(o.TLS, next.File.Beside); err != nil {
		return nil, &policyfile.InvalidError{Problems: []policyfile.Problem{unusable(next.File, e.face, err)}}
	}
	return c, nil
}

// change is an endpoint that is prepared for another policy.
type change struct {
	endpoint       *Endpoint
	file           *policyfile.File
	certificates   *listen.Certificates
	seen           [32]byte
	maxConnections int
}

// Commit puts the certificates and the bound in force.
func (c *change) Commit(*active.Snapshot) {
	e := c.endpoint
	e.listener.setMax(c.maxConnections)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.file, e.seen = c.file, c.seen
	if c.certificates != nil {
		e.certificates.Replace(c.certificates)
		e.warned = time.Time{}
		e.warnOfExpiry()
	}
}

// Discard has nothing to give back.
func (c *change) Discard() {}

// Tick reads the certificates again if their files have changed. A certificate and its key are two
// files: while only one of them has changed they do not match, which is logged once, and ends with the
// other change.
func (e *Endpoint) Tick() {
	if e.certificates == nil {
		return
	}
	e.mu.Lock()
	file, seen := e.file, e.seen
	e.mu.Unlock()
	o, _ := file.Policy.Listen.Endpoint(e.face)
	now := listen.Version(o.TLS, file.Beside) // without the lock: a disk may be slow
	var next *listen.Certificates
	var err error
	if now != seen {
		next, err = listen.LoadCertificates(o.TLS, file.Beside)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if now != seen && e.file == file { // otherwise another policy has brought its own
		e.seen = now
		if err != nil {
			e.log.Error("certificates not reloaded: the old ones stay in use", "listen", e.face, "error", err)
			return
		}
		e.certificates.Replace(next)
		e.warned = time.Time{}
		e.log.Info("certificates reloaded", "listen", e.face)
	}
	e.warnOfExpiry()
}

// warnOfExpiry logs certificates that expire soon, once a day. The lock is held.
func (e *Endpoint) warnOfExpiry() {
	now := time.Now()
	if now.Sub(e.warned) < warnEvery {
		return
	}
	e.warned = now
	for _, x := range e.certificates.Expiries() {
		switch left := x.NotAfter.Sub(now); {
		case left <= 0:
			e.log.Error("a certificate has expired: clients will not connect", "listen", e.face, "file", x.File, "not_after", x.NotAfter)
		case left < expiresSoon:
			e.log.Warn("a certificate expires soon", "listen", e.face, "file", x.File, "not_after", x.NotAfter)
		}
	}
}

// metrics are those of the connections of one endpoint.
type metrics struct {
	*Endpoint
	descs
}

// descs describe the metrics of one face.
type descs struct{ open, accepted, refused, ends *prometheus.Desc }

func descsOf(name string) descs {
	of := prometheus.Labels{"face": name}
	return descs{
		prometheus.NewDesc("weir_face_connections_open", "Open connections of clients, by face.", nil, of),
		prometheus.NewDesc("weir_face_connections_accepted_total", "Accepted connections of clients, by face.", nil, of),
		prometheus.NewDesc("weir_face_connections_refused_total", "Connections closed at once, by face: as max_connections were open (full), or for lack of file descriptors.", []string{"reason"}, of),
		prometheus.NewDesc("weir_face_certificate_not_after_seconds", "Expiry of a certificate as Unix time, by face and file.", []string{"file"}, of),
	}
}

// Describe is of prometheus.Collector.
func (m metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.descs.open, m.accepted, m.refused, m.ends} {
		ch <- d
	}
}

// Collect is of prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	l := m.listener
	ch <- prometheus.MustNewConstMetric(m.descs.open, prometheus.GaugeValue, float64(l.open.Load()))
	ch <- prometheus.MustNewConstMetric(m.accepted, prometheus.CounterValue, float64(l.accepted.Load()))
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(l.full.Load()), "full")
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(l.exhausted.Load()), "descriptors")
	if m.certificates == nil {
		return
	}
	seen := map[string]bool{}
	for _, x := range m.certificates.Expiries() {
		if !seen[x.File] {
			ch <- prometheus.MustNewConstMetric(m.ends, prometheus.GaugeValue, float64(x.NotAfter.Unix()), x.File)
		}
		seen[x.File] = true
	}
}
