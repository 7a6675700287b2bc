package servers_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestNginx(t *testing.T) {
	dir := t.TempDir()
	s, err := servers.Nginx(within(t, 30*time.Second), dir, servers.HTTP(`
	access_log access.log;
	server { listen {{.Addr}}; location / { return 200 "hello from {{.Dir}}\n"; } }`))
	if err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, "http://"+s.Addr); status != 200 || body != "hello from "+dir+"\n" {
		t.Errorf("%d %q", status, body)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error("a second time:", err)
	}
	if log, err := os.ReadFile(s.AccessLog); err != nil || strings.Count(string(log), `"GET / HTTP/1.1" 200`) != 1 {
		t.Errorf("%q, %v", log, err)
	}
	if _, err := http.Get("http://" + s.Addr); err == nil {
		t.Error("it still answers")
	}
}

func TestNginxThatCannotStartSaysWhy(t *testing.T) {
	_, err := servers.Nginx(within(t, 30*time.Second), t.TempDir(), servers.HTTP("lissen {{.Addr}};"))
	if err == nil || !strings.Contains(err.Error(), "ended before it was ready") || !strings.Contains(err.Error(), `unknown directive "lissen"`) {
		t.Error(err)
	}
	_, err = servers.Nginx(within(t, 200*time.Millisecond), t.TempDir(), servers.HTTP("# listens nowhere"))
	if err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Error(err)
	}
}

func TestALackingProgramIsNamedWithItsPackage(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := servers.Nginx(t.Context(), t.TempDir(), "")
	if err == nil || !strings.Contains(err.Error(), "nginx is not installed: apt install nginx") {
		t.Error(err)
	}
}

func TestWeir(t *testing.T) {
	dir := t.TempDir()
	binary, err := servers.BuildWeir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "policy.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
upstreams: { none: { url: "http://127.0.0.1:9" } }
routes: [{ match: /up, upstream: none }]
`)
	w, err := servers.StartWeir(within(t, 30*time.Second), binary, file)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := get(t, "http://"+w.Gateway+"/nowhere"); status != 404 {
		t.Errorf("%d", status)
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	write("routes: 7")
	if _, err := servers.StartWeir(within(t, 30*time.Second), binary, file); err == nil || !strings.Contains(err.Error(), "policy.yaml:1:9: error") {
		t.Error(err)
	}
}
