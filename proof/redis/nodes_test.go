package redis

import (
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// TestBeat counts nodes that live, that stop, and that are not heard of any more.
func TestBeat(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	set := func(seconds string) {
		if err := client.Do(t.Context(), client.B().Hset().Key("clock").FieldValue().FieldValue("s", seconds).FieldValue("us", "0").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	set("1700000000")
	s, err := weirrueidis.New(client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	beat := func(id string, ttl time.Duration, want int) {
		t.Helper()
		if n, err := s.Beat(t.Context(), id, ttl); n != want || err != nil {
			t.Errorf("%s for %v: %d nodes, %v; there are %d", id, ttl, n, err, want)
		}
	}
	beat("a", 5*time.Second, 1)
	beat("b", 50*time.Second, 2)
	beat("a", 5*time.Second, 2)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	beat("c", 5*time.Second, 3)
	beat("c", 0, 2)
	set("1700000006")
	beat("b", 50*time.Second, 1)
	if _, err := s.Beat(t.Context(), "", time.Second); err == nil {
		t.Error("a node without an id")
	}
}
