package kv

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weiretcd"
	"github.com/weirflow/weir/weirkv"
)

// TestEtcdLogin: a store in etcd opens at once, also with a user while etcd is unavailable: it used to wait for 5 s
// and then not to open at all, so that a gateway could not start on its fallback. A wrong password is the error of
// each call.
func TestEtcdLogin(t *testing.T) {
	all, err := servers.Etcd(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all[0].Stop() })
	opened := func(user string) *weiretcd.Store {
		t.Helper()
		s, err := weiretcd.Open("etcd://"+user+all[0].Addr, weirkv.Options{Timeout: servers.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	take := func(s *weiretcd.Store) error {
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		defer cancel()
		return s.Do(ctx, []weir.Charge{{Name: "l", Key: "k", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}, Cost: 1}}, make([]weir.Decision, 1))
	}
	if err := take(opened("root:right@")); err != nil {
		t.Errorf("with a user, before etcd has any: %v", err)
	}
	if err := all[0].RequireLogin(t.Context(), "right"); err != nil {
		t.Fatal(err)
	}
	if err := take(opened("root:right@")); err != nil {
		t.Errorf("with the right password: %v", err)
	}
	for _, user := range []string{"root:wrong@", "nobody:right@"} {
		if err := opened(user).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "authentication failed") {
			t.Errorf("%s: %v", user, err)
		}
	}
	all[0].Kill()
	late := opened("root:right@")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := late.Ready(ctx); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("without a server: %v", err)
	}
	if err := all[0].Start(); err != nil {
		t.Fatal(err)
	}
	ready, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	if err := late.Ready(ready); err != nil {
		t.Errorf("with a server that started later: %v", err)
	}
	if err := take(late); err != nil {
		t.Errorf("with a server that started later: %v", err)
	}
}
