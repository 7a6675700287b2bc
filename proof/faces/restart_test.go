package faces

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// TestReloadAndHandover: callers of all services side by side go on through changes of the policy and a
// SIGUSR2, no call fails, and nothing that was admitted is lost or counted twice.
func TestReloadAndHandover(t *testing.T) {
	const burst = 400_000
	w := start(t, "rate: 1/h, burst: 400000", servers.StartRedis(t, servers.RedisOptions{}).Addr, patient)
	taken := make([]atomic.Int64, len(w.services))
	calls := make([]atomic.Int64, len(w.services))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var callers sync.WaitGroup
	for i, s := range w.services {
		for range 2 {
			callers.Go(func() {
				for cost := int64(1); ctx.Err() == nil; cost = cost%3 + 1 {
					ok, err := s.take(t.Context(), s.name, cost)
					if err != nil || !ok {
						t.Errorf("%s: %v, %v", s.name, ok, err)
						return
					}
					taken[i].Add(cost)
					calls[i].Add(1)
					pause(ctx)
				}
			})
		}
	}
	more := func(what string) { // each service goes on
		t.Helper()
		for i, s := range w.services {
			until := calls[i].Load() + 10
			servers.Poll(t, s.name+" goes on "+what, func() bool { return calls[i].Load() >= until || t.Failed() })
		}
	}
	more("at first")
	for n := range 3 {
		w.Write(t, w.policy+fmt.Sprintf("# change %d\n", n))
		if err := w.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		more("after SIGHUP")
	}
	w.Write(t, strings.Replace(w.policy, "burst: 400000", "burst: 800000", 1))
	if err := w.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the limit is a larger one", func() bool { return w.peek("other").Capacity == 2*burst })
	w.Write(t, w.policy)
	if err := w.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the limit is the one of before", func() bool { return w.peek("other").Capacity == burst })
	if err := w.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	var next int
	servers.Poll(t, "a new process has taken over", func() bool {
		for line := range strings.Lines(w.Output()) {
			var l struct{ Pid int }
			if json.Unmarshal([]byte(line), &l) == nil && l.Pid != 0 {
				next = l.Pid
			}
		}
		return next != 0
	})
	t.Cleanup(func() { _ = syscall.Kill(next, syscall.SIGTERM) })
	select {
	case <-w.Ended():
	case <-time.After(servers.Patience):
		t.Fatal("the old process has not ended")
	}
	more("in the new process")
	stop()
	callers.Wait()
	for i, s := range w.services { // each has a key of its own
		if used := burst - w.left(s.name); used != taken[i].Load() {
			t.Errorf("%s: %d were admitted, and %d are used", s.name, taken[i].Load(), used)
		}
	}
}
