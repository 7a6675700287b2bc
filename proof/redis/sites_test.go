package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// pass waits for a time within a fault. It reports false when the fault is over.
func pass(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// whole returns a context that lets a step of a fault be completed after the fault's time.
func whole(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// single is a site of one server.
func single(t *testing.T, o servers.RedisOptions, fault func(context.Context, *site, *servers.RedisServer) error) *site {
	server := servers.StartRedis(t, o)
	s := &site{task: task{Addrs: []string{server.Addr}, Pause: pause}, clock: serverClock(server)}
	s.fault = func(ctx context.Context) error { return fault(ctx, s, server) }
	return s
}

func untouched(t *testing.T) *site {
	return single(t, servers.RedisOptions{}, func(ctx context.Context, _ *site, _ *servers.RedisServer) error {
		<-ctx.Done()
		return nil
	})
}

func paused(t *testing.T) *site {
	random := seeds.Of(t.Name())
	return single(t, servers.RedisOptions{}, func(ctx context.Context, _ *site, server *servers.RedisServer) error {
		for pass(ctx, 300*time.Millisecond) {
			if err := server.Pause(); err != nil {
				return err
			}
			pass(ctx, time.Duration(random.Int64N(int64(10*deadline))))
			server.Resume()
		}
		return nil
	})
}

func killed(t *testing.T) *site {
	return single(t, servers.RedisOptions{Persist: true}, func(ctx context.Context, _ *site, server *servers.RedisServer) error {
		return restarts(ctx, server)
	})
}

func wiped(t *testing.T) *site {
	return single(t, servers.RedisOptions{}, func(ctx context.Context, s *site, server *servers.RedisServer) error {
		for pass(ctx, 700*time.Millisecond) {
			s.losses++
			if err := restart(ctx, server); err != nil {
				return err
			}
		}
		return nil
	})
}

func restarts(ctx context.Context, server *servers.RedisServer) error {
	for pass(ctx, 500*time.Millisecond) {
		if err := restart(ctx, server); err != nil {
			return err
		}
	}
	return nil
}

func restart(ctx context.Context, server *servers.RedisServer) error {
	server.Kill()
	ctx, cancel := whole(ctx)
	defer cancel()
	return server.Start(ctx)
}

func flushed(t *testing.T) *site {
	return single(t, servers.RedisOptions{}, func(ctx context.Context, _ *site, server *servers.RedisServer) error {
		conn, err := server.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		for pass(ctx, 2*time.Millisecond) {
			if _, err := conn.Do(ctx, "SCRIPT", "FLUSH"); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
}

// failedOver is a site of three sentinels. In turn, a replica is promoted while the old master
// runs, and the master is killed and comes back as a replica.
func failedOver(t *testing.T) *site {
	ctx, cancel := whole(t.Context())
	defer cancel()
	g, err := servers.Sentinel(ctx, servers.SentinelOptions{DownAfter: 2 * time.Second}) // a server on a busy machine may respond after half a second
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &site{task: task{Addrs: g.Addrs(), MasterSet: g.Name, Pause: pause}, clock: serverClock(g.Servers[0])} // all are on one machine
	began, first := time.Now(), epochOf(ctx, t, g)
	s.fault = func(ctx context.Context) error {
		for n := 0; pass(ctx, time.Second); n++ {
			if err := s.failover(ctx, g, n%2 == 0); err != nil {
				return err
			}
		}
		return nil
	}
	s.settle = func(ctx context.Context) {
		if all := epochOf(ctx, t, g) - first; all > s.losses {
			t.Logf("of %d failovers the sentinels began %d by themselves, or again: two may have been masters all the time", all, all-s.losses)
			s.losses, s.beside = all, time.Since(began)
		}
	}
	return s
}

// epochOf returns the epoch of a group. Each failover raises it, also one that a sentinel started by
// itself.
func epochOf(ctx context.Context, t *testing.T, g *servers.SentinelGroup) (latest int) {
	t.Helper()
	for _, s := range g.Sentinels {
		v, err := s.Do(ctx, "SENTINEL", "MASTER", g.Name)
		if err != nil {
			t.Fatal(err)
		}
		list, _ := v.([]any)
		at := slices.Index(list, any("config-epoch"))
		if at < 0 || at+1 == len(list) {
			t.Fatalf("%s names no config-epoch: %v", s, list)
		}
		n, err := strconv.Atoi(list[at+1].(string))
		if err != nil {
			t.Fatal(err)
		}
		latest = max(latest, n)
	}
	return latest
}

// failover counts a loss: the writes that the old master had not replicated, and r for as long as
// it takes itself for the master beside the new one.
func (s *site) failover(ctx context.Context, g *servers.SentinelGroup, alive bool) error {
	s.losses++
	ctx, cancel := whole(ctx)
	defer cancel()
	addr, err := g.Master(ctx)
	if err != nil {
		return err
	}
	old := g.Server(addr)
	began := time.Now() // the time in which both may take themselves for the master
	defer func() { s.beside += time.Since(began) }()
	if alive {
		addr, err = g.Failover(ctx)
	} else if _, err = g.KillMaster(ctx); err == nil {
		addr, err = g.AwaitMaster(ctx, addr)
		began = time.Now() // the old one comes back as a master, until the sentinels see it
		if err == nil {
			err = old.Start(ctx)
		}
	}
	if err != nil {
		return err
	}
	return demoted(ctx, old, addr)
}

// demoted waits until a former master is a replica. On a busy machine the sentinels may see late
// that it is none: then the test demotes it.
func demoted(ctx context.Context, old *servers.RedisServer, master string) error {
	ctx, cancel := whole(ctx) // earlier steps have had their time
	defer cancel()
	half, done := context.WithTimeout(ctx, patience/2)
	defer done()
	if err := slave(half, old); err == nil {
		return nil
	}
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		return err
	}
	if _, err := old.Do(ctx, "REPLICAOF", host, port); err != nil {
		return err
	}
	return slave(ctx, old)
}

// slave waits until a server takes itself for a replica.
func slave(ctx context.Context, s *servers.RedisServer) error {
	for {
		info, err := s.Info(ctx, "replication")
		if err == nil && info["role"] == "slave" {
			return nil
		}
		if !pass(ctx, 10*time.Millisecond) {
			return fmt.Errorf("%s is still a %q, and not a slave: %w", s, info["role"], errors.Join(err, ctx.Err()))
		}
	}
}

// resharded is a site of three masters, between which slots move: that of the hot key, and others.
func resharded(t *testing.T) *site {
	ctx, cancel := whole(t.Context())
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	hot, err := c.Slot(ctx, "{"+faultKey(0)+"}")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{task: task{Addrs: c.Addrs(), Cluster: true, Pause: pause}, clock: serverClock(c.Masters[0])}
	random := seeds.Of(t.Name())
	s.fault = func(ctx context.Context) error {
		for n := 0; pass(ctx, 100*time.Millisecond); n++ {
			from := random.IntN(16384 - 50)
			slots := [][2]int{{hot, hot}, {from, from + 50}}
			for _, r := range slots {
				if err := move(ctx, c, r, c.Masters[n%len(c.Masters)]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return s
}

func move(ctx context.Context, c *servers.RedisCluster, slots [2]int, to *servers.RedisServer) error {
	ctx, cancel := whole(ctx)
	defer cancel()
	return c.MoveSlots(ctx, slots[0], slots[1], to)
}

// toxics are the faults of replies. Requests arrive.
var toxics = []string{
	`{"type":"latency","attributes":{"latency":20,"jitter":20}}`,
	`{"type":"reset_peer","attributes":{"timeout":0}}`,
	`{"type":"limit_data","attributes":{"bytes":3000}}`,
	`{"type":"timeout","attributes":{"timeout":20}}`,
	`{"type":"slow_close","attributes":{"delay":30}}`,
	`{"type":"limit_data","attributes":{"bytes":700}}`,
	`{"type":"reset_peer","attributes":{"timeout":10}}`,
}

// cut is a site behind a proxy that loses replies.
func cut(t *testing.T) *site {
	server := servers.StartRedis(t, servers.RedisOptions{})
	proxies := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(proxies, "redis", "127.0.0.1:0", server.Addr)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	s := &site{task: task{Addrs: []string{proxy.Listen}, Pause: pause}, clock: serverClock(server), repeats: true}
	s.fault = func(ctx context.Context) error {
		for n := 0; pass(ctx, 100*time.Millisecond); n++ {
			text := strings.Replace(toxics[n%len(toxics)], "{", `{"name":"it","stream":"downstream","toxicity":1,`, 1)
			if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
				return err
			}
			pass(ctx, 150*time.Millisecond)
			ctx, cancel := whole(ctx)
			err := proxy.Toxics.RemoveToxic(ctx, "it")
			cancel()
			if err != nil {
				return err
			}
		}
		return nil
	}
	return s
}

// stepped is a site with the test's own clock, which runs like the real one, and is put forward and
// back.
func stepped(t *testing.T) *site {
	server := servers.StartRedis(t, servers.RedisOptions{})
	c := &steppedClock{server: server}
	const most = 2 * time.Second
	s := &site{task: task{Addrs: []string{server.Addr}, Pause: pause, ClockKey: "clock", Grace: 2*most + time.Second}, clock: c.span}
	if err := c.set(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.run(ctx) }() // for callers that still wait after the fault
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(cancel)
	random := seeds.Of(t.Name())
	s.fault = func(ctx context.Context) error {
		for pass(ctx, 200*time.Millisecond) {
			c.step(time.Duration(random.Int64N(int64(2*most))) - most)
		}
		return nil
	}
	return s
}

// steppedClock is a clock in the server that the test has to move.
type steppedClock struct {
	server *servers.RedisServer

	mu            sync.Mutex
	off           time.Duration
	asked         bool
	first, latest time.Time // since its first use
	forward       time.Duration
}

// run moves the clock.
func (c *steppedClock) run(ctx context.Context) error {
	for pass(ctx, 2*time.Millisecond) {
		if err := c.set(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (c *steppedClock) set(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().Add(c.off)
	if !c.asked {
		c.first, c.latest, c.forward = now, now, 0
	}
	c.forward += max(now.Sub(c.latest), 0)
	c.latest = now
	_, err := c.server.Do(ctx, "HSET", "clock", "s", strconv.FormatInt(now.Unix(), 10), "us", strconv.Itoa(now.Nanosecond()/1000))
	return err
}

func (c *steppedClock) step(to time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = to
}

// span is as long as the clock has moved forward in all, as a step forward counts as time.
func (c *steppedClock) span(context.Context) (lowest, highest time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = true
	return c.first, c.first.Add(c.forward), nil
}
