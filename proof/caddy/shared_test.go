package caddy_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// Two instances over one Redis share one count, exactly, whether the limit is written in the Caddyfile,
// in a policy file, or as a zone of rate_limit. Without Redis an instance decides by itself, and with it
// again they share.
func TestRedis(t *testing.T) {
	redis := servers.StartRedis(t, servers.RedisOptions{Persist: true})
	const limit, requests = 500, 2000
	// a deadline that no busy machine misses: a missed one would be decided without the store
	store := fmt.Sprintf("weir {\nstore shared %s {\ndeadline 2s\n}\n}", redis.URL())
	file := filepath.Join(t.TempDir(), "policy.yaml")
	policy := fmt.Sprintf("stores:\n  shared: { url: %q, deadline: 2s }\nlimits:\n  mine: { key: client.ip, fixed_window: { limit: %d, window: 9000h }, store: shared }\nroutes:\n  - { match: /, limits: [mine] }\n", redis.URL(), limit)
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	zone := fmt.Sprintf("http://OTHER {\nrate_limit {\ndistributed {\nread_interval 5s\nwrite_interval 5s\n}\nzone z {\nkey {remote_host}\nwindow 24h\nevents %d\n}\n}\nrespond ok\n}\n", 20)
	inline := "http://SITE {\nweir {\n" + hourly("mine", limit, "key {client_ip}", "store shared") + "}\nrespond ok\n}\n"
	one := start(t, store, inline+zone)
	two := start(t, store, "http://SITE {\nweir {\npolicy "+file+"\n}\nrespond ok\n}\n"+zone)
	if !strings.Contains(one.Output(), "distributed.read_interval") {
		t.Errorf("no warning of a setting without a meaning here:\n%s", one.Output())
	}

	var done sync.WaitGroup
	both := make([]map[int]int64, 2)
	for i, s := range []*server{one, two} {
		done.Go(func() {
			both[i] = s.many(&http.Transport{MaxIdleConnsPerHost: callers}, requests/2, func() { <-time.After(time.Millisecond) })
		})
	}
	done.Wait()
	if n := both[0][200] + both[1][200]; n != limit || n+both[0][429]+both[1][429] != requests {
		t.Errorf("%v and %v: want %d times 200 together", both[0], both[1], limit)
	}
	admitted := 0
	for i := range 40 {
		s := []*server{one, two}[i%2]
		if status, _ := s.send("GET", s.other, "/", ""); status == 200 {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("the zone admitted %d, want 20", admitted)
	}

	one.mustLoad(strings.Replace(store, "deadline 2s", "deadline 20ms", 1), inline+zone)
	one.want("/", nil, 429) // another connection to the same counts
	redis.Kill()
	for range 100 { // it decides by itself
		if status := one.get("/"); status != 200 && status != 429 {
			t.Fatalf("without Redis: %d", status)
		}
	}
	if err := redis.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the counts in Redis are used again", func() bool { return one.get("/") == 429 })
}
