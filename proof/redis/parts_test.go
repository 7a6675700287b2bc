package redis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// start runs a server until the test ends.
func start(t *testing.T, o servers.RedisOptions) *servers.RedisServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := servers.Redis(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect opens a client until the test ends.
func connect(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// share opens a limit in a store of its own.
func share(t *testing.T, client rueidis.Client, l weir.Limit, name string, o weirredis.Options) *weir.Shared {
	t.Helper()
	store, err := weirrueidis.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s, err := weir.NewShared(l, store, weir.Named(name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
