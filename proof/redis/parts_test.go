package redis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/proof/servers"
)

// patience is how long a test waits for something that must happen.
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
