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

// SentinelOptions say what Sentinel starts. The zero value is a master, a replica, and three
// sentinels that wait half a second.
type SentinelOptions struct {
	Replicas int // default: 1
	// a server that does not respond for so long counts as down; default: 500 ms
	DownAfter time.Duration
	// a failed failover is tried again after twice this time; default: 2 s
	FailoverTimeout time.Duration

	Persist bool // as in RedisOptions
	// of the servers' default user; without spaces, because sentinels cannot read these back.
	// Sentinels have none themselves
	Password string
	Config   []string // lines of redis.conf for each server
}

// A SentinelGroup is a master with replicas, and its sentinels. Its fields do not change, but any
// server can become the master.
type SentinelGroup struct {
	Name      string         // of the master, for clients
	Servers   []*RedisServer // the first one was the master at the start
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
	// A sentinel asks a master for its replicas at its start, and then every ten seconds, so they
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
	// Sentinels greet each other every two seconds, and tolerate an old master for four times as
	// long. If the machine was too busy for two seconds, they would do nothing for thirty (TILT).
	// The command switches that off; after a Start it is on again, which is only slower. A Redis
	// before 7.0 does not have it.
	_, err = s.Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200", "INFO-PERIOD", "1000", "TILT-PERIOD", "1000")
	if _, replied := errors.AsType[RedisError](err); err != nil && !replied {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// knowsAll returns an error that says what a sentinel does not know yet, or has wrong.
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

// view returns what a sentinel says about the master.
func (g *SentinelGroup) view(ctx context.Context, s *RedisServer) (map[string]string, error) {
	v, err := s.Do(ctx, "SENTINEL", "MASTER", g.Name)
	return pairs(v), err
}

// Addrs returns the addresses of the sentinels.
func (g *SentinelGroup) Addrs() []string { return addrs(g.Sentinels) }

// Master returns the address of the current master, from the first sentinel that responds.
func (g *SentinelGroup) Master(ctx context.Context) (string, error) {
	_, addr, err := g.first(ctx)
	return addr, err
}

// first returns the first sentinel that knows the master, and what it says.
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

// Server returns the server at an address; nil if there is none.
func (g *SentinelGroup) Server(addr string) *RedisServer {
	for _, s := range g.Servers {
		if s.Addr == addr {
			return s
		}
	}
	return nil
}

// KillMaster kills the current master and returns it. AwaitMaster waits for the next one; the old
// one can be started again.
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

// AwaitMaster waits until all running sentinels agree on a master other than the one at an address,
// and that server knows that it is the master. It returns the new master's address. The old one, if
// it runs, may take itself for a master a little longer.
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

// Failover has a sentinel promote a replica while the old master runs, and waits as AwaitMaster
// does. It returns the address of the new master. For some moments the old one accepts writes,
// which are lost.
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
		// It may refuse while it knows no good replica, and it may give up: then the command is
		// sent again.
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
	// in this order, so that no failover begins
	return errors.Join(stopAll(g.Sentinels), stopAll(g.Servers))
}
