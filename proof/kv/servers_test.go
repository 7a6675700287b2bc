package kv

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weiretcd"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirmemcached"
	"github.com/weirflow/weir/weirmysql"
	"github.com/weirflow/weir/weirnats"
	"github.com/weirflow/weir/weirsqlite"
)

// a product is a server, and how stores in it are opened.
type product struct {
	name    string
	url     string
	open    func(url string, o weirkv.Options) (*weirkv.Store, func() error, error)
	restart func(t *testing.T) // kills the server, and starts it again
	keeps   bool               // states survive a restart
}

var prefixes atomic.Int64

// opened opens a store with keys of its own, until the test ends.
func (p *product) opened(t *testing.T, o weirkv.Options) *weirkv.Store {
	t.Helper()
	s, end, err := p.open(p.url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return s
}

// prefix is one that no other test uses.
func prefix() string { return fmt.Sprintf("t%d/", prefixes.Add(1)) }

// each runs a test over each product, with a server of its own.
func each(t *testing.T, test func(t *testing.T, p *product)) {
	for name, start := range map[string]func(t *testing.T) *product{"memcached": memcached, "etcd": etcd, "nats": nats, "mariadb": mariadb, "sqlite": sqlite} {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

func memcached(t *testing.T) *product {
	s, err := servers.Memcached(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return &product{"memcached", "memcached://" + s.Addr, openMemcached, func(t *testing.T) {
		s.Kill()
		again, err := servers.Memcached(t.Context(), s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		s.Process = again.Process
	}, false}
}

func etcd(t *testing.T) *product {
	all, err := servers.Etcd(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all[0].Stop() })
	return &product{"etcd", "etcd://" + all[0].Addr, openEtcd, func(t *testing.T) {
		all[0].Kill()
		if err := all[0].Start(); err != nil {
			t.Fatal(err)
		}
	}, true}
}

func mariadb(t *testing.T) *product {
	s := servers.StartMariaDB(t, servers.MariaDBOptions{Persist: true})
	return &product{"mariadb", s.URL(), openMySQL, func(t *testing.T) {
		s.Kill()
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}, true}
}

func openMemcached(url string, o weirkv.Options) (*weirkv.Store, func() error, error) {
	s, err := weirmemcached.Open(url, o)
	if err != nil {
		return nil, nil, err
	}
	return s.Store, s.Close, nil
}

func openEtcd(url string, o weirkv.Options) (*weirkv.Store, func() error, error) {
	s, err := weiretcd.Open(url, o)
	if err != nil {
		return nil, nil, err
	}
	return s.Store, s.Close, nil
}

func openMySQL(url string, o weirkv.Options) (*weirkv.Store, func() error, error) {
	s, err := weirmysql.Open(url, o)
	if err != nil {
		return nil, nil, err
	}
	return s.Store, s.Close, nil
}

// sqlite is a file, which has no server that could be killed: see TestKilledProcesses.
func sqlite(t *testing.T) *product {
	return &product{"sqlite", "sqlite:" + t.TempDir() + "/limits.db", openSQLite, func(*testing.T) {}, true}
}

func openSQLite(url string, o weirkv.Options) (*weirkv.Store, func() error, error) {
	s, err := weirsqlite.Open(url, o)
	if err != nil {
		return nil, nil, err
	}
	return s.Store, s.Close, nil
}

func openNATS(url string, o weirkv.Options) (*weirkv.Store, func() error, error) {
	s, err := weirnats.Open(url, o)
	if err != nil {
		return nil, nil, err
	}
	return s.Store, s.Close, nil
}

func nats(t *testing.T) *product {
	dir := t.TempDir()
	s := natsServer(t, dir, -1)
	port := s.Addr().String()
	return &product{"nats", "nats://" + port + "/limits", openNATS, func(t *testing.T) {
		s.Shutdown()
		s.WaitForShutdown()
		var number int
		if _, err := fmt.Sscanf(port[len("127.0.0.1:"):], "%d", &number); err != nil {
			t.Fatal(err)
		}
		s = natsServer(t, dir, number)
	}, true}
}

// natsServer runs a server in this process until the test ends.
func natsServer(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(servers.Patience) {
		t.Fatal("the NATS server does not start")
	}
	return s
}
