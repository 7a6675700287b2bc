package servers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// HAProxy starts HAProxy with a configuration, in which {{.Addr}} is the free address to listen on.
// Relative paths are relative to dir, which must exist.
func HAProxy(ctx context.Context, dir, conf string) (*Server, error) {
	path, err := Program("haproxy", "haproxy")
	if err != nil {
		return nil, err
	}
	free, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(conf, "{{.Addr}}", free.Host)), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "-db", "-f", file)
	cmd.Dir = dir
	p, err := start(syscall.SIGTERM, cmd)
	if err != nil {
		free.Release()
		return nil, err
	}
	free.releaseAfter(p)
	if err := p.until(ctx, func(context.Context) error { return dial(free.Host) }); err != nil {
		return nil, err
	}
	return &Server{Process: p, Addr: free.Host}, nil
}
