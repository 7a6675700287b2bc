package postgres

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/load"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirsql"
)

var outagesFor = flag.Duration("outages", 0, "how long each case of TestOutages lasts. default: one outage of each kind")

// TestOutages: while 8 processes charge one key, or 10,000, the server stands still, is killed, and is shut down.
// With durable=true nothing is lost: patient callers are admitted as often as the server has charged.
func TestOutages(t *testing.T) {
	const calls, refill = 200, 10 * time.Minute
	for _, keys := range []int{1, 10_000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			s := servers.StartPostgres(t, servers.PostgresOptions{})
			url := s.URL() + "&durable=true"
			migrate(t, connect(t, s), weirsql.Schema{})
			begin := time.Now()
			f := load.Start(t, 8, load.Task{URL: url, Keys: keys, Bucket: true})
			f.More(t, calls)
			rounds := 0
			for ; rounds == 0 || time.Since(begin) < *outagesFor; rounds++ {
				for _, outage := range []func(){
					func() {
						all := stop(t, s.Pid())
						defer signal(all, syscall.SIGCONT)
						<-time.After(1500 * time.Millisecond) // longer than any attempt of a call
					},
					func() {
						all := stop(t, s.Pid())
						s.Kill()
						signal(all[1:], syscall.SIGKILL)
						start(t, s)
					},
					func() {
						if err := s.Process.Stop(); err != nil {
							t.Error(err)
						}
						start(t, s)
					},
				} {
					outage()
					if f.Refused() == 0 {
						f.More(t, calls)
					}
				}
			}
			f.Stop(t)
			n, charged := f.Admitted(), f.Charged(t, url)
			returned := int64(keys) * int64(time.Since(begin)/refill) // at most, on a machine that stood still
			t.Logf("%d rounds of outages: %d admitted, %d refused, %d without a decision, %d charged", rounds, n, f.Refused(), f.Unknown(), charged)
			if charged+returned < n || charged > n+f.Unknown() {
				t.Errorf("%d admitted, %d without a decision, %d charged", n, f.Unknown(), charged)
			}
		})
	}
}

// start starts a server again, when the sessions of the one before have ended.
func start(t *testing.T, s *servers.PostgresServer) {
	t.Helper()
	var err error
	servers.Poll(t, "the server is there again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		defer cancel()
		err = s.Start(ctx)
		return err == nil || !strings.Contains(err.Error(), "is still in use")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// signal sends a signal to processes that may have ended.
func signal(all []int, s syscall.Signal) {
	for _, pid := range all {
		_ = syscall.Kill(pid, s) // it may have ended
	}
}

// stop stops a server with its sessions, which are process groups of their own. It returns their numbers, that of
// the server first.
func stop(t *testing.T, pid int) (all []int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		t.Error(err)
	}
	all = append(all, pid)
	for word := range strings.FieldsSeq(string(text)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, child)
	}
	signal(all, syscall.SIGSTOP)
	return all
}
