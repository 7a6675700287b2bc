// Package resp has real Redis clients speak to weir serve.
package resp

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirflow/weir/proof/servers"
)

var connections = flag.Int("connections", 300, "how many clients TestManyConnections and TestMemoryOfConnections have")

const policy = `listen: { admin: "127.0.0.1:0", resp: "127.0.0.1:0" }
limits: { api: { key: header.user, token_bucket: { rate: 1/h, burst: 10 } } }
`

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "resp")
	if err != nil {
		return "", err
	}
	return servers.BuildWeir(context.Background(), dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// serve starts weir serve, and returns the address of its Redis protocol.
func serve(t *testing.T) (w *servers.Weir, address string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	if w, err = servers.StartWeir(t.Context(), path, file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop() })
	return w, w.ByFace["resp"][0]
}

// run runs a program, and returns what it prints.
func run(t *testing.T, env string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
	return string(out)
}

// TestRedisTools: redis-cli in RESP2 and RESP3, and redis-benchmark in and without pipelines.
func TestRedisTools(t *testing.T) {
	_, address := serve(t)
	_, port, _ := net.SplitHostPort(address)
	for _, version := range []string{"-2", "-3"} {
		if got := run(t, "", "redis-cli", version, "-p", port, "CL.THROTTLE", "cli"+version, "15", "30", "60"); got != "0\n16\n15\n-1\n2\n" {
			t.Errorf("redis-cli %s: %q", version, got)
		}
	}
	for _, pipeline := range []string{"1", "16"} {
		got := run(t, "", "redis-benchmark", "-p", port, "-n", "5000", "-c", "20", "-P", pipeline, "--csv", "CL.THROTTLE", "bench", "1000000", "1", "1")
		if !strings.Contains(got, "CL.THROTTLE") {
			t.Errorf("redis-benchmark: %s", got)
		}
	}
	if got := run(t, "", "redis-cli", "-p", port, "CL.THROTTLE", "bench", "1000000", "1", "1", "0"); !strings.HasPrefix(got, "0\n1000001\n9") {
		t.Errorf("after 10000 calls: %q", got)
	}
}

// TestGoClients: go-redis in both protocols and rueidis, pipelines included.
func TestGoClients(t *testing.T) {
	_, address := serve(t)
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol})
		defer c.Close()
		key := fmt.Sprint("go", protocol)
		if got, err := c.Do(t.Context(), "CL.THROTTLE", key, 4, 1, 100).Int64Slice(); err != nil || fmt.Sprint(got) != "[0 5 4 -1 100]" {
			t.Errorf("go-redis, RESP%d: %v %v", protocol, got, err)
		}
		limited := 0
		all, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range 10 {
				p.Do(t.Context(), "CL.THROTTLE", key, 4, 1, 100)
			}
			return nil
		})
		for _, one := range all {
			if v, _ := one.(*redis.Cmd).Int64Slice(); len(v) == 5 && v[0] == 1 {
				limited++
			}
		}
		if err != nil || limited != 6 {
			t.Errorf("%d of 10 limited, want 6: %v", limited, err)
		}
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Do(t.Context(), c.B().Arbitrary("CL.THROTTLE").Keys("rueidis").Args("4", "1", "100").Build()).AsIntSlice(); err != nil || fmt.Sprint(got) != "[0 5 4 -1 100]" {
		t.Errorf("rueidis: %v %v", got, err)
	}
	if got, err := c.Do(t.Context(), c.B().Arbitrary("WEIR.TAKE").Args("api", "1", "alice").Build()).ToMap(); err != nil || len(got) != 7 {
		t.Errorf("rueidis: %v %v", got, err)
	}
}

// TestNodeClients: ioredis, and node-redis in both protocols.
func TestNodeClients(t *testing.T) {
	if _, err := os.Stat("node_modules/ioredis"); err != nil {
		t.Fatalf("the clients are not installed: make needs, or npm ci --ignore-scripts in proof/resp (%v)", err)
	}
	_, address := serve(t)
	var got map[string]any
	if err := json.Unmarshal([]byte(run(t, "ADDRESS="+address, "node", "clients.mjs")), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ioredis": "[[0 5 4 -1 100] PONG]", "ioredisPipeline": "[0 0 0 0 1 1]", "ioredisError": `Cell error: Couldn't parse as integer: "x"`,
		"redis2": "[[0 5 4 -1 100] PONG]", "redis3": "[[0 5 4 -1 100] PONG]", "take2": "1", "take3": "1",
	} {
		if fmt.Sprint(got[name]) != want {
			t.Errorf("%s: %v, want %s", name, got[name], want)
		}
	}
}

// TestManyConnections: clients that send nothing, half a command, or read nothing take nothing from one
// that does.
func TestManyConnections(t *testing.T) {
	_, address := serve(t)
	flood := []byte(strings.Repeat("*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nf\r\n$1\r\n9\r\n$1\r\n1\r\n$1\r\n1\r\n", 500))
	for i := range *connections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		switch {
		case i%3 == 1:
			_, _ = c.Write([]byte("*5\r\n$11\r\nCL.THR"))
		case i%50 == 2: // it never reads its replies
			go func() {
				for {
					if _, err := c.Write(flood); err != nil {
						return
					}
				}
			}()
		}
	}
	c := redis.NewClient(&redis.Options{Addr: address})
	defer c.Close()
	for i := range 200 {
		if err := c.Do(t.Context(), "CL.THROTTLE", fmt.Sprint("k", i), 1, 1, 1).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// mostPerConnection is how many bytes of memory an idle connection may take.
const mostPerConnection = 20 << 10

// TestMemoryOfConnections: idle clients, which have sent some commands, take little memory each.
func TestMemoryOfConnections(t *testing.T) {
	w, address := serve(t)
	n := max(*connections, 2000) // with fewer, the process's own memory would tell more
	before := w.Resident(t)
	ask := []byte(strings.Repeat("CL.THROTTLE idle 15 30 60\r\n", 16))
	reply := make([]byte, 4096)
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(ask); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(reply); err != nil {
			t.Fatal(err)
		}
	}
	each := (w.Resident(t) - before) / n
	t.Logf("%d idle connections, %d bytes each", n, each)
	if each > mostPerConnection {
		t.Errorf("an idle connection takes %d bytes, more than %d", each, mostPerConnection)
	}
}
