// Package caddy_test runs a real Caddy with the module weircaddy.
package caddy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

var raced = flag.Bool("caddy.race", false, "build Caddy with the race detector")

// binary is Caddy with weircaddy, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "weircaddy")
	if err != nil {
		return "", err
	}
	var flags []string
	if *raced {
		flags = append(flags, "-race")
	}
	path, err := servers.BuildCaddy(context.Background(), dir, flags...)
	if err != nil {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return path, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// A server is a running Caddy. In its Caddyfile, SITE and OTHER are free addresses.
type server struct {
	*servers.Process
	t                  testing.TB
	dir                string
	site, other, admin string // HOST:PORT
}

// command is a command of Caddy that keeps its files in a directory.
func command(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
	return cmd
}

// start runs Caddy with a Caddyfile, to whose global options are added.
func start(t testing.TB, options, sites string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir()}
	for _, to := range []*string{&s.site, &s.other, &s.admin} {
		free, err := servers.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(free.Release)
		*to = free.Host
	}
	s.write(options, sites)
	run := command(t, s.dir, "run", "--config", "Caddyfile") // builds it first
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	s.Process, err = servers.Start(ctx, run, func(output string) bool {
		return strings.Contains(output, "serving initial configuration")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if strings.Contains(s.Output(), "DATA RACE") || strings.Contains(s.Output(), "panic") {
			t.Error(s.Output())
		}
	})
	return s
}

// text is the Caddyfile.
func (s *server) text(options, sites string) string {
	text := fmt.Sprintf("{\n\tadmin ADMIN\n\tauto_https off\n%s\n}\n%s\n", options, sites)
	return strings.NewReplacer("SITE", s.site, "OTHER", s.other, "ADMIN", s.admin).Replace(text)
}

func (s *server) write(options, sites string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "Caddyfile"), []byte(s.text(options, sites)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// load replaces the configuration, and returns the response.
func (s *server) load(options, sites string) (status int, body string) {
	s.t.Helper()
	return s.send("POST", s.admin, "/load", s.text(options, sites), "Content-Type", "text/caddyfile")
}

// mustLoad is load, which must succeed.
func (s *server) mustLoad(options, sites string) {
	s.t.Helper()
	if status, body := s.load(options, sites); status != 200 {
		s.t.Fatalf("load: %d %s", status, body)
	}
}

// send sends a request to an address.
func (s *server) send(method, address, path, body string, header ...string) (status int, text string) {
	s.t.Helper()
	response, text := s.do(method, address, path, body, header...)
	return response.StatusCode, text
}

func (s *server) do(method, address, path, body string, header ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Add(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	for tries := 1; err != nil && body == "" && tries < 10; tries++ {
		// after a reload, Caddy may close a connection that it has accepted, before it reads a request
		response, err = http.DefaultClient.Do(r)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response, string(data)
}

// get returns the status of a GET to the site.
func (s *server) get(path string, header ...string) int {
	s.t.Helper()
	status, _ := s.send("GET", s.site, path, "", header...)
	return status
}

// want checks the statuses of requests for a path, one after another.
func (s *server) want(path string, header []string, want ...int) {
	s.t.Helper()
	for i, status := range want {
		if got := s.get(path, header...); got != status {
			s.t.Fatalf("request %d for %s with %q: %d, want %d", i+1, path, header, got, status)
		}
	}
}
