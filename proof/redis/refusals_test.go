package redis

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestServersThatRefuse: servers that are reachable and refuse charges, each for another reason.
// Callers get the fallback's decisions and no error, and the breaker stays open, because probes
// fail too. When the reason is gone, the store decides again by itself, and the used tokens are
// still used.
func TestServersThatRefuse(t *testing.T) {
	set := func(t *testing.T, s *servers.RedisServer, args ...string) {
		t.Helper()
		if _, err := s.Do(t.Context(), args...); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	plain := func(s *servers.RedisServer) string { return s.URL() }
	for _, row := range []struct {
		name    string
		options servers.RedisOptions
		url     func(*servers.RedisServer) string
		refuse  func(t *testing.T, s *servers.RedisServer)
		repair  func(t *testing.T, s *servers.RedisServer)
	}{
		{"MISCONF: it cannot write its snapshots", servers.RedisOptions{Config: []string{"enable-protected-configs yes", "save 3600 1000000"}}, plain,
			func(t *testing.T, s *servers.RedisServer) {
				set(t, s, "CONFIG", "SET", "dir", "/proc") // no file can be made there
				set(t, s, "BGSAVE")
				until(t, "a snapshot fails", func() bool {
					text, err := s.Do(t.Context(), "INFO", "persistence")
					if err != nil {
						t.Fatal(err)
					}
					return strings.Contains(text.(string), "rdb_last_bgsave_status:err")
				})
			},
			func(t *testing.T, s *servers.RedisServer) {
				set(t, s, "CONFIG", "SET", "dir", s.Dir)
				set(t, s, "BGSAVE") // succeeds
			},
		},
		{"READONLY: a replica that is promoted late", servers.RedisOptions{}, plain,
			func(t *testing.T, s *servers.RedisServer) { set(t, s, "REPLICAOF", "127.0.0.1", "1") }, // of a master that does not exist
			func(t *testing.T, s *servers.RedisServer) { set(t, s, "REPLICAOF", "NO", "ONE") },
		},
		{"OOM: its memory is full", servers.RedisOptions{Config: []string{"maxmemory-policy noeviction"}}, plain,
			func(t *testing.T, s *servers.RedisServer) { set(t, s, "CONFIG", "SET", "maxmemory", "1") },
			func(t *testing.T, s *servers.RedisServer) { set(t, s, "CONFIG", "SET", "maxmemory", "0") },
		},
		{"LOADING: it reads its data", servers.RedisOptions{Config: []string{"enable-debug-command yes", "loading-process-events-interval-bytes 1024"}}, plain,
			func(t *testing.T, s *servers.RedisServer) {
				set(t, s, "DEBUG", "POPULATE", "2000")
				set(t, s, "CONFIG", "SET", "key-load-delay", "20000") // 20 ms each: 40 s
				c, err := s.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				t.Cleanup(func() { <-done; c.Close() })
				go func() {
					defer close(done)
					_, _ = c.Do(t.Context(), "DEBUG", "RELOAD") // ends when everything is loaded
				}()
			},
			func(t *testing.T, s *servers.RedisServer) { set(t, s, "CONFIG", "SET", "key-load-delay", "0") },
		},
		{"NOAUTH: the password was changed", servers.RedisOptions{}, plain,
			func(t *testing.T, s *servers.RedisServer) {
				set(t, s, "ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
				set(t, s, "ACL", "SETUSER", "default", "resetpass", ">other")
				c, err := s.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for _, args := range [][]string{{"AUTH", "admin", "admin"}, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}} {
					if _, err := c.Do(t.Context(), args...); err != nil {
						t.Fatal(err)
					}
				}
			},
			func(t *testing.T, s *servers.RedisServer) {
				c, err := s.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for _, args := range [][]string{{"AUTH", "admin", "admin"}, {"ACL", "SETUSER", "default", "nopass"}} {
					if _, err := c.Do(t.Context(), args...); err != nil {
						t.Fatal(err)
					}
				}
			},
		},
		{"TLS: its certificate has expired", servers.RedisOptions{TLS: true},
			func(s *servers.RedisServer) string {
				return "rediss://" + s.TLS.Addr + "?ca_file=" + url.QueryEscape(s.TLS.CAFile)
			},
			func(t *testing.T, s *servers.RedisServer) {
				set(t, s, "CONFIG", "SET", "tls-cert-file", s.TLS.ExpiredCert, "tls-key-file", s.TLS.ExpiredKey)
				set(t, s, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") // open connections would go on
			},
			func(t *testing.T, s *servers.RedisServer) {
				set(t, s, "CONFIG", "SET", "tls-cert-file", s.TLS.ServerCert, "tls-key-file", s.TLS.ServerKey)
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			server := servers.StartRedis(t, row.options)
			inner, err := weirrueidis.Open(row.url(server), patiently(weirredis.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 500_000}
			if err := inner.Warm(t.Context(), []weir.Limit{limit}); err != nil {
				t.Fatal(err)
			}
			probed := &probedStore{Store: inner}
			store, err := failover.New(probed, failover.Options{OnFailure: failover.Deny, Deadline: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			l, err := weir.NewShared(limit, store, weir.Named("api"))
			if err != nil {
				t.Fatal(err)
			}
			u := use(t, l)
			until(t, "the store decides", func() bool { return u.last() == weir.SourceStore })
			row.refuse(t, server)
			until(t, "the fallback decides", func() bool { return u.last() == weir.SourceDeny && store.State() != failover.Closed })
			before := store.Stats()
			probes := probed.refused.Load()
			until(t, "it is probed twice more", func() bool { return probed.refused.Load() >= probes+2 })
			if after := store.Stats(); after.Returned != before.Returned {
				t.Errorf("a probe took the server for a good one: %+v", after)
			}
			row.repair(t, server)
			began := time.Now()
			until(t, "the store decides again", func() bool { return u.last() == weir.SourceStore })
			back := time.Since(began)
			u.end()
			stats := store.Stats()
			until(t, "the store decides about a peek, and has not forgotten what was used", func() bool { // later on a machine that stands still
				d, err := l.Peek(t.Context(), "a", 1)
				if err != nil || d.Source == weir.SourceStore && d.Limit-d.Remaining < 1 {
					t.Fatalf("%+v, %v: what was used is forgotten", d, err)
				}
				return d.Source == weir.SourceStore
			})
			t.Logf("back after %v; %d calls answered, %d failed, %d late, %d denied", back, stats.Answered, stats.Failed, stats.Late, stats.Denied)
		})
	}
}

// A probedStore counts the probes that the server refused.
type probedStore struct {
	*weirrueidis.Store
	refused atomic.Int64
}

func (s *probedStore) Ping(ctx context.Context) error {
	err := s.Store.Ping(ctx)
	if err != nil {
		s.refused.Add(1)
	}
	return err
}

// TestWrongTypeIsNoOutage: a key that another program uses is an error about that charge alone. The
// store goes on deciding about the others.
func TestWrongTypeIsNoOutage(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store, err := failover.New(open(t, client, weirredis.Options{}), failover.Options{OnFailure: failover.Deny, Deadline: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	redis(t, client, "RPUSH", at("list"), "mine")
	out := make([]weir.Decision, 1)
	for range 50 { // enough to open the breaker
		charge := weir.Charge{Name: "api", Key: "list", Limit: slow(9), Cost: 1}
		if err := store.Do(t.Context(), []weir.Charge{charge}, out); !errors.Is(err, weir.ErrCharge) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Fatalf("%v", err)
		}
	}
	d := do(t, store, weir.Charge{Name: "api", Key: "other", Limit: slow(9), Cost: 1}).decision
	if !d.Allowed || d.Source != weir.SourceStore || store.State() != failover.Closed {
		t.Errorf("%+v, %v", d, store.State())
	}
	if n := redis(t, client, "LLEN", at("list")); n != int64(1) {
		t.Errorf("the list has %v elements", n)
	}
}
