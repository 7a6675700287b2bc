package server

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/admin"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/handover"
)

// shutdown stops accepting and lets requests in flight end. Before that, clients that send one
// request after another are asked, with a response, to close the connection: a connection that is
// closed between two requests may be closed on the second. A process that was replaced waits longer: the
// grace goes to clients with upgraded connections, too.
func (s *server) shutdown(ctx context.Context, replaced bool) error {
	if !replaced { // otherwise the addresses go on being served
		s.ready.Store(false)
	}
	s.Log.Info("shutting down", "grace", s.Grace.String())
	for _, f := range s.faces {
		f.Leave(replaced)
	}
	s.deadline = time.Now().Add(s.Grace)
	grace, cancel := context.WithDeadline(context.Background(), s.deadline)
	defer cancel()
	most := linger
	if replaced {
		most = lingerOnRestart
	}
	s.linger(ctx, grace, most, replaced)
	for _, faces := range s.inOrder() {
		if !shutDown(grace, faces) {
			return fmt.Errorf("requests were still in flight after %v: they were cut off", s.Grace)
		}
		if replaced {
			// connections that were upgraded, which net/http no longer knows
			s.linger(ctx, grace, s.Grace, replaced)
		}
	}
	if replaced {
		s.awaitBefore(ctx, grace)
	}
	return nil
}

// awaitBefore waits until the process before this one has ended, which asks this one about quotas: this one
// passes that on to the process after it. A process that is asked to stop waits no longer.
func (s *server) awaitBefore(ctx, grace context.Context) {
	if s.before == nil {
		return
	}
	select {
	case <-s.before.Ended():
		return
	default:
		s.Log.Info("waiting for the process before this one, which still has requests")
	}
	select {
	case <-s.before.Ended():
	case <-ctx.Done():
	case <-grace.Done():
	}
}

// inOrder returns the faces in the order in which they shut down, those side by side that need not wait
// for each other. Operators see the metrics until requests have ended.
func (s *server) inOrder() [][]face.Face {
	var services, last []face.Face
	for _, f := range s.faces {
		if f.name == admin.Kind().Name {
			last = append(last, f.Face)
			continue
		}
		services = append(services, f.Face)
	}
	if s.demoUp != nil {
		last = append(last, s.demoUp) // the gateway needs it to the end
	}
	return [][]face.Face{services, last}
}

// shutDown shuts faces down, and reports whether their requests have ended.
func shutDown(ctx context.Context, faces []face.Face) bool {
	ended := make(chan bool, len(faces))
	for _, f := range faces {
		go func() { ended <- f.Shutdown(ctx) == nil }()
	}
	all := true
	for range faces {
		all = <-ended && all
	}
	return all
}

// linger waits until clients have left all faces, but at most for a while. A process that was replaced waits no
// longer, or not at all, once it is asked to stop.
func (s *server) linger(ctx, grace context.Context, most time.Duration, replaced bool) {
	ticker := time.NewTicker(lingerTick)
	defer ticker.Stop()
	timer := time.NewTimer(most)
	defer timer.Stop()
	asked := ctx.Done()
	if !replaced && ctx.Err() != nil { // that is why it shuts down
		asked = nil
	}
	for s.clients() > 0 {
		select {
		case <-ticker.C:
		case <-timer.C:
			return
		case <-asked:
			return
		case <-grace.Done():
			return
		}
	}
}

// clients is how many connections are open whose clients were asked to go elsewhere.
func (s *server) clients() (n int) {
	for _, f := range s.faces {
		n += f.Draining()
	}
	return n
}

// restart starts the new process, and reports whether it serves.
func (s *server) restart(ctx context.Context) bool {
	if s.Path == "" {
		s.Log.Warn("the demo is not restarted: it has no policy file")
		return false
	}
	s.Log.Info("restarting")
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.policy.SaveQuotas(); err != nil {
		s.Log.Error("the counts of quotas were not passed on to the new process", "error", err)
	}
	p, other, err := s.pass(cancel)
	if err != nil {
		s.Log.Error("not restarted: this process continues", "error", err)
		return false
	}
	pid, err := handover.Start(starting, s.Program, s.sockets, other)
	p.end(err == nil)
	if err != nil {
		s.Log.Error("not restarted: this process continues", "error", err)
		return false
	}
	s.policy.PassQuotas()
	s.Log.Info("restarted: the new process serves, and this one shuts down", "pid", pid)
	return true
}

// changedSockets says what below listen differs and cannot change while it is served: all but the
// files of TLS, and what faces read of their own settings.
func changedSockets(was, now policy.Listen) string {
	withoutFiles := func(l policy.Listen) policy.Listen {
		all := make([]policy.Listener, len(l.Gateway))
		for i, one := range l.Gateway {
			if one.TLS != nil {
				one.TLS = &policy.TLS{}
			}
			all[i] = one
		}
		l.Gateway = all
		others := make([]policy.Endpoint, len(l.Others))
		for i, one := range l.Others {
			others[i] = policy.Endpoint{Face: one.Face, Address: one.Address, RLS: policy.RLS{HTTP: one.RLS.HTTP, MaxKeys: one.RLS.MaxKeys, MaxConnectionAge: one.RLS.MaxConnectionAge},
				RESP: policy.RESP{MaxKeys: one.RESP.MaxKeys, WhenFull: one.RESP.WhenFull}}
			if one.TLS != nil {
				others[i].TLS = &policy.TLS{}
			}
		}
		slices.SortFunc(others, func(a, b policy.Endpoint) int { return strings.Compare(a.Face, b.Face) })
		l.Others = others
		return l
	}
	was, now = withoutFiles(was), withoutFiles(now)
	switch {
	case !reflect.DeepEqual(was.Gateway, now.Gateway):
		return "listen.gateway"
	case was.Bounds != now.Bounds:
		return "listen.bounds"
	case was.Admin != now.Admin:
		return "listen.admin"
	case !reflect.DeepEqual(was.Others, now.Others):
		return otherSockets(was, now)
	}
	return ""
}

// otherSockets names the first face besides the gateway and admin that is added, removed or changed.
func otherSockets(was, now policy.Listen) string {
	for _, name := range append(was.FaceNames(), now.FaceNames()...) {
		a, had := was.Endpoint(name)
		b, has := now.Endpoint(name)
		if had != has || !reflect.DeepEqual(a, b) {
			return "listen." + name
		}
	}
	return "listen"
}
