package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// bareWord is the argument that makes the program a bare proxy to the upstream in the next
// argument. If that is "-", the program is a server that refuses all requests. It prints its
// address, and exits when its standard input ends.
const bareWord = "bare"

// serveBare is that program: net/http's server and reverse proxy without Weir's code, configured as
// Weir configures them. No gateway on net/http can use less CPU.
func serveBare(upstream string, stdin io.Reader, stdout, stderr io.Writer) int {
	handler := http.Handler(http.HandlerFunc(refuseBare))
	if upstream != "-" {
		target := &url.URL{Scheme: "http", Host: upstream}
		handler = &httputil.ReverseProxy{
			Transport:  &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 1024, DisableCompression: true},
			BufferPool: &bareBuffers{},
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(target)
				p.SetXForwarded()
			},
			// which is an error there
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		server.Close()
	}()
	fmt.Fprintln(stdout, l.Addr())
	if err := server.Serve(l); err != http.ErrServerClosed {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// refuseBare sends the smallest possible refusal.
func refuseBare(w http.ResponseWriter, _ *http.Request) {
	const text = "Too Many Requests\n"
	w.Header()["Content-Type"] = []string{"text/plain; charset=utf-8"}
	w.WriteHeader(http.StatusTooManyRequests)
	io.WriteString(w, text)
}

// bareBuffers lends a proxy buffers to copy bodies.
type bareBuffers struct{ pool sync.Pool }

func (b *bareBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return p[:]
	}
	return make([]byte, 32<<10)
}

func (b *bareBuffers) Put(p []byte) { b.pool.Put((*[32 << 10]byte)(p)) }

// A bare is a bare proxy in a process of its own.
type bare struct {
	cmd   *exec.Cmd
	stdin io.Closer
	addr  string
}

func startBare(upstream string) (*bare, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bare{cmd: exec.Command(self, bareWord, upstream)}
	b.cmd.Stderr = os.Stderr
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("a bare proxy did not say its address: %w", err)
	}
	b.addr = strings.TrimSpace(line)
	return b, nil
}

// Pid returns the number of the process.
func (b *bare) Pid() int { return b.cmd.Process.Pid }

// Stop ends it.
func (b *bare) Stop() error {
	b.stdin.Close()
	return b.cmd.Wait()
}
