package redis

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/proof/servers"
)

// patience is how long a test waits for something that must happen.
const patience = servers.Patience

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
