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
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/server/admin"
	"github.com/weirflow/weir/server/gateway"
	"github.com/weirflow/weir/server/policyfile"
)

// Options are what Serve is given.
type Options struct {
	Path   string          // of the policy file; empty runs the demo
	Log    *slog.Logger    // required
	Out    io.Writer       // where the demo says what to try; nil for nowhere
	Reload <-chan struct{} // reads the policy again, beside changes of the file; may be nil
	Grace  time.Duration   // how long requests that are under way may take to end; 0 means 30 s
	Watch  time.Duration   // how often the policy file is looked at; 0 means once a second
	Ready  func(Addresses) // called once, when everything listens; may be nil

	demo string // the demo's policy on other ports, for tests
}

// Addresses are where a server listens. An empty one is not listened on.
type Addresses struct{ Gateway, Admin, Demo string }

// The servers, by what messages call them.
const (
	gatewayServer = "listen.gateway"
	adminServer   = "listen.admin"
	demoServer    = "the demo upstream"
)

const (
	defaultGrace = 30 * time.Second
	defaultWatch = time.Second
	linger       = 250 * time.Millisecond // for clients to be told to go elsewhere, before connections are closed
	maxHeader    = 64 << 10               // bytes of a request's line and header fields
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
	s := &server{Options: o, servers: map[string]*http.Server{}, running: make(chan error, 3), stores: newStores(o.Log, o.Grace)}
	defer s.stop()
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// server is a Serve under way.
type server struct {
	Options
	gateway *gateway.Gateway
	admin   *admin.Admin
	stores  *stores
	servers map[string]*http.Server // by what they are
	addrs   Addresses
	running chan error   // what ended
	open    atomic.Int64 // connections to the gateway
	wg      sync.WaitGroup
	seen    version // of the policy file
	control *control
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
	listen := file.Policy.Listen
	if err := s.control.begin(file); err != nil {
		return err
	}
	if s.addrs.Gateway, err = s.listen(gatewayServer, listen.Gateway, s.gateway); err != nil {
		return err
	}
	if s.addrs.Admin, err = s.listen(adminServer, listen.Admin, s.admin); err != nil {
		return err
	}
	s.admin.SetReady(true)
	s.Log.Info("serving", "policy", file.Path, "gateway", s.addrs.Gateway, "admin", s.addrs.Admin)
	if s.Path == "" && s.Out != nil {
		fmt.Fprintf(s.Out, demoText, s.addrs.Gateway, s.addrs.Demo, s.addrs.Admin, s.addrs.Gateway)
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
	case listen.Gateway == "":
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
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%s: cannot listen on %s: %w: stop what listens there, or choose another address", what, addr, cause(err))
	}
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(anonymous{s.Log.Handler()}, slog.LevelDebug),
	}
	if what == gatewayServer {
		srv.ConnState = s.count
		srv.ConnContext = gateway.WithConn
	}
	if what == adminServer {
		l = s.control.secured(l)
	}
	s.servers[what] = srv
	s.wg.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.running <- fmt.Errorf("%s: %w", what, err)
		}
	})
	return l.Addr().String(), nil
}

// cause is what the operating system said.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// run serves until the context ends or a listener fails.
func (s *server) run(ctx context.Context) error {
	watch := time.NewTicker(s.Watch)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.drain()
		case err := <-s.running:
			return err
		case <-s.Reload:
			s.reload(ctx, "asked to")
		case <-watch.C:
			if s.control.fileChanged() {
				s.reload(ctx, "the file has changed")
			}
			s.gateway.Engine().Sweep()
		}
	}
}

// count counts the connections that are open.
func (s *server) count(_ net.Conn, to http.ConnState) {
	switch to {
	case http.StateNew:
		s.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.open.Add(-1)
	}
}

// drain stops accepting and lets what is under way end. Before that, clients that send one request after another are told with an answer
// to go elsewhere: a connection that is closed between two requests may be closed on the second.
func (s *server) drain() error {
	s.admin.SetReady(false)
	s.gateway.Leave()
	s.Log.Info("stopping", "grace", s.Grace.String())
	ctx, cancel := context.WithTimeout(context.Background(), s.Grace)
	defer cancel()
	if s.open.Load() > 0 {
		select {
		case <-time.After(linger):
		case <-ctx.Done():
		}
	}
	for _, what := range []string{gatewayServer, demoServer, adminServer} { // what others need goes later
		if srv := s.servers[what]; srv != nil && srv.Shutdown(ctx) != nil {
			return fmt.Errorf("requests were still under way after %v: they were cut off", s.Grace)
		}
	}
	return nil
}

// stop ends all that was started, at once.
func (s *server) stop() {
	for _, srv := range s.servers {
		srv.Close()
	}
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
