package server

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// everyService is a policy with every face. The bound for bodies is longer than the grace of the test.
const everyService = `
listen:
  gateway: "127.0.0.1:0"
  bounds: { header_timeout: 1s, body_timeout: 1h }
  admin: "127.0.0.1:0"
  http: "127.0.0.1:0"
  resp: "127.0.0.1:0"
  rls: { address: "127.0.0.1:0", http: "127.0.0.1:0" }
trusted_proxies: [127.0.0.1]
limits:
  per-client: { key: client.ip, token_bucket: { rate: 1/h, burst: 5 } }
upstreams: { shop: { url: "http://127.0.0.1:9" } }
routes: [{ match: /, limits: [per-client], upstream: shop }]
`

// TestHalfOpenClientsLeaveTheGrace: clients of every service that stop in the middle of a handshake, a
// header, a body or a response do not hold up a shutdown. The case that was found is a body of /json,
// which took the whole grace; the server then also said that an update had not ended, and left the
// policy open.
func TestHalfOpenClientsLeaveTheGrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(everyService), 0o600); err != nil {
		t.Fatal(err)
	}
	const grace = 10 * time.Minute
	r := serve(t, Options{Path: path, Watch: time.Hour, Grace: grace})
	body := func(request string) string {
		return request + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 100\r\n\r\n{"
	}
	const preface, settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	// :method POST, :scheme http, :path /grpc.health.v1.Health/Check, content-type application/grpc
	call := "\x83\x86\x44\x1c/grpc.health.v1.Health/Check\x5f\x10application/grpc"
	call = fmt.Sprintf("\x00\x00%c\x01\x04\x00\x00\x00\x01%s", len(call), call)
	ping := strings.Repeat("PING "+strings.Repeat("x", 1000)+"\r\n", 20000)
	get := func(path string) string {
		return strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 20000)
	}
	var half []net.Conn
	var sent sync.WaitGroup
	for address, texts := range map[string][]string{
		r.Gateway:           {"", "GET / HT", body("POST /")},
		r.Admin:             {"", "GET /metr", body("POST /v1/reload"), body("POST /v1/ban"), body("GET /healthz"), body("GET /nothing"), get("/metrics")},
		r.ByFace["http"][0]: {"", "GET /v1", body("POST /v1/take"), body("GET /healthz"), body("GET /auth"), body("POST /auth/envoy/login"), body("GET /nothing"), get("/openapi.json")},
		r.ByFace["rls"][0]:  {"", preface[:5], preface, preface + settings, preface + settings + call},
		r.ByFace["rls"][1]:  {"", "POST /js", body("POST /json"), body("GET /rlconfig"), body("GET /healthcheck"), get("/rlconfig")},
		r.ByFace["resp"][0]: {"", "*2\r\n$4\r\nPI", ping},
	} {
		for _, text := range texts {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			half = append(half, c)
			sent.Go(func() {
				// a flood ends where the server reads no more, as nobody reads what it has written
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = io.WriteString(c, text)
			})
		}
	}
	sent.Wait()
	began := time.Now()
	r.stop()
	select {
	case err := <-r.ended:
		if took := time.Since(began); err != nil || took > grace/4 {
			t.Errorf("%v after %v", err, took)
		}
		t.Logf("%d clients, and the shutdown took %v", len(half), time.Since(began))
	case <-time.After(grace / 4):
		t.Fatal("the shutdown waits for clients that have stopped")
	}
	if log := r.log.String(); strings.Contains(log, "has not ended") || strings.Contains(log, `"level":"ERROR"`) {
		t.Error(log)
	}
}
