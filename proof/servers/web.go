package servers

import (
	"context"
	"os/exec"
	"syscall"
)

// Web starts a program that serves on a free address, which arguments gets as HOST:PORT. An error
// names its Debian package if it is missing. It runs in dir. Kill ends it.
func Web(ctx context.Context, program, debianPackage, dir string, arguments func(addr string) []string) (*Server, error) {
	path, err := Program(program, debianPackage)
	if err != nil {
		return nil, err
	}
	free, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, arguments(free.Host)...)
	cmd.Dir = dir
	p, err := start(syscall.SIGTERM, cmd)
	if err != nil {
		free.Release()
		return nil, err
	}
	free.releaseAfter(p)
	return &Server{Process: p, Addr: free.Host}, p.until(ctx, func(context.Context) error { return dial(free.Host) })
}
