package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SentinelOptions say what Sentinel is to start. The zero value is a master, a replica, and three
// sentinels that wait half a second.
type SentinelOptions struct {
	Replicas int // 1 if 0
	// without an answer, a sentinel takes a server to be down; 500 ms if 0
	DownAfter time.Duration
	// and twice that until a failover that failed is tried again; 2 s if 0
	FailoverTimeout time.Duration

	Persist bool // as in RedisOptions
	// of the servers' default user, without spaces, which sentinels cannot read again; they have
	// none themselves
	Password string
	Config   []string // lines of redis.conf for each server
}

// A SentinelGroup is a master with replicas, and the sentinels that watch it. Its fields do not
// change: who is the master does.
type SentinelGroup struct {
	Name      string         // of the master, for clients
	Servers   []*RedisServer // the first began as the master
	Sentinels []*RedisServer
}

const (
	sentinels = 3
	quorum    = 2
)

// Sentinel starts a master, its replicas and three sentinels with a quorum of 2, and waits until
// each sentinel knows all the others.
func Sentinel(ctx context.Context, o SentinelOptions) (*SentinelGroup, error) {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.DownAfter == 0 {
		o.DownAfter = 500 * time.Millisecond
	}
	if o.FailoverTimeout == 0 {
		o.FailoverTimeout = 2 * time.Second
	}
	g := &SentinelGroup{Name: "primary"}
	if err := g.start(ctx, o); err != nil {
		return nil, errors.Join(err, g.Stop())
	}
	return g, nil
}

func (g *SentinelGroup) start(ctx context.Context, o SentinelOptions) error {
	common := []string{"repl-ping-replica-period 1"}
	if o.Password != "" {
		// the master may become a replica
		common = append(common, "masterauth "+strconv.Quote(o.Password))
	}
	common = append(common, o.Config...)
	for i := range 1 + o.Replicas {
		config := common
		if i > 0 {
			host, port, err := net.SplitHostPort(g.Servers[0].Addr)
			if err != nil {
				return err
			}
			config = append([]string{"replicaof " + host + " " + port}, common...)
		}
		s, err := Redis(ctx, RedisOptions{Persist: o.Persist, Password: o.Password, Config: config})
		if err != nil {
			return err
		}
		g.Servers = append(g.Servers, s)
	}
	// A sentinel asks a master for its replicas when it begins, and then each ten seconds: they
	// should be there.
	if err := await(ctx, g.Servers, func(ctx context.Context) error { return linked(ctx, g.Servers[1:]) }); err != nil {
		return err
	}
	for range sentinels {
		s, err := g.sentinel(ctx, o)
		if err != nil {
			return err
		}
		g.Sentinels = append(g.Sentinels, s)
	}
	return await(ctx, slices.Concat(g.Sentinels, g.Servers), func(ctx context.Context) error {
		for _, s := range g.Sentinels {
			if err := g.knowsAll(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	})
}

func (g *SentinelGroup) sentinel(ctx context.Context, o SentinelOptions) (*RedisServer, error) {
	host, port, err := net.SplitHostPort(g.Servers[0].Addr)
	if err != nil {
		return nil, err
	}
	config := []string{
		fmt.Sprintf("sentinel monitor %s %s %s %d", g.Name, host, port, quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", g.Name, o.DownAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", g.Name, o.FailoverTimeout.Milliseconds()),
	}
	if o.Password != "" {
		config = append(config, fmt.Sprintf("sentinel auth-pass %s %s", g.Name, strconv.Quote(o.Password)))
	}
	s, err := startRedis(ctx, &RedisServer{program: "redis-sentinel", options: RedisOptions{Config: config}})
	if err != nil {
		return nil, err
	}
	// Sentinels greet each other each two seconds, and let an old master go on for four times that.
	// A machine that was too busy for two seconds would have them do nothing for thirty. A Start
	// forgets this, and is only slower. A Redis before 7.0 does not know it.
	_, err = s.Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200", "INFO-PERIOD", "1000", "TILT-PERIOD", "1000")
	if _, replied := errors.AsType[RedisError](err); err != nil && !replied {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// knowsAll reports what a sentinel does not know yet, or thinks is wrong.
func (g *SentinelGroup) knowsAll(ctx context.Context, s *RedisServer) error {
	m, err := g.view(ctx, s)
	if err != nil {
		return err
	}
	if m["flags"] != "master" {
		return fmt.Errorf("the master is %s", m["flags"])
	}
	for _, peers := range []struct {
		verb, flags string
		n           int
	}{{"REPLICAS", "slave", len(g.Servers) - 1}, {"SENTINELS", "sentinel", len(g.Sentinels) - 1}} {
		v, err := s.Do(ctx, "SENTINEL", peers.verb, g.Name)
		if err != nil {
			return err
		}
		list, _ := v.([]any)
		if len(list) != peers.n {
			return fmt.Errorf("it knows %d of %d %s", len(list), peers.n, strings.ToLower(peers.verb))
		}
		for _, v := range list {
			peer := pairs(v)
			if peer["flags"] != peers.flags {
				return fmt.Errorf("%s is %s", peer["name"], peer["flags"])
			}
			if link := peer["master-link-status"]; peers.verb == "REPLICAS" && link != "ok" {
				return fmt.Errorf("%s has a link to the master that is %q", peer["name"], link)
			}
		}
	}
	return nil
}

// view is what a sentinel says of the master.
func (g *SentinelGroup) view(ctx context.Context, s *RedisServer) (map[string]string, error) {
	v, err := s.Do(ctx, "SENTINEL", "MASTER", g.Name)
	return pairs(v), err
}

// Addrs are the addresses of the sentinels.
func (g *SentinelGroup) Addrs() []string { return addrs(g.Sentinels) }

// Master is the address of the current master, from the first sentinel that says.
func (g *SentinelGroup) Master(ctx context.Context) (string, error) {
	_, addr, err := g.first(ctx)
	return addr, err
}

// first is the first sentinel that says who is the master, and what it says.
func (g *SentinelGroup) first(ctx context.Context) (*RedisServer, string, error) {
	var errs []error
	for _, s := range g.Sentinels {
		addr, err := g.masterOf(ctx, s)
		if err == nil {
			return s, addr, nil
		}
		errs = append(errs, err)
	}
	return nil, "", errors.Join(errs...)
}

func (g *SentinelGroup) masterOf(ctx context.Context, s *RedisServer) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	v, err := s.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", g.Name)
	if err != nil {
		return "", err
	}
	if list, ok := v.([]any); ok && len(list) == 2 {
		return net.JoinHostPort(fmt.Sprint(list[0]), fmt.Sprint(list[1])), nil
	}
	return "", fmt.Errorf("%s names no master: %v", s, v)
}

// Server is the server at an address, or nil.
func (g *SentinelGroup) Server(addr string) *RedisServer {
	for _, s := range g.Servers {
		if s.Addr == addr {
			return s
		}
	}
	return nil
}

// KillMaster kills the current master and returns it. AwaitMaster tells when there is another; the
// old one may be started again.
func (g *SentinelGroup) KillMaster(ctx context.Context) (*RedisServer, error) {
	addr, err := g.Master(ctx)
	if err != nil {
		return nil, err
	}
	s := g.Server(addr)
	if s == nil {
		return nil, fmt.Errorf("the master is at %s, which is none of %v", addr, addrs(g.Servers))
	}
	s.Kill()
	return s, nil
}

// AwaitMaster waits until all sentinels that run agree on a master that is not at an address, and
// that knows that it is one. It returns the master's address. The old one, if it runs, may take
// itself for a master a little longer.
func (g *SentinelGroup) AwaitMaster(ctx context.Context, not string) (addr string, err error) {
	err = await(ctx, nil, func(ctx context.Context) error {
		addr, err = g.agreed(ctx)
		if err == nil && addr == not {
			err = fmt.Errorf("the master is still at %s", addr)
		}
		return err
	})
	return addr, err
}

func (g *SentinelGroup) agreed(ctx context.Context) (string, error) {
	addr := ""
	for _, s := range g.Sentinels {
		a, err := g.masterOf(ctx, s)
		if absent(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		if addr != "" && a != addr {
			return "", fmt.Errorf("sentinels name %s and %s as the master", addr, a)
		}
		addr = a
	}
	s := g.Server(addr)
	if s == nil {
		return "", fmt.Errorf("the master is at %q, which is none of %v", addr, addrs(g.Servers))
	}
	ctx, cancel := context.WithTimeout(ctx, aLook)
	defer cancel()
	info, err := s.Info(ctx, "replication")
	if err == nil && info["role"] != "master" {
		err = fmt.Errorf("%s is a %s", s, info["role"])
	}
	return addr, err
}

// Failover has a sentinel make a replica the master, while the old one runs, and waits as
// AwaitMaster does. It returns the address of the new master. For some moments the old one goes on
// to accept writes, which are lost.
func (g *SentinelGroup) Failover(ctx context.Context) (string, error) {
	first, old, err := g.first(ctx)
	if err != nil {
		return "", err
	}
	err = await(ctx, nil, func(ctx context.Context) error {
		m, err := g.view(ctx, first)
		if err != nil {
			return err
		}
		// It may refuse, while it has seen no good replica, and it may give up: then it is told
		// again.
		switch {
		case strings.Contains(m["flags"], "failover_in_progress"):
		case net.JoinHostPort(m["ip"], m["port"]) != old:
			return nil
		default:
			if _, err := first.Do(ctx, "SENTINEL", "FAILOVER", g.Name); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s is in a failover from %s", first, old)
	})
	if err != nil {
		return "", err
	}
	return g.AwaitMaster(ctx, old)
}

// Stop stops all sentinels and servers.
func (g *SentinelGroup) Stop() error {
	// in this order: no failover begins
	return errors.Join(stopAll(g.Sentinels), stopAll(g.Servers))
}
