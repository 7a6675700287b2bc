package servers

import (
	"context"
	"testing"
	"time"
)

// StartRedis runs a redis-server until the test ends.
func StartRedis(t testing.TB, o RedisOptions) *RedisServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := Redis(ctx, o)
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
