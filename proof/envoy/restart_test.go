package envoy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/weirflow/weir/proof/servers"
)

// busy are callers that ask without an end, each for a key of its own.
type busy struct {
	calls atomic.Int64
	stop  context.CancelFunc
	group sync.WaitGroup
}

// ask has a client ask with some callers until stop. No call may fail.
func (b *busy) ask(t *testing.T, ctx context.Context, client pb.RateLimitServiceClient, callers int) {
	for i := range callers {
		b.group.Go(func() {
			request := &pb.RateLimitRequest{Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{{
				Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint("go", i)}},
			}}}
			for ctx.Err() == nil {
				if _, err := client.ShouldRateLimit(t.Context(), request); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
				b.calls.Add(1)
			}
		})
	}
}

// more waits until some more calls were answered.
func (b *busy) more(t *testing.T, n int64) {
	t.Helper()
	want := b.calls.Load() + n
	servers.Poll(t, "more calls", func() bool { return b.calls.Load() >= want || t.Failed() })
}

// TestReloadAndRestart: clients of Go and Node over mutual TLS get an answer to each call while the
// policy is read again, rules change as a ConfigMap does, and a new process takes over.
func TestReloadAndRestart(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("node is not installed: make needs, or install nodejs")
	}
	if _, err := os.Stat("node_modules/@grpc/grpc-js"); err != nil {
		t.Fatalf("the client is not installed: make needs, or npm ci --ignore-scripts in proof/envoy (%v)", err)
	}
	dir := t.TempDir()
	certificates, err := servers.NewTLS(dir)
	if err != nil {
		t.Fatal(err)
	}
	version := func(i int) {
		t.Helper()
		folder := filepath.Join(dir, fmt.Sprintf("rules/..%d", i))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("domain: d\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: %d } }]\n", 10+i)
		for _, err := range []error{
			os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(text), 0o600),
			os.Symlink(filepath.Base(folder), filepath.Join(dir, "rules/..data_tmp")),
			os.Rename(filepath.Join(dir, "rules/..data_tmp"), filepath.Join(dir, "rules/..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	version(0)
	if err := os.Symlink("..data/rules.yaml", filepath.Join(dir, "rules/rules.yaml")); err != nil {
		t.Fatal(err)
	}
	w := servers.PolicyIn(t, dir, fmt.Sprintf(`
listen:
  admin: 127.0.0.1:0
  rls:
    address: 127.0.0.1:0
    envoy: rules
    tls: { cert: %s, key: %s, client_ca: %s }
`, certificates.ServerCert, certificates.ServerKey, certificates.CAFile)).Start(t, weir)
	address := w.ByFace["rls"][0]

	cmd := exec.CommandContext(t.Context(), node, "client.mjs")
	cmd.Env = append(os.Environ(), "ADDRESS="+strings.Replace(address, "127.0.0.1", "localhost", 1), "CA="+certificates.CAFile, "CERT="+certificates.CertFile, "KEY="+certificates.KeyFile)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	want := `["OK 9/10","OK 7/10","OK 7/10","OVER_LIMIT 0/10","OK 10/10","OK 9/10","refused","refused"]`
	if lines.Text() != want {
		t.Errorf("the client of Node:\n%s\n%s", lines.Text(), want)
	}

	ctx, stop := context.WithCancel(t.Context())
	b := &busy{stop: stop}
	defer stop()
	for range 2 {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(certificates.Config())))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		b.ask(t, ctx, pb.NewRateLimitServiceClient(conn), 4)
	}
	b.more(t, 200)
	for i := 1; i <= 3; i++ {
		if err := w.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		version(i)
		b.more(t, 200)
	}
	metric := "weir_rls_config_loads_total{result=\"error\"} 0"
	if m := w.Metrics(t); !strings.Contains(m, metric) {
		t.Errorf("%s is not in the metrics", metric)
	}
	if err := w.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the old process leaves", func() bool { return strings.Contains(w.Output(), "shutting down") })
	for line := range strings.Lines(w.Output()) {
		var l struct{ Pid int }
		if json.Unmarshal([]byte(line), &l) == nil && l.Pid != 0 {
			t.Cleanup(func() { _ = syscall.Kill(l.Pid, syscall.SIGTERM) })
		}
	}
	b.more(t, 200)
	<-w.Ended() // all clients are at the new process now
	b.more(t, 200)
	stop()
	b.group.Wait()
	in.Close()
	lines.Scan()
	var counts map[string]int
	if err := json.Unmarshal(lines.Bytes(), &counts); err != nil {
		t.Fatalf("%v: %s", err, lines.Text())
	}
	if err := cmd.Wait(); err != nil || counts["OK"]+counts["OVER_LIMIT"] < 100 || len(counts) > 2 {
		t.Errorf("the calls of Node: %v, %v", counts, err)
	}
	for name, config := range map[string]*tls.Config{"no certificate": {RootCAs: certificates.CA}, "an unknown authority": {Certificates: certificates.Config().Certificates}} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d"}); status.Code(err) != codes.Unavailable { // InvalidArgument would be an answer
			t.Errorf("%s: %v", name, err)
		}
	}
}
