package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Caddy starts Caddy as a reverse proxy to an upstream, HOST:PORT, without TLS, admin address and
// access log. dir must exist; the process keeps all its files there.
func Caddy(ctx context.Context, dir, upstream string) (*Server, error) {
	return CaddyWith(ctx, dir, "reverse_proxy "+upstream)
}

// CaddyWith is Caddy with the directives of its only site.
func CaddyWith(ctx context.Context, dir, site string) (*Server, error) {
	path, err := Program("caddy", "caddy")
	if err != nil {
		return nil, err
	}
	return runCaddy(ctx, path, dir, "", site)
}

// WeirCaddy is CaddyWith for the binary of BuildCaddy, with global options.
func WeirCaddy(ctx context.Context, binary, dir, options, site string) (*Server, error) {
	return runCaddy(ctx, binary, dir, options, site)
}

func runCaddy(ctx context.Context, path, dir, options, site string) (*Server, error) {
	free, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	addr := free.Host
	file := filepath.Join(dir, "Caddyfile")
	conf := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n%s\n}\nhttp://%s {\n%s\n}\n", options, addr, site)
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "run", "--config", file, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
	p, err := start(syscall.SIGTERM, cmd)
	if err != nil {
		free.Release()
		return nil, err
	}
	free.releaseAfter(p)
	ready := func(context.Context) error {
		if !strings.Contains(p.Output(), "serving initial configuration") { // its apps start in any order, and HTTP may be the first
			return errors.New("the log of Caddy does not say yet that it serves")
		}
		return dial(addr)
	}
	if err := p.until(ctx, ready); err != nil {
		return nil, err
	}
	return &Server{Process: p, Addr: addr}, nil
}
