// Package server puts the faces of Weir together and runs them: today the gateway and the admin pages.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"sync"
	"time"

	"github.com/weirflow/weir/server/admin"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/handover"
	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
)

// Options are what Serve is given.
type Options struct {
	Path   string          // of the policy file; empty runs the demo
	Log    *slog.Logger    // required
	Out    io.Writer       // where the demo says what to try; nil for nowhere
	Reload <-chan struct{} // reads the policy again, beside changes of the file; may be nil
	Reopen <-chan struct{} // opens the access log again; may be nil

	// Restart starts Program, hands it the sockets that this one listens on, and ends this one in good order once that one serves.
	Restart <-chan struct{}
	Program handover.Program
	Sockets *handover.Sockets // what this process was given to listen on; nil for nothing

	Grace time.Duration   // how long requests that are under way may take to end; 0 means 30 s
	Watch time.Duration   // how often the policy file is looked at; 0 means once a second
	Ready func(Addresses) // called once, when everything listens; may be nil

	demo string // the demo's policy on other ports, for tests
}

// Addresses are where a server listens. An empty one is not listened on.
type Addresses struct {
	Gateway, Admin, Demo string
	Gateways             []string // all of the gateway's, in the order of the policy; Gateway is the first
}

// The servers, by what messages call them.
const (
	gatewayServer = "listen.gateway"
	adminServer   = "listen.admin"
	demoServer    = "the demo upstream"
)

const (
	defaultGrace = 30 * time.Second
	defaultWatch = time.Second
	lingerTick   = 10 * time.Millisecond
	linger       = 250 * time.Millisecond // for clients to be told to go elsewhere, before connections are closed
	maxHeader    = 64 << 10               // bytes of a request's line and header fields, to the admin pages

	startTimeout    = time.Minute     // for a new process to serve
	lingerOnRestart = 5 * time.Second // as linger: clients that stay connected are waited for longer, as others go elsewhere by themselves
)

// Serve runs a policy until the context ends, and then lets requests that are under way end. The error is nil after an orderly end.
func Serve(ctx context.Context, o Options) error {
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.Watch == 0 {
		o.Watch = defaultWatch
	}
	if o.demo == "" {
		o.demo = demoPolicy
	}
	s := &server{Options: o, servers: map[string]serving{}, running: make(chan error, 3), stores: newStores(o.Log, o.Grace)}
	defer s.stop()
	if s.Sockets == nil {
		s.Sockets = &handover.Sockets{}
	}
	defer s.Sockets.Close()
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// serving is what serves connections: an http.Server, or one with a plain.Server in front.
type serving interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// server is a Serve under way.
type server struct {
	Options
	gateway *gateway.Gateway
	admin   *admin.Admin
	stores  *storeSet
	servers map[string]serving // by what they are
	addrs   Addresses
	running chan error // what ended
	wg      sync.WaitGroup
	seen    version // of the policy file
	control *control
	edge    edge
	admins  net.Listener // that of the admin pages; nil for none
}

// start loads the policy and begins to listen. What it has begun when it fails, stop ends.
func (s *server) start(ctx context.Context) error {
	file, err := s.load()
	if err != nil {
		return err
	}
	for _, p := range file.Problems {
		s.Log.Warn("policy", "file", p.File, "line", p.Line, "column", p.Col, "message", p.Message, "fix", p.Fix)
	}
	if err := servable(file); err != nil {
		return err
	}
	if s.control, err = newControl(s, file); err != nil {
		return err
	}
	open, err := s.stores.next(ctx, file.Policy)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	s.stores.use(open)
	if s.gateway, err = gateway.New(file, given(open), s.Log); err != nil {
		return err
	}
	s.admin = admin.New(s.gateway, s.stores.stats)
	if err := s.control.begin(file); err != nil {
		return err
	}
	if err := s.openEdge(file); err != nil {
		return err
	}
	listen := file.Policy.Listen
	if s.addrs.Admin, err = s.listen(adminServer, listen.Admin, s.admin); err != nil {
		return err
	}
	s.serveEdge()
	s.admin.SetReady(true)
	s.Log.Info("serving", "policy", file.Path, "gateway", s.addrs.Gateway, "admin", s.addrs.Admin, "gateways", s.addrs.Gateways)
	for _, left := range s.Sockets.Left() {
		s.Log.Warn("nobody listens on a socket that was handed over: it is closed", "address", left)
	}
	if s.Path == "" && s.Out != nil {
		fmt.Fprintf(s.Out, demoText, s.addrs.Gateway, s.addrs.Demo, s.addrs.Admin, s.addrs.Gateway)
	}
	if err := s.Sockets.Ready(); err != nil {
		s.Log.Warn("whoever started this process could not be told that it serves", "error", err)
	}
	if s.Ready != nil {
		s.Ready(s.addrs)
	}
	return nil
}

// load reads the policy, or makes that of the demo, whose upstream it starts.
func (s *server) load() (*policyfile.File, error) {
	if s.Path == "" {
		return s.startDemo()
	}
	s.seen = look(s.Path)
	return policyfile.Load(s.Path)
}

// servable says what a valid policy asks for that this server does not do, or must not do unasked.
func servable(file *policyfile.File) error {
	listen := file.Policy.Listen
	switch {
	case len(listen.Gateway) == 0 || listen.Gateway[0].Address == "":
		return fmt.Errorf("%s: listen.gateway is missing: say where the gateway listens, like 127.0.0.1:8080", file.Path)
	case listen.RLS != "":
		return fmt.Errorf("%s: listen.rls: this version has no rate limit service: take it out", file.Path)
	case listen.RESP != "":
		return fmt.Errorf("%s: listen.resp: this version does not speak the Redis protocol: take it out", file.Path)
	}
	return reachable(file)
}

func isLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// listen serves a handler on an address; an empty one is not listened on.
func (s *server) listen(what, addr string, h http.Handler) (string, error) {
	if addr == "" {
		return "", nil
	}
	l, err := s.open(what, addr)
	if err != nil {
		return "", err
	}
	if what == adminServer {
		s.admins = l
	}
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(anonymous{s.Log.Handler()}, slog.LevelDebug),
	}
	if what == adminServer {
		l = s.control.secured(l)
	}
	s.servers[what] = srv
	s.serve(what, srv, l)
	return l.Addr().String(), nil
}

// open listens on an address, or takes the socket for it that was handed over.
func (s *server) open(what, addr string) (net.Listener, error) {
	if l := s.Sockets.Take(what, addr); l != nil {
		return l, nil
	}
	return listen.Open(what, addr)
}

func (s *server) serve(what string, srv serving, l net.Listener) {
	s.wg.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.running <- fmt.Errorf("%s: %w", what, err)
		}
	})
}

// run serves until the context ends or a listener fails.
func (s *server) run(ctx context.Context) error {
	watch := time.NewTicker(s.Watch)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.drain(ctx, false)
		case err := <-s.running:
			return err
		case <-s.Reload:
			s.reload(ctx, "asked to")
			s.reopenLog()
		case <-s.Reopen:
			s.reopenLog()
		case <-s.Restart:
			if s.restart(ctx) {
				return s.drain(ctx, true)
			}
		case <-watch.C:
			if s.control.fileChanged() {
				s.reload(ctx, "the file has changed")
			}
			s.gateway.Engine().Sweep()
			s.watchCertificates()
		}
	}
}

// drain stops accepting and lets what is under way end. Before that, clients that send one request after another are told with an answer
// to go elsewhere: a connection that is closed between two requests may be closed on the second. A process that has been replaced hurries
// nobody: what was upgraded may go on for as long as requests may, too.
func (s *server) drain(ctx context.Context, replaced bool) error {
	s.admin.SetReady(false)
	s.gateway.Leave()
	s.Log.Info("stopping", "grace", s.Grace.String())
	ending, cancel := context.WithTimeout(context.Background(), s.Grace)
	defer cancel()
	most := linger
	if replaced {
		most = lingerOnRestart
	}
	s.linger(ctx, ending, most)
	for _, what := range []string{gatewayServer, demoServer, adminServer} { // what others need goes later
		if srv := s.servers[what]; srv != nil && srv.Shutdown(ending) != nil {
			return fmt.Errorf("requests were still under way after %v: they were cut off", s.Grace)
		}
		if what == gatewayServer && replaced {
			s.linger(ctx, ending, s.Grace) // net/http no longer knows of them
		}
	}
	return nil
}

// linger waits until all clients have gone, but no longer than that; and hardly where the process is asked to stop while it is replaced.
func (s *server) linger(ctx, ending context.Context, most time.Duration) {
	ticker := time.NewTicker(lingerTick)
	defer ticker.Stop()
	timer := time.NewTimer(most)
	defer timer.Stop()
	asked := ctx.Done()
	if ctx.Err() != nil {
		asked = nil
	}
	for s.edge.port.Counts().Open > 0 {
		select {
		case <-ticker.C:
		case <-timer.C:
			return
		case <-asked:
			return
		case <-ending.Done():
			return
		}
	}
}

// stop ends all that was started, at once.
func (s *server) stop() {
	for _, srv := range s.servers {
		srv.Close()
	}
	s.edge.close()
	s.wg.Wait()
	if s.gateway != nil {
		s.gateway.Close()
	}
	s.stores.close()
}

// anonymous takes addresses out of what net/http writes into the log: one may be a client's.
type anonymous struct{ slog.Handler }

var address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(:\d+)?|\[[0-9a-fA-F:.%a-z]+\]:\d+`)

func (a anonymous) Handle(ctx context.Context, r slog.Record) error {
	r.Message = address.ReplaceAllString(r.Message, "(address)")
	return a.Handler.Handle(ctx, r)
}
