package server

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nowhere is an address without a listener.
func nowhere(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const storesPage = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
stores:
  shared: { url: "redis://weir:s3cret@ADDR", on_failure: FAILURE, nodes: 2, deadline: 5ms }
limits:
  per-ip: { key: client.ip, token_bucket: { rate: 6/d, burst: 6 }, store: shared }
  exempt: { key: client.ip, token_bucket: { rate: 6/d, burst: 6 }, store: shared, on_failure: allow }
  shadow: { token_bucket: { rate: 1/d, burst: 1 }, store: shared, shadow: true }
upstreams: { up: { url: "URL" } }
routes:
  - { match: /exempt, upstream: up, limits: [exempt] }
  - { match: /, upstream: up, limits: [per-ip, shadow] }
`

// TestStoreIsUnreachable: the server starts without its store, logs it, is ready, and decides by
// on_failure.
func TestStoreIsUnreachable(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "up") }))
	defer up.Close()
	addr := nowhere(t)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	policy := func(failure string) string {
		return strings.NewReplacer("ADDR", addr, "FAILURE", failure, "URL", up.URL).Replace(storesPage)
	}
	write(t, path, policy("deny"))
	r := serve(t, Options{Path: path, Watch: time.Hour, Grace: time.Millisecond})
	if log := r.log.String(); !strings.Contains(log, "store cannot be reached") || !strings.Contains(log, addr) || strings.Contains(log, "s3cret") {
		t.Errorf("%s", log)
	}
	if status, _ := fetch(t, "http://"+r.Admin+"/readyz"); status != 200 {
		t.Errorf("it is not ready: %d", status)
	}
	for path, want := range map[string]int{"/": 429, "/exempt": 200} {
		for range 4 {
			if status, _ := fetch(t, "http://"+r.Gateway+path); status != want {
				t.Errorf("%s: %d, want %d", path, status, want)
			}
		}
	}
	metrics := func() string {
		_, text := fetch(t, "http://"+r.Admin+"/metrics")
		return text
	}
	for _, want := range []string{
		`weir_store_up{store="shared"} 0`,
		`weir_store_nodes{store="shared"} 2`,
		`weir_limit_decisions_total{limit="per-ip",source="deny"} 4`,
		`weir_limit_decisions_total{limit="exempt",source="allow"} 4`,
		`weir_limit_requests_total{limit="per-ip",outcome="limited"} 4`,
	} {
		if text := metrics(); !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(metrics(), `weir_store_transitions_total{store="shared",to="open"} 0`) { // it may have tried again, and opened again
		t.Error("the breaker has not opened")
	}
	until(t, "telling that the store is out", func() bool { return strings.Contains(r.log.String(), "store unavailable") })

	write(t, path, policy("local"))
	r.reload <- struct{}{}
	until(t, "reloading", func() bool { return strings.Contains(r.log.String(), "policy reloaded") })
	fetch(t, "http://"+r.Gateway+"/")
	if text := metrics(); !strings.Contains(text, `weir_limit_decisions_total{limit="per-ip",source="share"} 1`+"\n") {
		t.Errorf("this node's share did not decide:\n%s", text)
	}
	write(t, path, strings.Replace(policy("local"), "redis://", "rediss://", 1)+"# now over TLS\n")
	r.reload <- struct{}{}
	until(t, "reloading again", func() bool { return strings.Count(r.log.String(), "policy reloaded") == 2 })
	r.stop()
	if err := <-r.ended; err != nil || strings.Contains(r.log.String(), "s3cret") {
		t.Errorf("%v\n%s", err, r.log.String())
	}
}

// TestStoreThatCannotBeOpened: a missing file is an error at the start, and a reload with one
// changes nothing.
func TestStoreThatCannotBeOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, `{listen: {gateway: "127.0.0.1:0"}, stores: {one: {url: "redis://127.0.0.1:1"}, two: {url: "redis://u@h?password_file=/not/there"}}}`)
	err := Serve(t.Context(), Options{Path: path, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "p.yaml: stores.two: ") || !strings.Contains(err.Error(), "/not/there") {
		t.Errorf("%v", err)
	}
}

// TestLeasesAreCounted: a store with leases has metrics of what they cost and save; one without has
// none.
func TestLeasesAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, strings.NewReplacer("ADDR", nowhere(t)).Replace(`
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
stores:
  shared: { url: "redis://ADDR" }
  leased: { url: "redis://ADDR", on_failure: deny, lease: true }
limits:
  hot: { token_bucket: { rate: 6/d, burst: 6 }, store: leased }
upstreams: { up: { url: "http://ADDR" } }
routes: [{ match: /, upstream: up, limits: [hot] }]
`))
	r := serve(t, Options{Path: path, Watch: time.Hour, Grace: time.Millisecond})
	if status, _ := fetch(t, "http://"+r.Gateway+"/"); status != 429 {
		t.Errorf("status %d", status)
	}
	_, text := fetch(t, "http://"+r.Admin+"/metrics")
	for _, want := range []string{
		`weir_store_lease_keys{store="leased"} 1`,
		`weir_store_lease_round_trips_total{store="leased"} 1`,
		`weir_store_lease_tokens_total{event="taken",store="leased"} 0`,
		`weir_store_lease_tokens_total{event="returned",store="leased"} 0`,
		`weir_store_lease_tokens_total{event="lost",store="leased"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `lease_round_trips_total{store="shared"}`) {
		t.Error("a store without leases has some")
	}
}
