package resp

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirflow/weir/proof/servers"
)

// TestEnter: clients of Redis in RESP2 and RESP3 never hold more places than a limit has, and all of them are free in
// the end.
func TestEnter(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	const text = "listen: { admin: \"127.0.0.1:0\", resp: \"127.0.0.1:0\" }\nlimits: { uploads: { concurrency: { limit: 3 } } }\nroutes: [{ match: POST /upload, limits: [uploads] }]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := servers.StartWeir(t.Context(), path, file)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop() //nolint:errcheck // the test is over
	var clients []*redis.Client
	for protocol := 2; protocol <= 3; protocol++ {
		c := redis.NewClient(&redis.Options{Addr: w.ByFace["resp"][0], Protocol: protocol, MaxRetries: -1, ReadTimeout: servers.Patience})
		defer c.Close()
		clients = append(clients, c)
	}
	enter := func(c *redis.Client) (place string) {
		got := c.Do(t.Context(), "WEIR.ENTER", "/upload", "METHOD", "POST", "CLIENT", "192.0.2.1")
		fields := map[string]any{}
		if all, err := got.Slice(); err == nil { // RESP2
			for i := 0; i+1 < len(all); i += 2 {
				fields[all[i].(string)] = all[i+1]
			}
		} else if all, ok := got.Val().(map[any]any); ok {
			for name, value := range all {
				fields[name.(string)] = value
			}
		} else {
			t.Error(got)
			return ""
		}
		place, _ = fields["place"].(string)
		if admitted := fields["allowed"] == int64(1); admitted != (place != "") || !admitted && fields["status"] != int64(429) {
			t.Errorf("%v", fields)
		}
		return place
	}
	var held, most, admitted atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c := clients[i%2]
			for range 200 {
				place := enter(c)
				if place == "" {
					continue
				}
				n := held.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				admitted.Add(1)
				held.Add(-1)
				if err := c.Do(t.Context(), "WEIR.LEAVE", place, "ignored").Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 || admitted.Load() == 0 {
		t.Errorf("%d places were held at once, and %d requests admitted", most.Load(), admitted.Load())
	}
	for i := range 4 {
		if place := enter(clients[i%2]); (place != "") != (i < 3) {
			t.Errorf("of 3 places, the %d. is %q", i+1, place)
		}
	}
}
