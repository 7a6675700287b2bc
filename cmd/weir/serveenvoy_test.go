package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/server"
)

// TestServeEnvoy: the environment of envoyproxy/ratelimit is a policy. Its variables without a meaning
// are logged, those of other programs are not, and no password is.
func TestServeEnvoy(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "ratelimit", "config")
	rules := "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 1 } }]\n"
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "a.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	environ := []string{"PATH=/bin", "SHELL", "HOST=127.0.0.1", "PORT=0", "GRPC_HOST=127.0.0.1", "GRPC_PORT=0", "DEBUG_PORT=0", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "NEAR_LIMIT_RATIO=1",
		"RUNTIME_ROOT=" + filepath.Dir(filepath.Dir(folder)), "RUNTIME_SUBDIRECTORY=ratelimit", "TRACING_ENABLED=true"}
	if with := policyOfEnvironment(logger, append([]string{"REDIS_URL=h:1", "REDIS_AUTH=geheim"}, environ...)); !strings.Contains(with, "geheim@") || strings.Contains(log.String(), "geheim") {
		t.Errorf("%s\n%s", with, &log)
	}
	log.Reset()
	policy := policyOfEnvironment(logger, environ)
	if text := log.String(); strings.Count(text, "has no meaning") != 2 || !strings.Contains(text, "NEAR_LIMIT_RATIO") || !strings.Contains(text, "TRACING_ENABLED") {
		t.Errorf("%s", text)
	} else if !strings.Contains(text, "admin=127.0.0.1:0") {
		t.Errorf("the log does not say where metrics are: %s", text)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended, ready := make(chan error, 1), make(chan server.Addresses, 1)
	var out bytes.Buffer
	go func() {
		ended <- server.Serve(ctx, server.Options{Policy: policy, Log: slog.New(slog.DiscardHandler), Out: &out, Ready: func(a server.Addresses) { ready <- a }})
	}()
	var address, admin string
	select {
	case a := <-ready:
		address, admin = a.ByFace["rls"][1], a.Admin
	case err := <-ended:
		t.Fatal(err)
	}
	for i, want := range []string{"200 OK", "429 Too Many Requests"} {
		r, err := http.Post("http://"+address+"/json", "application/json", strings.NewReader(`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"1"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		if r.Body.Close(); r.Status != want || !strings.Contains(string(body), "RateLimit-Limit") {
			t.Errorf("call %d: %s %s", i, r.Status, body)
		}
	}
	r, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	if r.Body.Close(); !strings.HasPrefix(admin, "127.0.0.1:") || !strings.Contains(string(body), `weir_rls_requests_total{code="over_limit"} 1`) {
		t.Errorf("%s: %s %.300s", admin, r.Status, body)
	}
	stop()
	if err := <-ended; err != nil || out.Len() > 0 {
		t.Error(err, out.String())
	}
	if code, _, errs := weir(t, "", "serve", "--envoy", "policy.yaml"); code != 2 || !strings.Contains(errs, "name one") {
		t.Error(code, fmt.Sprint(errs))
	}
}
