package server

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/handover"
)

// shutdown stops accepting and lets requests in flight end. Before that, clients that send one
// request after another are told with a response to go elsewhere: a connection that is closed
// between two requests may be closed on the second. A process that was replaced waits longer: the
// grace goes to clients with upgraded connections, too.
func (s *server) shutdown(ctx context.Context, replaced bool) error {
	s.ready.Store(false)
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
	s.linger(ctx, grace, most)
	inOrder := slices.Clone(s.faces)
	if s.demoUp != nil {
		inOrder = append(inOrder, opened{"demo", s.demoUp}) // the gateway needs it to the end
	}
	for _, f := range inOrder {
		if f.Shutdown(grace) != nil {
			return fmt.Errorf("requests were still in flight after %v: they were cut off", s.Grace)
		}
		if replaced {
			// connections that were upgraded, which net/http no longer knows
			s.linger(ctx, grace, s.Grace)
		}
	}
	return nil
}

// linger waits until clients have left all faces, but at most for a while, and hardly at all where
// the process is asked to stop while it waits.
func (s *server) linger(ctx, grace context.Context, most time.Duration) {
	ticker := time.NewTicker(lingerTick)
	defer ticker.Stop()
	timer := time.NewTimer(most)
	defer timer.Stop()
	asked := ctx.Done()
	if ctx.Err() != nil {
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
		s.Log.Error("the counts of quotas are not passed on", "error", err)
	}
	pid, err := handover.Start(starting, s.Program, s.sockets)
	if err != nil {
		s.Log.Error("not restarted: this process continues", "error", err)
		return false
	}
	s.policy.PassQuotas()
	s.Log.Info("restarted: the new process serves, and this one shuts down", "pid", pid)
	return true
}

// changedSockets says what below listen differs and cannot change while it is served: all but the
// files of TLS.
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
	case !reflect.DeepEqual(was, now):
		return "listen"
	}
	return ""
}
