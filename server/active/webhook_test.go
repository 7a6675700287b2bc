package active

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestWebhook: each key has one warning in a window, with bounded retries. What cannot be delivered is
// given up, and never holds a request up.
func TestWebhook(t *testing.T) {
	const signed = "0123456789abcdef0123456789abcdef"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(signed+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan map[string]any, 100)
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls <= 2 { // of one client, which calls one after another
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		text, err := io.ReadAll(r.Body)
		var one map[string]any
		if err != nil || json.Unmarshal(text, &one) != nil || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s, %v", text, err)
		}
		stamp, sum, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Weir-Signature"), "t="), ",v1=")
		h := hmac.New(sha256.New, []byte(signed))
		h.Write([]byte(stamp + "." + string(text)))
		if stamp == "" || sum != hex.EncodeToString(h.Sum(nil)) {
			t.Errorf("the signature is %q", r.Header.Get("Weir-Signature"))
		}
		got <- one
	}))
	defer server.Close()
	p, err := New(t.Context(), parse(t, `
warnings: { webhook: "`+server.URL+`", secret_file: "`+secret+`" }
limits: { monthly: { key: header.x-team, on_missing: deny, warn_at: 80%, fixed_window: { limit: 10, align: month } } }
routes: [{ match: /, limits: [monthly] }]
`), Options{Log: slog.New(slog.DiscardHandler), backoff: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, team := range []string{"red", "blue"} {
		for range 12 {
			p.Engine().Decide(policy.Request{Method: "GET", Path: "/", Header: http.Header{"X-Team": {team}}})
		}
	}
	for _, team := range []string{"red", "blue"} {
		if one := <-got; one["limit"] != "monthly" || one["used"] != 8.0 || one["remaining"] != 2.0 || one["allowed"] != 10.0 || one["key"].([]any)[0] != team {
			t.Errorf("%v", one)
		}
	}
	if n := p.Engine().Counts()[0].Warned; n != 2 {
		t.Errorf("%d warnings", n)
	}

	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not notice that the client has left
		<-r.Context().Done()
	}))
	defer hangs.Close()
	down := newWebhook(slog.New(slog.DiscardHandler), func() string { return hangs.URL }, func() string { return "" }, time.Microsecond)
	for range 3000 { // more than wait
		down.warn(policy.Warning{Limit: "monthly"})
	}
	down.close()
	if down.sent.Load() != 0 || down.dropped.Load() < 3000-webhookQueue-1 {
		t.Errorf("%d sent, %d dropped", down.sent.Load(), down.dropped.Load())
	}
}

// TestWebhookNamesTheEndOfTheWindow: the reset_at of a window that ends on a whole second is that second. It was
// one later, as time had passed between the decision and the call.
func TestWebhookNamesTheEndOfTheWindow(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var one struct {
			ResetAt string `json:"reset_at"`
		}
		if err := json.NewDecoder(r.Body).Decode(&one); err != nil {
			t.Error(err)
		}
		got <- one.ResetAt
	}))
	defer server.Close()
	p, err := New(t.Context(), parse(t, `
warnings: { webhook: "`+server.URL+`" }
limits: { monthly: { warn_at: 50%, fixed_window: { limit: 1, align: month } } }
routes: [{ match: /, limits: [monthly] }]
`), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	now := time.Now().UTC()
	p.Engine().Decide(policy.Request{Method: "GET", Path: "/"})
	end := func(of time.Time) string {
		return time.Date(of.Year(), of.Month()+1, 1, 0, 0, 0, 0, time.UTC).Format(time.RFC3339)
	}
	if at := <-got; at != end(now) && at != end(time.Now().UTC()) { // the month may end meanwhile
		t.Errorf("reset_at is %s, and not %s", at, end(now))
	}
}
