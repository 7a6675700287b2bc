package redis

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// openURL opens a Store at a URL until the test ends.
func openURL(t *testing.T, url string) *weirrueidis.Store {
	t.Helper()
	s, err := weirrueidis.Open(url, weirredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// spends checks that a Store decides: a key has three tokens, and no more.
func spends(t *testing.T, s weir.Store, key string) {
	t.Helper()
	const burst = 3
	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst}, s, weir.Named("open"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range burst + 1 {
		if d, err := shared.Take(ctx, key, 1); err != nil || d.Allowed != (i < burst) {
			t.Fatalf("charge %d of %s: %+v, %v", i, key, d, err)
		}
	}
}

// leastUser is a user with the rights that the scripts need, and no others, as in docs/stores.md.
const leastUser = "user weir on >s3cret~/pw ~weir:* resetchannels -@all +@read +@write +@scripting -@dangerous +time +ping +select +client|setname"

// TestOpenOneServer: without TLS, with TLS with and without a client certificate, over a socket, as
// a user with few rights, in another database.
func TestOpenOneServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "redis.sock")
	s := servers.StartRedis(t, servers.RedisOptions{TLS: true, Config: []string{leastUser, "unixsocket " + socket}})
	user := "weir:s3cret~%2Fpw@"
	for key, url := range map[string]string{
		"plain":     "redis://" + s.Addr,
		"user":      "redis://" + user + s.Addr + "/3?client_name=shop",
		"tls":       "rediss://" + user + s.TLS.Addr + "?ca_file=" + url.QueryEscape(s.TLS.CAFile),
		"two-sided": "rediss://" + s.TLS.Addr + fmt.Sprintf("?ca_file=%s&cert_file=%s&key_file=%s&server_name=localhost", s.TLS.CAFile, s.TLS.CertFile, s.TLS.KeyFile),
		"socket":    "unix://" + user + socket + "?db=2",
	} {
		t.Run(key, func(t *testing.T) {
			store := openURL(t, url)
			spends(t, store, key)
			if err := store.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := s.Do(t.Context(), "SELECT", "0"); err != nil {
		t.Error(err)
	}
	if n, err := s.Do(t.Context(), "DBSIZE"); err != nil || fmt.Sprint(n) == "0" {
		t.Errorf("%v, %v: nothing was kept", n, err)
	}
}

// TestOpenSaysWhy: the error says why there is no connection, without a password.
func TestOpenSaysWhy(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{TLS: true, Config: []string{leastUser}})
	for url, want := range map[string]string{
		"redis://weir:wr0ng@" + s.Addr: "WRONGPASS",
		"rediss://" + s.TLS.Addr:       "certificate",
		"rediss://" + s.TLS.Addr + "?server_name=other&ca_file=" + s.TLS.CAFile: "certificate",
		"redis+cluster://" + s.Addr:               "no node of a Redis Cluster",
		"redis+sentinel://" + s.Addr + "/primary": "SENTINEL",
	} {
		store := openURL(t, url)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ended, end := context.WithCancel(ctx)
		end()
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for { // until an attempt fails for this reason, and not because the machine is busy
			err := store.Ready(ended)
			if err == nil || strings.Contains(err.Error(), "wr0ng") {
				t.Fatalf("%s: %v", url, err)
			}
			if strings.Contains(err.Error(), want) {
				break
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				t.Fatalf("%s: %v, want %q", url, err, want)
			}
		}
	}
}

// TestOpenSentinelAndCluster: through the sentinels, and through the nodes.
func TestOpenSentinelAndCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sentinels, err := servers.Sentinel(ctx, servers.SentinelOptions{Password: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sentinels.Stop() })
	s := openURL(t, "redis+sentinel://:s3cret@"+strings.Join(sentinels.Addrs(), ",")+"/"+sentinels.Name)
	spends(t, s, "before")
	old, err := sentinels.KillMaster(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sentinels.AwaitMaster(ctx, old.Addr); err != nil {
		t.Fatal(err)
	}
	spends(t, s, "after")

	cluster, err := servers.Cluster(ctx, servers.ClusterOptions{Password: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Stop() })
	s = openURL(t, "redis+cluster://:s3cret@"+cluster.Addrs()[1])
	for i := range 20 {
		spends(t, s, fmt.Sprint("key", i))
	}
	single := openURL(t, "redis://:s3cret@"+cluster.Addrs()[0])
	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, single, weir.Named("open"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err = shared.Take(ctx, fmt.Sprint("key", i), 1); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "write redis+cluster://") {
		t.Errorf("a node of a cluster as one server: %v", err)
	}
}
