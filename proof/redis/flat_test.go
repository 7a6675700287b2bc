package redis

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
)

// flatFor is how long each outage of TestOutagesStayFlat lasts. From longOutage on all rows are
// played.
var flatFor = flag.Duration("flat", 3*time.Second, "how long each outage of TestOutagesStayFlat lasts")

const longOutage = 8 * time.Second

// A downSite is a topology, and an outage of it.
type downSite struct {
	url   string
	alive []*servers.RedisServer          // servers that keep running during the outage
	cut   func(ctx context.Context) error // begins the outage
	heal  func(ctx context.Context) error // ends it; nil: it does not end
	dials func() int64                    // connections to the address of a dead server; nil: they cannot be counted
}

// downRows is the table: every topology, and the outages of each.
var downRows = []struct {
	name  string
	long  bool // played with -flat=8s and more
	start func(ctx context.Context, t *testing.T) downSite
}{
	{"one server, killed", true, func(ctx context.Context, t *testing.T) downSite {
		s := servers.StartRedis(t, servers.RedisOptions{})
		return downSite{url: s.URL(), cut: func(context.Context) error { s.Kill(); return nil }, heal: s.Start}
	}},
	{"one server, stopped", true, func(ctx context.Context, t *testing.T) downSite {
		s := servers.StartRedis(t, servers.RedisOptions{})
		return downSite{url: s.URL(), cut: func(context.Context) error { return s.Pause() }, heal: resumed(s)}
	}},
	{"one server, its port accepts and closes", false, closesConnections},
	{"Sentinel, the master dead and not replaced", false, func(ctx context.Context, t *testing.T) downSite {
		g, site := sentinelDown(ctx, t, func(g *servers.SentinelGroup) error { killAll(g.Servers); return nil })
		site.heal = g.Servers[0].Start
		return site
	}},
	{"Sentinel, the master stopped and not replaced", true, func(ctx context.Context, t *testing.T) downSite {
		g, site := sentinelDown(ctx, t, func(g *servers.SentinelGroup) error { killAll(g.Servers[1:]); return g.Servers[0].Pause() })
		site.heal = resumed(g.Servers[0])
		return site
	}},
	{"Sentinel, only the master alive", true, func(ctx context.Context, t *testing.T) downSite {
		_, site := sentinelDown(ctx, t, func(g *servers.SentinelGroup) error { g.Sentinels[0].Kill(); return nil })
		site.alive = nil
		return site
	}},
	{"Sentinel, all dead", true, func(ctx context.Context, t *testing.T) downSite {
		_, site := sentinelDown(ctx, t, func(g *servers.SentinelGroup) error { g.Sentinels[0].Kill(); killAll(g.Servers); return nil })
		site.alive = nil
		return site
	}},
	{"Cluster, one node dead", false, func(ctx context.Context, t *testing.T) downSite {
		return clusterDown(ctx, t, 1, func(s *servers.RedisServer) error { s.Kill(); return nil })
	}},
	{"Cluster, one node stopped", true, func(ctx context.Context, t *testing.T) downSite {
		return clusterDown(ctx, t, 1, (*servers.RedisServer).Pause)
	}},
	{"Cluster, one of three alive", true, func(ctx context.Context, t *testing.T) downSite {
		return clusterDown(ctx, t, 2, func(s *servers.RedisServer) error { s.Kill(); return nil })
	}},
	{"Cluster, all dead", true, func(ctx context.Context, t *testing.T) downSite {
		return clusterDown(ctx, t, 3, func(s *servers.RedisServer) error { s.Kill(); return nil })
	}},
}

func resumed(s *servers.RedisServer) func(context.Context) error {
	return func(context.Context) error { s.Resume(); return nil }
}

func killAll(all []*servers.RedisServer) {
	for _, s := range all {
		s.Kill()
	}
}

// closesConnections is a server that, once it is killed, has a listener on its port that closes
// each connection, as a proxy does whose server is down.
func closesConnections(_ context.Context, t *testing.T) downSite {
	s := servers.StartRedis(t, servers.RedisOptions{})
	var accepted atomic.Int64
	return downSite{url: s.URL(), dials: accepted.Load, cut: func(ctx context.Context) error {
		s.Kill()
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Addr)
		if err != nil {
			return err
		}
		var task sync.WaitGroup
		t.Cleanup(func() { l.Close(); task.Wait() })
		task.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted.Add(1)
				c.Close()
			}
		})
		return nil
	}}
}

// sentinelDown has one of three sentinels left, so that none can elect a master. cut begins the
// outage of the servers.
func sentinelDown(ctx context.Context, t *testing.T, cut func(*servers.SentinelGroup) error) (*servers.SentinelGroup, downSite) {
	g, err := servers.Sentinel(ctx, servers.SentinelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Stop() })
	return g, downSite{
		url: "redis+sentinel://" + strings.Join(g.Addrs(), ",") + "/" + g.Name, alive: g.Sentinels[:1],
		cut: func(context.Context) error { killAll(g.Sentinels[1:]); return cut(g) },
	}
}

// clusterDown begins an outage of n nodes of a cluster of three.
func clusterDown(ctx context.Context, t *testing.T, n int, cut func(*servers.RedisServer) error) downSite {
	c, err := servers.Cluster(ctx, servers.ClusterOptions{NodeTimeout: time.Second, Config: []string{"cluster-require-full-coverage no", "cluster-allow-reads-when-down yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop() })
	return downSite{url: "redis+cluster://" + strings.Join(c.Addrs(), ","), alive: c.Masters[n:], cut: func(context.Context) error {
		for _, s := range c.Masters[:n] {
			if err := cut(s); err != nil {
				return err
			}
		}
		return nil
	}}
}

// What an outage may cost, at most, with eight callers that call without a pause. A good client
// calls a sentinel or a node a few times a second.
const (
	moreGoroutines = 600 // calls to a server that is stopped end when the client notices that, after a second or two
	moreLater      = 200 // the most of the second half may exceed that of the first by so much
	connsPerSecond = 10
	asksPerSecond  = 40 // commands other than the callers' scripts
)

// TestOutagesStayFlat: with callers that go on during an outage, and no circuit breaker,
// goroutines, connections and commands do not grow, and the callers get decisions again after it.
// The case that was found is "Sentinel, the master dead and not replaced": 680 goroutines and 677
// connections a second, and 4,700 commands a second to the sentinel.
func TestOutagesStayFlat(t *testing.T) {
	table := []string{"| outage | calls | more goroutines, both halves | more files | connections/s | commands/s |", "|---|--:|--:|--:|--:|--:|"}
	for _, row := range downRows {
		if row.long && *flatFor < longOutage {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), *flatFor+4*patience)
			defer cancel()
			table = append(table, "| "+row.name+" | "+row.start(ctx, t).play(ctx, t)+" |")
		})
	}
	t.Logf("%v each\n\n%s\n", *flatFor, strings.Join(table, "\n"))
}

// play makes calls before and during the outage, and counts.
func (d downSite) play(ctx context.Context, t *testing.T) string {
	store := openURL(t, d.url)
	if err := store.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(1e6), Burst: 1e6}, store, weir.Named("flat"))
	if err != nil {
		t.Fatal(err)
	}
	calling, end := context.WithCancel(ctx)
	var callers sync.WaitGroup
	var calls, answered atomic.Int64
	for i := range 8 {
		callers.Go(func() {
			for n := i; calling.Err() == nil; n++ {
				call, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				_, err := shared.Take(call, strconv.Itoa(n%512), 1)
				cancel()
				calls.Add(1)
				if err == nil {
					answered.Add(1)
				} else {
					pass(calling, time.Millisecond) // a refused connection takes no time
				}
			}
		})
	}
	until(t, "the store answers", func() bool { return answered.Load() > 1000 })
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	if err := d.cut(ctx); err != nil {
		t.Fatal(err)
	}
	callsBefore, conns, commands := calls.Load(), int64(0), int64(0)
	for _, s := range d.alive {
		c, n := received(ctx, t, s)
		conns, commands = conns-c, commands-n
	}
	began := time.Now()
	var most [2]inUse
	for half := range most {
		for time.Since(began) < time.Duration(half+1)**flatFor/2 {
			most[half].note(runtime.NumGoroutine()-goroutines, openFiles(t)-files)
			pass(ctx, 20*time.Millisecond)
		}
	}
	for _, s := range d.alive {
		c, n := received(ctx, t, s)
		conns, commands = conns+c, commands+n
	}
	seconds := time.Since(began).Seconds()
	if d.dials != nil {
		conns += d.dials()
	}
	made := calls.Load() - callsBefore
	if d.heal != nil && !t.Failed() {
		if err := d.heal(ctx); err != nil {
			t.Fatal(err)
		}
		before := answered.Load()
		until(t, "the store answers again", func() bool { return answered.Load() > before+1000 })
	}
	end()
	callers.Wait()
	perSecond := func(n int64) float64 { return float64(n) / seconds }
	for what, c := range map[string]struct{ got, most float64 }{
		"goroutines":      {float64(max(most[0].goroutines, most[1].goroutines)), moreGoroutines},
		"files":           {float64(max(most[0].files, most[1].files)), moreGoroutines},
		"more goroutines": {float64(most[1].goroutines - most[0].goroutines), moreLater},
		"more files":      {float64(most[1].files - most[0].files), moreLater},
		"connections/s":   {perSecond(conns), connsPerSecond + 5/seconds}, // the test's own commands are among them
		"commands/s":      {perSecond(commands), asksPerSecond + 50/seconds},
		"calls too few/s": {10, perSecond(made)},
	} {
		if c.got > c.most {
			t.Errorf("%s: %.0f, at most %.0f", what, c.got, c.most)
		}
	}
	return fmt.Sprintf("%d | %d, %d | %d, %d | %.1f | %.1f", made, most[0].goroutines, most[1].goroutines, most[0].files, most[1].files, perSecond(conns), perSecond(commands))
}

// inUse returns the most that was in use at one time.
type inUse struct{ goroutines, files int }

func (u *inUse) note(goroutines, files int) {
	u.goroutines, u.files = max(u.goroutines, goroutines), max(u.files, files)
}

// received returns the connections that a server got, and the commands except scripts.
func received(ctx context.Context, t *testing.T, s *servers.RedisServer) (conns, commands int64) {
	t.Helper()
	stats, err := s.Info(ctx, "stats")
	if err != nil {
		t.Fatal(err)
	}
	conns, err = strconv.ParseInt(stats["total_connections_received"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if commands, err = strconv.ParseInt(stats["total_commands_processed"], 10, 64); err != nil {
		t.Fatal(err)
	}
	byName, err := s.Info(ctx, "commandstats") // a sentinel has none
	if err != nil {
		t.Fatal(err)
	}
	inScripts := []string{"eval", "evalsha", "time", "get", "set", "hget", "hset", "hmget", "hmset", "pexpire", "pexpireat", "persist", "del", "exists", "type"}
	for name, text := range byName {
		var n int64
		if _, err := fmt.Sscanf(text, "calls=%d,", &n); err == nil && slices.Contains(inScripts, strings.TrimPrefix(name, "cmdstat_")) {
			commands -= n
		}
	}
	return conns, commands
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
