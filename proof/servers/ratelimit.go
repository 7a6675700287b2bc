package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// BuildTool builds a program of the tools in proof/envoy into dir, and returns its path. Build it once
// per process.
func BuildTool(ctx context.Context, dir, pkg string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	cmd.Dir = filepath.Join(root, "proof", "envoy")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// RatelimitPackage is the server of envoyproxy/ratelimit, for BuildTool.
const RatelimitPackage = "github.com/envoyproxy/ratelimit/src/service_cmd"

// A Ratelimit is a running server of envoyproxy/ratelimit.
type Ratelimit struct {
	*Process
	GRPC, HTTP string // HOST:PORT
}

// StartRatelimit runs envoyproxy/ratelimit with the files in root/ratelimit/config and the counters in
// a Redis, and waits until it is healthy. env has more of its environment variables.
func StartRatelimit(ctx context.Context, program, root, redis string, env ...string) (*Ratelimit, error) {
	var claims [3]*Address
	var ports [3]string
	release := func() {
		for _, a := range claims {
			a.Release()
		}
	}
	for i := range claims {
		var err error
		if claims[i], err = FreeAddress(); err != nil {
			release()
			return nil, err
		}
		_, ports[i], _ = net.SplitHostPort(claims[i].Host)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis, "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error", "HOST=127.0.0.1", "PORT="+ports[0], "GRPC_HOST=127.0.0.1", "GRPC_PORT="+ports[1],
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT="+ports[2])
	cmd.Env = append(cmd.Env, env...)
	p, err := start(syscall.SIGTERM, cmd)
	if err != nil {
		release()
		return nil, err
	}
	p.Name = "envoyproxy/ratelimit"
	for _, a := range claims {
		a.releaseAfter(p)
	}
	r := &Ratelimit{Process: p, HTTP: claims[0].Host, GRPC: claims[1].Host}
	if err := p.until(ctx, r.healthy); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Ratelimit) healthy(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.HTTP+"/healthcheck", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return errors.New("/healthcheck: " + resp.Status)
	}
	return nil
}
