// Package service has real clients call weir serve over HTTP: the Go client as a weir.Store beside the
// reference model, and a TypeScript client that is generated from the OpenAPI document.
package service

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server"
	"github.com/weirflow/weir/weirclient"
	"github.com/weirflow/weir/weirtest"
)

const policy = `listen: { admin: "127.0.0.1:0", http: { address: "127.0.0.1:0", client_limits: {} } }
limits: { per-user: { key: header.user, token_bucket: { rate: 1/h, burst: 5 } } }
`

// policyOfChild names the policy of a process that serves it on a clock of the test's.
const policyOfChild = "WEIR_TEST_POLICY"

// binary is the path of the weir command, which TestMain sets.
var binary string

func TestMain(m *testing.M) {
	if path := os.Getenv(policyOfChild); path != "" {
		if err := serveOnAClock(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(servers.Main(m, &binary))
}

// serveOnAClock does as weir serve, on a clock that standard input sets: each line is a reading, and is
// answered by a line. It ends with its input.
func serveOnAClock(path string) error {
	var now atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ready := func(a server.Addresses) { fmt.Fprintln(os.Stdout, a.ByFace["http"][0]) }
	go func() {
		defer stop()
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			reading, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				return
			}
			now.Store(reading)
			fmt.Fprintln(os.Stdout, "set")
		}
	}()
	return server.Serve(ctx, server.Options{Path: path, Log: slog.New(slog.DiscardHandler), Ready: ready, Clock: now.Load})
}

// write writes a policy, and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve starts weir serve, and returns the address of its limit service.
func serve(t *testing.T, text string) (address string) {
	t.Helper()
	w, err := servers.StartWeir(t.Context(), binary, write(t, text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop() })
	return w.ByFace["http"][0]
}

// client returns a client of an address.
func client(t *testing.T, address string) *weirclient.Client {
	t.Helper()
	c, err := weirclient.New("http://"+address, weirclient.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// clocked is a weir.Store of a server, whose clock is set before each call.
type clocked struct {
	weir.Store
	name  string // of the limit: each walk has its own
	clock *weirtest.Clock
	set   func(int64)
}

func (c *clocked) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	c.set(c.clock.Now())
	for i := range batch {
		batch[i].Name = c.name
	}
	return c.Store.Do(ctx, batch, out)
}

// TestStoreConforms: a process that serves a policy, called over HTTP, does as the reference model.
func TestStoreConforms(t *testing.T) {
	raced.Skip(t)
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), policyOfChild+"="+write(t, strings.Replace(policy, `admin: "127.0.0.1:0", `, "", 1)))
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
	}()
	lines := bufio.NewReader(out)
	address, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	store := client(t, strings.TrimSpace(address)).Store()
	set := func(reading int64) {
		fmt.Fprintln(in, reading)
		if _, err := lines.ReadString('\n'); err != nil {
			panic(err)
		}
	}
	walk := 0
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 5, Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		walk++
		return weirtest.Stored(&clocked{store, fmt.Sprint("walk", walk), c, set}, l), nil
	}})
}

// TestOneStore: programs at two servers share the limits that they bring, if those are in one Redis.
func TestOneStore(t *testing.T) {
	redis := servers.StartRedis(t, servers.RedisOptions{})
	text := strings.Replace(policy, "client_limits: {}", "client_limits: { store: redis }", 1) + "stores: { redis: { url: \"redis://" + redis.Addr + "\", deadline: 10s } }\n"
	var shared [2]*weir.Shared
	for i := range shared {
		address := serve(t, text)
		var err error
		if shared[i], err = weir.NewShared(weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}, client(t, address).Store(), weir.Named("per-user")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if d, err := shared[i%2].Take(t.Context(), "ann", 1); err != nil || !d.Allowed || d.Remaining != int64(9-i) || d.Source != weir.SourceStore {
			t.Fatalf("%d: %+v %v", i, d, err)
		}
	}
	if d, err := shared[0].Take(t.Context(), "ann", 1); err != nil || d.Allowed {
		t.Errorf("%+v %v", d, err)
	}
	r, ok, err := shared[0].Reserve(t.Context(), "bob", 8, 0)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := r.Settle(t.Context(), 3); err != nil {
		t.Error(err)
	}
	if d, err := shared[1].Peek(t.Context(), "bob", 1); err != nil || d.Remaining != 7 {
		t.Errorf("%+v %v", d, err)
	}
}

// node runs a program of Node, and returns what it prints.
func node(t *testing.T, dir, env string, words ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", words...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestOpenAPI: a linter accepts the document that the server serves. From it, a client is generated for
// TypeScript, which type-checks, and runs.
func TestOpenAPI(t *testing.T) {
	address := serve(t, policy)
	resp, err := http.Get("http://" + address + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	document, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"openapi.json": string(document), "broken.json": strings.Replace(string(document), `"operationId": "peek"`, `"operationId": "take"`, 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"client.ts", "node.d.ts", "tsconfig.json", "package.json", "node_modules"} {
		path, _ := filepath.Abs(name)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make needs", err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	here, _ := os.Getwd()
	if out, err := node(t, here, "", "lint.mjs", filepath.Join(dir, "openapi.json")); err != nil {
		t.Errorf("the linter: %v\n%s", err, out)
	}
	if out, err := node(t, here, "", "lint.mjs", filepath.Join(dir, "broken.json")); err == nil || !strings.Contains(out, "operation-operationId-unique") {
		t.Errorf("the linter finds nothing wrong with a broken document: %v\n%s", err, out)
	}
	if out, err := node(t, dir, "", "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "api.d.ts"); err != nil {
		t.Fatalf("the generator: %v\n%s", err, out)
	}
	if out, err := node(t, dir, "", "--preserve-symlinks", "--preserve-symlinks-main", "node_modules/typescript/bin/tsc", "-p", ".", "--preserveSymlinks", "--outDir", "out"); err != nil {
		t.Fatalf("the compiler: %v\n%s", err, out)
	}
	out, err := node(t, dir, "ADDRESS="+address, "out/client.js")
	if err != nil {
		t.Fatalf("the client: %v\n%s", err, out)
	}
	var got any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const want = `{"again":404,"batch":[200,404],"by":"limit","charged":3,"settled":true,"took":[[200,true,3],[200,true,1],[429,false,1]],"used":1}`
	if text, _ := json.Marshal(got); string(text) != want {
		t.Errorf("%s\nand not\n%s", text, want)
	}
}
