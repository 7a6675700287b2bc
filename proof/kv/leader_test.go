package kv

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/load"
	"github.com/weirflow/weir/proof/servers"
)

var killCalls = flag.Int64("kills", 200, "how many calls are admitted before and after each kill of TestLeader and TestKilledProcesses")

// TestLeader: while several processes charge an etcd of three members, its leader is killed, and joins again later.
// Nothing that was admitted is lost, and each charge was made once.
func TestLeader(t *testing.T) {
	for _, keys := range []int{1, 10_000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			all, err := servers.Etcd(t.Context(), t.TempDir(), 3)
			t.Cleanup(func() {
				for _, s := range all {
					_ = s.Stop()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			var hosts []string
			for _, s := range all {
				hosts = append(hosts, s.Addr)
			}
			url := "etcd://" + strings.Join(hosts, ",")
			f := load.Start(t, 3, load.Task{URL: url, Keys: keys})
			for range 2 {
				f.More(t, *killCalls)
				leader := -1
				servers.Poll(t, "there is a leader", func() bool {
					for i, s := range all {
						if s.Leads(t.Context()) {
							leader = i
						}
					}
					return leader >= 0
				})
				all[leader].Kill()
				f.More(t, *killCalls)
				if err := all[leader].Start(); err != nil {
					t.Fatal(err)
				}
				servers.Poll(t, "the member is back", func() bool { return all[leader].Healthy(t.Context()) == nil })
			}
			f.Stop(t)
			n, charged := f.Admitted(), f.Charged(t, url)
			t.Logf("%d admitted, %d without a decision, %d charged", n, f.Unknown(), charged)
			if charged < n || charged > n+f.Unknown() {
				t.Errorf("%d admitted, %d without a decision, %d charged", n, f.Unknown(), charged)
			}
		})
	}
}
