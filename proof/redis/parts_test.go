package redis

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// patience is how long a test waits for something that must happen.
const patience = 30 * time.Second

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
