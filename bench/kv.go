package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weiretcd"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirmemcached"
	"github.com/weirflow/weir/weirmysql"
	"github.com/weirflow/weir/weirnats"
)

// A kvWorld is a server, and how stores in it are opened.
type kvWorld struct {
	name string
	open func(o weirkv.Options) (*weirkv.Store, func() error, error)
	end  func() error
}

// kvWorlds starts memcached, MariaDB and etcd with their data in temporary folders, and a NATS server in this process.
// MariaDB waits for the disk at each commit, as by default.
func kvWorlds() (all []kvWorld, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "weir-kv-")
	if err != nil {
		return nil, err
	}
	m, err := servers.Memcached(ctx, "")
	if err != nil {
		return nil, err
	}
	all = append(all, kvWorld{"memcached", func(o weirkv.Options) (*weirkv.Store, func() error, error) {
		return opened(weirmemcached.Open("memcached://"+m.Addr, o))
	}, m.Stop})
	d, err := servers.MariaDB(ctx, servers.MariaDBOptions{Persist: true, Config: mariaConfig})
	if err != nil {
		return all, err
	}
	all = append(all, kvWorld{"mariadb", func(o weirkv.Options) (*weirkv.Store, func() error, error) {
		return opened(weirmysql.Open(d.URL(), o))
	}, d.Stop})
	e, err := servers.Etcd(ctx, dir, 1)
	if err != nil {
		return all, err
	}
	all = append(all, kvWorld{"etcd", func(o weirkv.Options) (*weirkv.Store, func() error, error) {
		return opened(weiretcd.Open("etcd://"+e[0].Addr, o))
	}, func() error { return errors.Join(e[0].Stop(), os.RemoveAll(dir)) }})
	n, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return all, err
	}
	n.Start()
	n.ReadyForConnections(startTime)
	return append(all, kvWorld{"nats", func(o weirkv.Options) (*weirkv.Store, func() error, error) {
		return opened(weirnats.Open("nats://"+n.Addr().String(), o))
	}, func() error { n.Shutdown(); n.WaitForShutdown(); return nil }}), nil
}

// opened is a store that is ready, with its Close.
func opened[S interface {
	*weirmemcached.Store | *weiretcd.Store | *weirnats.Store | *weirmysql.Store
	Ready(context.Context) error
	Close() error
}](s S, err error) (*weirkv.Store, func() error, error) {
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		return nil, nil, err
	}
	switch s := any(s).(type) {
	case *weirmemcached.Store:
		return s.Store, s.Close, nil
	case *weiretcd.Store:
		return s.Store, s.Close, nil
	case *weirnats.Store:
		return s.Store, s.Close, nil
	case *weirmysql.Store:
		return s.Store, s.Close, nil
	}
	return nil, nil, errors.New("no such store")
}

// kv measures weirkv over each store that compares and swaps: callers of one node, which share writes, beside as
// many nodes with one caller each, which try again where another one was faster.
func kv(r *report) error {
	worlds, err := kvWorlds()
	for _, w := range worlds {
		if err == nil {
			err = r.kvWorld(w)
		}
		err = errors.Join(err, w.end())
	}
	return err
}

func (r *report) kvWorld(w kvWorld) error {
	t := table{
		Title:   w.name,
		Notes:   []string{"calls/s: median of the rounds, which take turns; p50 and p99 of all calls; writes: how many were tried for each call"},
		Columns: []column{{"calls/s", 0}, {"p50 us", 0}, {"p99 us", 0}, {"writes", 3}, {"/ plain", 1}},
	}
	limit := weir.TokenBucket{Rate: weir.PerSecond(1e6), Burst: 1e6}
	one, end, err := w.open(weirkv.Options{Prefix: "one:", Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer end() //nolint:errcheck // it is stopped either way
	shared, err := weir.NewShared(limit, one, weir.Named("bench"))
	if err != nil {
		return err
	}
	nodes := make([]*weirkv.Store, redisCallers)
	plain := make(chan *weir.Shared, redisCallers)
	for i := range nodes {
		s, end, err := w.open(weirkv.Options{Prefix: "plain:", Timeout: time.Minute, Attempts: 1 << 30})
		if err != nil {
			return err
		}
		defer end() //nolint:errcheck // it is stopped either way
		l, err := weir.NewShared(limit, s, weir.Named("bench"))
		if err != nil {
			return err
		}
		nodes[i] = s
		plain <- l
	}
	subjects := []struct {
		name          string
		call          caller
		callers, keys int
		of            []*weirkv.Store
	}{
		{"plain: 64 nodes, one caller each, one key", func(ctx context.Context, key string) (bool, error) {
			l := <-plain
			defer func() { plain <- l }()
			return l.Allow(ctx, key)
		}, redisCallers, 1, nodes},
		{"64 callers of one node, one key", shared.Allow, redisCallers, 1, []*weirkv.Store{one}},
		{fmt.Sprintf("64 callers of one node, %d keys", redisKeys), shared.Allow, redisCallers, redisKeys, []*weirkv.Store{one}},
		{"one caller, one key", shared.Allow, 1, 1, []*weirkv.Store{one}},
	}
	rates, latencies, writes := make([][]float64, len(subjects)), make([][]time.Duration, len(subjects)), make([]float64, len(subjects))
	for round := range r.rounds + 1 {
		for i, s := range subjects {
			before := tried(s.of)
			rate, took, err := drive(s.call, s.callers, s.keys, redisRounds*r.round)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.name, s.name, err)
			}
			if round > 0 {
				rates[i], latencies[i] = append(rates[i], rate), append(latencies[i], took...)
				writes[i] += float64(tried(s.of)-before) / float64(len(took)) / float64(r.rounds)
			}
		}
	}
	for i, s := range subjects {
		slices.Sort(rates[i])
		slices.Sort(latencies[i])
		p := func(q float64) float64 {
			return float64(latencies[i][int(q*float64(len(latencies[i])-1))]) / float64(time.Microsecond)
		}
		median, plain := rates[i][len(rates[i])/2], rates[0][len(rates[0])/2]
		line := row{Name: s.name, Values: []float64{median, p(0.5), p(0.99), writes[i], median / plain}}
		if i == 1 {
			line.Target, line.Missed = atLeast(median/plain, 10, "plain")
		}
		t.Rows = append(t.Rows, line)
	}
	r.add(t)
	return nil
}

// tried is how many writes the stores have tried.
func tried(all []*weirkv.Store) (n uint64) {
	for _, s := range all {
		writes, _ := s.Writes()
		n += writes
	}
	return n
}
