package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	free, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	addr := free.Host
	file := filepath.Join(dir, "Caddyfile")
	conf := fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://%s {\n%s\n}\n", addr, site)
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
	if err := p.until(ctx, func(context.Context) error { return dial(addr) }); err != nil {
		return nil, err
	}
	return &Server{Process: p, Addr: addr}, nil
}
