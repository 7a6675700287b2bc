package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/weirflow/weir"
	weirkeyed "github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/stores"
)

// A storeServer is where limits are kept during a measurement.
type storeServer struct {
	url  string
	end  func() error
	size func(ctx context.Context) (int64, error) // what the keys take, in bytes; nil: it is not measured
}

// storeWorlds are the products that limits can be kept in, with what starts each of them, with its files in a
// folder if it has any. To add one, write a line.
func storeWorlds() []struct {
	name  string
	start func(ctx context.Context, dir string) (*storeServer, error)
} {
	return []struct {
		name  string
		start func(ctx context.Context, dir string) (*storeServer, error)
	}{
		{"Redis", startRedis},
		{"PostgreSQL", startPostgres},
		{"MariaDB", func(ctx context.Context, _ string) (*storeServer, error) {
			s, err := servers.MariaDB(ctx, servers.MariaDBOptions{Config: mariaConfig})
			if err != nil {
				return nil, err
			}
			return &storeServer{s.URL(), s.Stop, func(ctx context.Context) (int64, error) { return mariadbSize(ctx, s.Addr) }}, nil
		}},
		{"SQLite", func(_ context.Context, dir string) (*storeServer, error) {
			return &storeServer{"sqlite:" + filepath.Join(dir, "limits.db"), func() error { return nil }, func(ctx context.Context) (int64, error) { return sqliteSize(ctx, filepath.Join(dir, "limits.db")) }}, nil
		}},
		{"memcached", func(ctx context.Context, _ string) (*storeServer, error) {
			s, err := servers.Memcached(ctx, "")
			if err != nil {
				return nil, err
			}
			return &storeServer{"memcached://" + s.Addr, s.Stop, func(ctx context.Context) (int64, error) { return memcachedSize(ctx, s.Addr) }}, nil
		}},
		{"etcd, one member", func(ctx context.Context, dir string) (*storeServer, error) {
			all, err := servers.Etcd(ctx, dir, 1)
			if err != nil {
				return nil, err
			}
			return &storeServer{"etcd://" + all[0].Addr, all[0].Stop, func(ctx context.Context) (int64, error) { return etcdSize(ctx, all[0].Addr) }}, nil
		}},
		{"NATS, one server", startNATS},
		{"three nodes, no server", startNodes},
	}
}

func startRedis(ctx context.Context, _ string) (*storeServer, error) {
	s, err := servers.Redis(ctx, servers.RedisOptions{})
	if err != nil {
		return nil, err
	}
	return &storeServer{"redis://" + s.Addr + "/0", s.Stop, func(ctx context.Context) (int64, error) {
		info, err := s.Info(ctx, "memory")
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(info["used_memory"], 10, 64)
	}}, nil
}

func startPostgres(ctx context.Context, _ string) (*storeServer, error) {
	s, err := servers.Postgres(ctx, servers.PostgresOptions{Persist: true})
	if err != nil {
		return nil, err
	}
	return &storeServer{s.URL(), s.Stop, func(ctx context.Context) (size int64, err error) {
		c, err := pgx.Connect(ctx, s.URL())
		if err != nil {
			return 0, err
		}
		defer c.Close(ctx) //nolint:errcheck // it has only read
		err = c.QueryRow(ctx, "SELECT pg_total_relation_size('weir.states')").Scan(&size)
		return size, err
	}}, nil
}

func startNATS(_ context.Context, dir string) (*storeServer, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	s.ReadyForConnections(startTime)
	return &storeServer{"nats://" + s.Addr().String(), func() error { s.Shutdown(); s.WaitForShutdown(); return nil }, func(context.Context) (int64, error) { return folderSize(dir) }}, nil
}

// startNodes starts two of three nodes that keep the limits themselves; the third one is opened by the URL.
func startNodes(_ context.Context, dir string) (*storeServer, error) {
	var nodes [3]string
	for i := range nodes {
		free, err := servers.FreeAddress()
		if err != nil {
			return nil, err
		}
		nodes[i] = free.Host
		free.Release()
	}
	at := func(node string) string {
		return fmt.Sprintf("cluster://%s?folder=%s&node=%s", strings.Join(nodes[:], ","), dir, node)
	}
	var others []weir.Store
	end := func() (err error) {
		for _, s := range others {
			err = errors.Join(err, s.Close())
		}
		return err
	}
	for _, node := range nodes[1:] {
		s, err := stores.Open(policy.Store{URL: at(node)}, nil)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		others = append(others, s)
	}
	return &storeServer{at(nodes[0]), end, nil}, nil
}

// sqliteSize is the length of a file once its log is written back to it; 0 for one that is not there yet.
func sqliteSize(ctx context.Context, path string) (int64, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	db, err := stdsql.Open("sqlite", path)
	if err != nil {
		return 0, err
	}
	defer db.Close() //nolint:errcheck // it is only looked at
	if _, err := db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// folderSize is what the files of a product take.
func folderSize(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// compareStores measures one token bucket in each place where limits can be kept, for docs/choose-a-store.md.
func compareStores(r *report) error {
	t := table{
		Title: "one token bucket in each place where limits can be kept, servers on this machine",
		Notes: []string{
			fmt.Sprintf("p50 and p99: one caller, one key. hot/s: decisions of %d callers on one key; keys/s: on %d keys. Medians of the rounds", redisCallers, redisKeys),
			fmt.Sprintf("bytes a key: %d keys with names of 16 bytes, each used once", redisKeys),
		},
		Columns: []column{{"p50 us", 1}, {"p99 us", 1}, {"hot/s", 0}, {"keys/s", 0}, {"bytes a key", 0}},
	}
	in, err := r.memoryRow()
	if err != nil {
		return err
	}
	t.Rows = append(t.Rows, in)
	for _, w := range storeWorlds() {
		rows, err := r.storeRows(w.name, w.start)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		t.Rows = append(t.Rows, rows...)
	}
	r.add(t)
	return nil
}

// oneMillion is a bucket that admits everything here.
var oneMillion = weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9}

// memoryRow measures a table of keys in this process. keymemory measures its bytes.
func (r *report) memoryRow() (row, error) {
	l, err := weirkeyed.New[string](oneMillion, weirkeyed.Options{})
	if err != nil {
		return row{}, err
	}
	return r.storeRow("memory of one process", func(_ context.Context, key string) (bool, error) { return l.Allow(key), nil })
}

// storeRows measures a product, with leases and without.
func (r *report) storeRows(name string, start func(ctx context.Context, dir string) (*storeServer, error)) (rows []row, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "weir-stores-")
	if err != nil {
		return nil, err
	}
	w, err := start(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, w.end(), os.RemoveAll(dir)) }()
	s, err := stores.Open(policy.Store{URL: w.url, Deadline: time.Minute, Prefix: "bench:"}, func(string, string) string { return "bench" })
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // it is stopped either way
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	bytes := math.NaN()
	if w.size != nil {
		if bytes, err = bytesOfKeys(s, func() (int64, error) { return w.size(ctx) }); err != nil {
			return nil, err
		}
	}
	shared, err := weir.NewShared(oneMillion, s, weir.Named("bench"))
	if err != nil {
		return nil, err
	}
	line, err := r.storeRow(name, shared.Allow)
	line.Values[4] = bytes
	rows = []row{line}
	if err != nil {
		return nil, err
	}
	leased, err := lease.New(s, lease.Options{MaxOutstanding: 1 << 24})
	if err != nil {
		return nil, err
	}
	defer leased.Close()
	ahead, err := weir.NewShared(oneMillion, leased, weir.Named("leased"))
	if err != nil {
		return nil, err
	}
	line, err = r.storeRow("leases over "+name, ahead.Allow)
	return append(rows, line), err
}

// bytesOfKeys is what a key takes in a store.
func bytesOfKeys(s weir.Store, size func() (int64, error)) (float64, error) {
	before, err := size()
	if err != nil {
		return 0, err
	}
	const together = 100
	limit := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}
	for i := 0; i < redisKeys; i += together {
		batch := make([]weir.Charge, together)
		for j := range batch {
			batch[j] = weir.Charge{Name: "bytes", Key: fmt.Sprintf("%016d", i+j), Limit: limit, Cost: 1}
		}
		if err := s.Do(context.Background(), batch, make([]weir.Decision, together)); err != nil {
			return 0, err
		}
	}
	after, err := size()
	return float64(after-before) / redisKeys, err
}

// storeRow measures calls: one caller on one key, and many on one key and on many.
func (r *report) storeRow(name string, call caller) (row, error) {
	line := row{Name: name, Values: []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN(), math.NaN()}}
	var latencies []time.Duration
	var hot, many []float64
	for round := range r.rounds + 1 {
		_, took, err := drive(call, 1, 1, redisRounds*r.round)
		if err != nil {
			return line, err
		}
		one, _, err := drive(call, redisCallers, 1, redisRounds*r.round)
		if err != nil {
			return line, err
		}
		all, _, err := drive(call, redisCallers, redisKeys, redisRounds*r.round)
		if err != nil {
			return line, err
		}
		if round > 0 {
			latencies, hot, many = append(latencies, took...), append(hot, one), append(many, all)
		}
	}
	slices.Sort(latencies)
	slices.Sort(hot)
	slices.Sort(many)
	p := func(q float64) float64 {
		return float64(latencies[int(q*float64(len(latencies)-1))]) / float64(time.Microsecond)
	}
	copy(line.Values, []float64{p(0.5), p(0.99), hot[len(hot)/2], many[len(many)/2]})
	return line, nil
}
