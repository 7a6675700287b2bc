// Package server runs a policy: it opens the faces that the policy names, updates the active
// policy, and shuts all of it down in order. Which faces there are is a table in faces.go.
package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/handover"
	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
)

// Options are what Serve is given.
type Options struct {
	Path   string       // of the policy file; empty without Policy runs the demo
	Policy string       // the text of a policy that comes from no file; only without Path
	Log    *slog.Logger // required
	// the file of a candidate policy, which decides beside the active one without any effect; empty for none
	Candidate string
	Node      string          // which node of a cluster this is, as the URL of the store writes its address
	Out       io.Writer       // where the demo says what to try; nil for nowhere
	Reload    <-chan struct{} // reads the policy again, beside changes of the file; may be nil
	Reopen    <-chan struct{} // opens the access log again; may be nil

	// Restart starts Program, hands it the sockets that this process listens on, and shuts this
	// process down once that one serves.
	Restart <-chan struct{}
	Program handover.Program
	Sockets *handover.Sockets // what this process was given to listen on; nil for nothing

	Grace time.Duration // how long a shutdown waits for requests in flight. Default: 30 s
	// how often the policy file and the certificates are looked at. Default: 1 s
	Watch time.Duration
	Ready func(Addresses) // called once, when everything listens; may be nil

	// Clock replaces the clocks of limits that clients bring (listen.http.client_limits), for tests in
	// virtual time: nanoseconds of Unix time. default: the real ones
	Clock func() int64

	demo  string      // the demo's policy on other ports, for tests
	kinds []face.Kind // in place of faces(), for tests
}

// Addresses are where a server listens. An empty one is not listened on.
type Addresses struct {
	Gateway, Admin, Demo string
	// all of the gateway's, in the order of the policy; Gateway is the first
	Gateways []string
	ByFace   map[string][]string // by the name of the face
}

const (
	defaultGrace = 30 * time.Second
	defaultWatch = time.Second

	lingerTick = 10 * time.Millisecond
	// for clients to be told to go elsewhere, before connections are closed
	linger = 250 * time.Millisecond
	// the same where the process was replaced: clients that stay connected are waited for longer
	lingerOnRestart = 5 * time.Second
	startTimeout    = time.Minute // for a new process to serve
)

// Serve runs a policy until the context ends, and then lets requests in flight end. The error is
// nil after an orderly shutdown.
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
	if o.kinds == nil {
		o.kinds = faces()
	}
	if o.Sockets == nil {
		o.Sockets = &handover.Sockets{}
	}
	s := &server{Options: o, failed: make(chan error, 1), maintained: make(chan struct{})}
	defer s.stop()
	defer s.Sockets.Close()
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// server is a Serve in progress.
type server struct {
	Options
	policy  *active.Policy
	demoUp  *face.HTTP // the demo's upstream; nil without the demo
	faces   []opened
	sockets []handover.Socket // what the faces listen on
	ready   atomic.Bool
	failed  chan error         // the first face that failed
	before  *active.Succession // of the process before this one; nil for none
	next    net.Conn           // to the process after this one; nil for none
	wg      sync.WaitGroup

	endMaintenance context.CancelFunc // nil where there was none
	maintained     chan struct{}      // closed at its end
	deadline       time.Time          // of the shutdown; zero without one
}

// opened is a face that was opened.
type opened struct {
	name string
	face.Face
}

// start loads the policy and opens its faces. What it has started when it fails, stop ends.
func (s *server) start(ctx context.Context) error {
	file, err := s.load()
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(file.Problems, Warnings(file)) {
		s.Log.Warn("policy", "file", p.File, "line", p.Line, "column", p.Col, "message", p.Message, "fix", p.Fix)
	}
	s.policy, err = active.New(ctx, file, active.Options{Path: s.Path, Log: s.Log, Grace: s.Grace, Node: s.Node, Accept: s.accept, Complete: s.complete, Succeeds: s.Sockets.HasLine(), Top: topKeys(file), Candidate: s.Candidate})
	if err != nil {
		return err
	}
	if err := s.open(ctx, file); err != nil {
		return err
	}
	for _, p := range s.policy.File().Problems {
		if p.File != file.Path { // of files that the policy names
			s.Log.Warn("policy", "file", p.File, "line", p.Line, "column", p.Col, "message", p.Message, "fix", p.Fix)
		}
	}
	if line := s.Sockets.Line(); line != nil { // last: requests of the process before wait from now on
		if s.before, err = s.policy.TakeOver(line); err != nil {
			return err
		}
		s.wg.Go(s.before.Serve)
	}
	for _, f := range s.faces {
		s.serve("listen."+f.name, f)
	}
	s.ready.Store(true)
	addrs := s.addresses()
	// by the words of the policy: listen.gateway, listen.admin
	s.Log.Info("serving", "policy", file.Path, "listen", addrs.ByFace)
	for _, left := range s.Sockets.Left() {
		s.Log.Warn("a socket was handed over that the policy does not listen on: it is closed", "address", left)
	}
	if s.demoUp != nil && s.Out != nil {
		fmt.Fprintf(s.Out, demoText, addrs.Gateway, addrs.Demo, addrs.Admin, strings.Join(addrs.ByFace["rls"], ", "), strings.Join(addrs.ByFace["http"], ", "), strings.Join(addrs.ByFace["resp"], ", "), addrs.Gateway)
	}
	if err := s.Sockets.Ready(); err != nil {
		s.Log.Warn("the process that started this one was not notified that this one is ready", "error", err)
	}
	if s.Ready != nil {
		s.Ready(addrs)
	}
	return nil
}

// topKeys is how many counters each limit has for the keys that operators are shown at listen.admin.
func topKeys(file *policyfile.File) int {
	if file.Has("listen", "admin") {
		return 100
	}
	return 0
}

// load reads the policy, or makes that of the demo, whose upstream it starts.
func (s *server) load() (*policyfile.File, error) {
	switch {
	case s.Path == "" && s.Policy != "":
		return policyfile.Parse("(environment)", []byte(s.Policy))
	case s.Path == "":
		return s.startDemo()
	}
	return policyfile.LoadRegular(s.Path)
}

// accept refuses a valid policy that cannot be served, or that cannot replace the one that is.
func (s *server) accept(now, candidate *policyfile.File) error {
	if !ForServing(candidate) {
		return &policyfile.InvalidError{Problems: []policyfile.Problem{
			candidate.Wrong("the policy names no address to serve on", "add listen: { gateway: \"127.0.0.1:8080\" }")}}
	}
	if wrong := check(s.kinds, candidate); len(wrong) > 0 {
		return &policyfile.InvalidError{Problems: append(candidate.Problems, wrong...)}
	}
	if now == nil {
		return nil
	}
	if changed := changedSockets(now.Policy.Listen, candidate.Policy.Listen); changed != "" {
		return fmt.Errorf("%s: %s changes only with a restart: SIGUSR2 restarts the server without losing a request", candidate.Path, changed)
	}
	return nil
}

// complete adds what other files have.
func (s *server) complete(file *policyfile.File) (*policyfile.File, error) {
	return complete(s.kinds, file)
}

// open opens the faces that the policy names.
func (s *server) open(ctx context.Context, file *policyfile.File) error {
	metrics := prometheus.NewRegistry()
	for _, kind := range s.kinds {
		if !file.Has("listen", kind.Name) {
			continue
		}
		f, err := kind.Open(ctx, face.Host{
			Policy: s.policy, Log: s.Log, Metrics: metrics, Ready: s.ready.Load, Clock: s.Clock,
			Listen: func(address string) (net.Listener, error) { return s.listen("listen."+kind.Name, address) },
		})
		if err != nil {
			return err
		}
		s.faces = append(s.faces, opened{kind.Name, f})
	}
	return nil
}

// listen opens an address, or takes the socket for it that was handed over.
func (s *server) listen(what, address string) (net.Listener, error) {
	l := s.Sockets.Take(what, address)
	if l == nil {
		var err error
		if l, err = listen.Open(what, address); err != nil {
			if s.Path == "" && s.Policy == "" {
				err = fmt.Errorf("%w; this is the demo: with a policy file (weir serve --config FILE), weir listens where the file says", err)
			}
			return nil, err
		}
	}
	s.sockets = append(s.sockets, handover.Socket{Name: what, Address: address, Listener: l})
	return l, nil
}

// serve runs a face. The first that fails ends the server; what others say then is of no interest,
// and nobody waits for them to say it.
func (s *server) serve(what string, f face.Face) {
	s.wg.Go(func() {
		if err := f.Serve(); err != nil {
			select {
			case s.failed <- fmt.Errorf("%s: %w", what, err):
			default:
			}
		}
	})
}

// addresses are where the faces listen.
func (s *server) addresses() Addresses {
	a := Addresses{ByFace: map[string][]string{}}
	for _, f := range s.faces {
		a.ByFace[f.name] = f.Addresses()
	}
	first := func(all []string) string {
		if len(all) == 0 {
			return ""
		}
		return all[0]
	}
	a.Gateways = a.ByFace["gateway"]
	a.Gateway, a.Admin = first(a.Gateways), first(a.ByFace["admin"])
	if s.demoUp != nil {
		a.Demo = first(s.demoUp.Addresses())
	}
	return a
}

// run serves until the context ends or a face fails. It does nothing that a file or a disk could
// block: whatever maintain waits for, the server can be stopped.
func (s *server) run(ctx context.Context) error {
	maintenance, end := context.WithCancel(ctx)
	s.endMaintenance = end
	go func() {
		defer close(s.maintained)
		s.maintain(maintenance)
	}()
	for {
		select {
		case <-ctx.Done():
			return s.shutdown(ctx, false)
		case err := <-s.failed:
			return err
		case <-s.Restart:
			if s.restart(ctx) {
				return s.shutdown(ctx, true)
			}
		}
	}
}

// maintain reloads the policy, opens logs again and looks at what may have changed by itself, one
// after the other.
func (s *server) maintain(ctx context.Context) {
	watch := time.NewTicker(s.Watch)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Reload:
			s.reload(ctx, "signal")
			s.reopenLogs()
		case <-s.Reopen:
			s.reopenLogs()
		case <-watch.C:
			s.tick(ctx)
		}
	}
}

// leastWait is the time for an update to end where requests have used up the grace.
const leastWait = time.Second

// awaitMaintenance ends maintain, and reports whether it ended within the grace.
func (s *server) awaitMaintenance() bool {
	if s.endMaintenance == nil {
		return true
	}
	s.endMaintenance()
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(s.Grace)
	}
	timer := time.NewTimer(max(time.Until(s.deadline), leastWait))
	defer timer.Stop()
	select {
	case <-s.maintained:
		return true
	case <-timer.C:
		return false
	}
}

// tick looks at what may have changed by itself.
func (s *server) tick(ctx context.Context) {
	if s.policy.Changed() {
		s.reload(ctx, "the file has changed")
	}
	s.policy.Tick()
	s.policy.Engine().Sweep()
	for _, f := range s.faces {
		if t, ok := f.Face.(face.Ticker); ok {
			t.Tick()
		}
	}
}

// reload reads the policy file again. It logs what is wrong with it. The demo has none.
func (s *server) reload(ctx context.Context, why string) {
	if s.Path != "" {
		_, _ = s.policy.Reload(ctx, why)
	}
}

// reopenLogs opens the logs again, after their files were moved away.
func (s *server) reopenLogs() {
	for _, f := range s.faces {
		if r, ok := f.Face.(face.Reopener); ok {
			r.Reopen()
		}
	}
}

// stop ends at once all that was started.
func (s *server) stop() {
	idle := s.awaitMaintenance()
	for _, f := range s.faces {
		if err := f.Close(); err != nil {
			s.Log.Warn("closing a service failed", "listen", f.name, "error", err)
		}
	}
	if s.demoUp != nil {
		s.demoUp.Close()
	}
	if s.before != nil {
		s.before.Close()
	}
	s.wg.Wait()
	if !idle {
		s.Log.Error("an update of the policy has not ended within the grace: it is abandoned")
		return
	}
	if s.policy != nil {
		if err := s.policy.Close(); err != nil {
			s.Log.Warn("closing the policy failed", "error", err)
		}
	}
	if s.next != nil {
		s.next.Close()
	}
}
