package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestChangesBesideTheRunLoop: the API changes the policy in its own goroutines, while the run loop
// checks the certificates and reopens the access log. It is for the race detector: both use the
// state of the gateway's listeners.
func TestChangesBesideTheRunLoop(t *testing.T) {
	up := httptest.NewServer(http.NotFoundHandler())
	defer up.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	certificate(t, dir, "a", time.Hour)
	certificate(t, dir, "b", time.Hour)
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(name string, log int) string {
		text := strings.ReplaceAll(strings.ReplaceAll(secured, "URL", up.URL), "a.crt, key: a.key", name+".crt, key: "+name+".key")
		return text + fmt.Sprintf("access_log: access%d.log\nadmin: { token_file: token }\n", log)
	}
	write(t, path, with("a", 0))
	reopen := make(chan struct{})
	r := serve(t, Options{Path: path, Watch: time.Millisecond, Reopen: reopen})
	a := api{t: t, url: "http://" + r.Admin, token: token}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			if got := a.ask("PUT", "/v1/policy", with([]string{"a", "b"}[i%2], i%2), "If-Match", "*", "Content-Type", "application/yaml"); got.Status != 200 {
				t.Errorf("%+v", got)
			}
		}
	}()
	for {
		select {
		case reopen <- struct{}{}:
		case <-done:
			r.end(t)
			return
		}
	}
}
