package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// A site is what all sections about the gateway share: the programs, and an upstream.
type site struct {
	dir      string
	wrk      string
	binary   string // of weir
	upstream *servers.Server
}

// newSite builds weir and starts the upstream.
func newSite() (*site, error) {
	wrk, err := servers.Program("wrk", "wrk")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-bench-*")
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, wrk: wrk}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // to build weir
	defer cancel()
	if s.binary, err = servers.BuildWeir(ctx, dir); err == nil {
		s.upstream, err = startNginx(dir, "upstream", 1, fmt.Sprintf(
			"keepalive_requests 1000000000;\nserver { listen {{.Addr}} backlog=4096; location / { return 200 \"%s\"; } }", strings.Repeat("x", upstreamBody)))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return s, nil
}

func (s *site) close() {
	s.upstream.Stop()   //nolint:errcheck // the measurement is over
	os.RemoveAll(s.dir) //nolint:errcheck // a temporary directory may stay
}

// A pair is nginx and weir with the same limits.
type pair struct{ nginx, weir proxy }

func (s *site) pair(t traffic) (*pair, error) {
	n, err := startNginx(s.dir, "proxy", runtime.GOMAXPROCS(0), nginxProxy(t.nginx, s.upstream.Addr))
	if err != nil {
		return nil, err
	}
	w, err := startGateway(s.dir, s.binary, t.weir, s.upstream.Addr)
	if err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return &pair{proxy{"nginx", n.Addr, n.Process}, proxy{subjectGateway, w.Gateway, w.Process}}, nil
}

func (p *pair) stop() error { return errors.Join(p.nginx.process.Stop(), p.weir.process.Stop()) }
