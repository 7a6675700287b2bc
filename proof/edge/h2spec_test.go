package edge

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	h2cases "github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/weirflow/weir/proof/servers"
)

// TestH2spec runs all cases of h2spec against the gateway and against a server of net/http, in clear
// with prior knowledge and over TLS. The gateway passes each case that net/http passes.
//
// A case passes because of what the server sends, and never because of a timeout. So the result does not
// depend on the speed of the machine. A case that only the gateway fails is tried again with a longer timeout before it counts.
func TestH2spec(t *testing.T) {
	t.Parallel()
	greet := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello, h2spec")
	}
	dir := t.TempDir()
	selfSigned(t, dir)
	g := startWeir(t, dir, "  gateway: [{ address: \"127.0.0.1:0\", h2c: true }, { address: \"127.0.0.1:0\", tls: { certificates: [{ cert: a.crt, key: a.key }] } }]\n",
		httpUpstream(t, greet), routes)
	addrs := g.addresses(t)
	for i, way := range []string{"in clear", "over TLS"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			addr := netHTTP(t, greet, i == 1)
			rounds(t, func() {
				gateway, control := conformance{addr: addrs[i], tls: i == 1}, conformance{addr: addr, tls: i == 1}
				gateway.compareWith(t, &control)
			})
		})
	}
}

// netHTTP starts a server of net/http alone.
func netHTTP(t *testing.T, h http.HandlerFunc, secure bool) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	t.Cleanup(s.Close)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if secure {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	}
	return s.Listener.Addr().String()
}

// conformance runs cases of h2spec against a server.
type conformance struct {
	addr string
	tls  bool

	mu     sync.Mutex
	failed map[string]error
	counts struct{ passed, failed, skipped int }
}

// compareWith reports each case that the server fails, or skips, and a control passes.
func (c *conformance) compareWith(t *testing.T, control *conformance) {
	cases := h2specCases()
	var both sync.WaitGroup
	both.Go(func() { c.runAll(cases, 2*time.Second) })
	both.Go(func() { control.runAll(cases, 2*time.Second) })
	both.Wait()
	if control.counts.passed < 100 { // the machine has stood still
		control.runAll(cases, 20*time.Second)
	}
	t.Logf("of %d cases the gateway passes %d, and skips %d; net/http passes %d, and skips %d",
		len(cases), c.counts.passed, c.counts.skipped, control.counts.passed, control.counts.skipped)
	if control.counts.passed < 100 {
		t.Errorf("net/http fails too many cases for a control: %v", control.failed)
	}
	for name, err := range c.failed {
		if control.failed[name] != nil {
			t.Logf("both fail %s", name)
			continue
		}
		for _, seconds := range []time.Duration{2, 2, 5, 5, 5, 10, 10, 20, 20} { // the machine may stand still in several of them
			if err = c.run(cases[name], seconds*time.Second); err == nil {
				break
			}
		}
		if err != nil {
			err = c.run(cases[name], servers.Patience)
		}
		if err != nil {
			t.Errorf("only the gateway fails %s: %s: %v", name, cases[name].Requirement, err)
		}
	}
}

// runAll runs the cases, many side by side: most of the time they wait.
func (c *conformance) runAll(cases map[string]*spec.TestCase, timeout time.Duration) {
	c.failed, c.counts.passed, c.counts.failed, c.counts.skipped = map[string]error{}, 0, 0, 0
	var wg sync.WaitGroup
	places := make(chan struct{}, 20)
	for name, tc := range cases {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			err := c.run(tc, timeout)
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case err == nil:
				c.counts.passed++
				return
			case errors.Is(err, spec.ErrSkipped):
				c.counts.skipped++
			default:
				c.counts.failed++
			}
			c.failed[name] = err
		})
	}
	wg.Wait()
}

// run runs one case on a connection of its own.
func (c *conformance) run(tc *spec.TestCase, timeout time.Duration) (err error) {
	host, port, err := net.SplitHostPort(c.addr)
	if err != nil {
		return err
	}
	settings := &config.Config{Host: host, Path: "/", Timeout: timeout, MaxHeaderLen: 4000, Strict: true, TLS: c.tls, Insecure: true}
	if settings.Port, err = strconv.Atoi(port); err != nil {
		return err
	}
	conn, err := spec.Dial(settings)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer func() {
		if thrown := recover(); thrown != nil { // h2spec reports a connection that ends early like this
			err = fmt.Errorf("panic: %v", thrown)
		}
	}()
	return tc.Run(settings, conn)
}

// h2specCases are all cases, the strict ones too, by section, number and description.
func h2specCases() map[string]*spec.TestCase {
	all := map[string]*spec.TestCase{}
	var add func(*spec.TestGroup)
	add = func(g *spec.TestGroup) {
		for i, tc := range append(g.Tests[:len(g.Tests):len(g.Tests)], g.StrictTests...) {
			all[fmt.Sprintf("%s/%d (%s)", g.ID(), i+1, tc.Desc)] = tc
		}
		for _, below := range g.Groups {
			add(below)
		}
	}
	for _, g := range []*spec.TestGroup{generic.Spec(), h2cases.Spec(), hpack.Spec()} {
		add(g)
	}
	return all
}
