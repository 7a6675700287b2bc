package edge

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// arena is a gateway between a client, which says what it likes, and an upstream that says what it has
// read. Between the two stands a tap.
type arena struct {
	*gateway
	plan       plan
	tap        *tap   // nil where the upstream speaks HTTP/2
	clear, tls string // addresses of the gateway

	mu       sync.Mutex
	meant    map[string]wireRequest // by user agent: the one meaning of what clients have sent
	answered map[string]string      // by user agent: what the responses say that the upstream has read
	seen     []string               // what an upstream of HTTP/2 has read
	failures []string
}

// plan says what stands where in an arena.
type plan struct {
	upstream string // its name
	addr     string
	settings string // of the upstream, in the policy
	http2    bool
	noChunks bool // the upstream does not read bodies in chunks, and gets them only where trailers are announced
}

// unbuffered reports whether bodies are streamed.
func (p plan) unbuffered() bool { return p.settings != "" }

func newArena(t *testing.T, p plan) *arena {
	t.Helper()
	a := &arena{plan: p, meant: map[string]wireRequest{}, answered: map[string]string{}}
	addr := p.addr
	if p.http2 {
		addr = observeH2C(t, func(w http.ResponseWriter, r *http.Request) {
			observe(w, r)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.seen = append(a.seen, w.Header().Get("X-Seen"))
		})
	} else {
		a.tap = newTap(t, addr)
		addr = a.tap.addr
	}
	dir := t.TempDir()
	selfSigned(t, dir)
	a.gateway = &gateway{servers.PolicyIn(t, dir, fmt.Sprintf(`
listen:
  admin: 127.0.0.1:0
  gateway:
    - { address: "127.0.0.1:0", h2c: true }
    - { address: "127.0.0.1:0", tls: { certificates: [{ cert: a.crt, key: a.key }] } }
  bounds: { max_body: 1MiB }
access_log: { file: access.log, format: json }
limits: { all: { token_bucket: { rate: 1000000/s, burst: 1000000 } } }
upstreams: { up: { url: "http://%s", %s health: { failures: 0 } } }
routes: [{ match: /, upstream: up, limits: [all] }]
`, addr, p.settings))}
	a.Start(t, binary)
	all := a.addresses(t)
	a.clear, a.tls = all[0], all[1]
	return a
}

func (a *arena) failed(format string, arguments ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = append(a.failures, fmt.Sprintf(format, arguments...))
}

// dial connects to the gateway, over TLS with a protocol, or in clear.
func (a *arena) dial(overTLS bool, protocol string) (net.Conn, error) {
	if overTLS {
		return tls.Dial("tcp", a.tls, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	}
	return net.Dial("tcp", a.clear)
}

// play1 sends a stream over HTTP/1 and checks what comes back.
func (a *arena) play1(s stream, overTLS bool) {
	raw := []byte(s.String())
	meant, err := readStrictly(raw)
	a.mu.Lock()
	for _, r := range meant {
		a.meant[canaryIn(r.agent)] = r
	}
	a.mu.Unlock()
	conn, dialed := a.dial(overTLS, "http/1.1")
	if dialed != nil {
		a.failed("%s: %v", s.id, dialed)
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	n := len(meant)
	waits := err == nil && (n == 0 || !meant[n-1].close || !meant[n-1].complete)
	go func() {
		write(conn, raw, s.cuts)
		if waits { // the gateway would, for the rest
			conn.(interface{ CloseWrite() error }).CloseWrite()
		}
	}()
	back, err := io.ReadAll(conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		a.failed("%s: the connection does not end: %q", s.id, back)
		return
	}
	if errors.Is(err, syscall.ECONNRESET) {
		return // with what had come before
	}
	if a.responses(s, meant, back) && !waits {
		a.complete(s, back)
	}
}

// write sends bytes in so many parts; 0 is one by one at first.
func write(conn net.Conn, raw []byte, parts int) {
	if parts == 0 {
		for n := 0; n < 500 && len(raw) > 0; n++ {
			conn.Write(raw[:1])
			raw = raw[1:]
		}
	}
	for ; parts > 1; parts-- {
		n := len(raw) / parts
		conn.Write(raw[:n])
		raw = raw[n:]
	}
	conn.Write(raw)
}

// responses checks what came back for a stream: responses and nothing else, in the order of the
// requests, and at most one for each.
func (a *arena) responses(s stream, meant []wireRequest, back []byte) bool {
	next := 0
	for rest := back; ; {
		_, seen, after, err := readResponse(rest)
		if rest = after; err == io.EOF {
			break
		}
		if err != nil {
			a.failed("%s: what came back is no response: %v: %.300q", s.id, err, back)
			return false
		}
		if seen == "" {
			continue
		}
		agent := agentOf(seen)
		at := slices.IndexFunc(meant[next:], func(r wireRequest) bool { return canaryIn(r.agent) == agent })
		if at < 0 {
			a.failed("%s: a response to %q came back, which is not the next request of this connection: %.300q", s.id, seen, back)
			return false
		}
		next += at + 1
		a.mu.Lock()
		a.answered[agent] = seen
		a.mu.Unlock()
	}
	return true
}

// complete checks that each request before the first mistake was answered.
func (a *arena) complete(s stream, back []byte) {
	for i, d := range s.messages {
		if d.mistake != "" {
			break
		}
		if !a.answers(d.canary) {
			if a.plan.unbuffered() && bytes.Contains(back, []byte("HTTP/1.1 502 ")) {
				return // the upstream ended a kept connection, and a body that was not kept is not sent again
			}
			a.failed("%s: message %d is without a mistake, and was not answered: %.4000q to %q; %s", s.id, i, back, s.String(), a.around(d.canary))
			return
		}
		if a.plan.upstream == "nginx" && d.body != "" || strings.Contains(strings.Join(d.fields, ""), "close") {
			break // it answers before the body is there, which ends the connection
		}
	}
}

// around is what was said on the connection to the upstream that a canary came to.
func (a *arena) around(canary string) string {
	if a.tap == nil {
		return ""
	}
	a.tap.mu.Lock()
	defer a.tap.mu.Unlock()
	for _, c := range a.tap.conns {
		c.mu.Lock()
		if request, respond := c.request.String(), c.respond.String(); strings.Contains(request, canary) {
			c.mu.Unlock()
			return fmt.Sprintf("the gateway sent %q, and the upstream %q", request, respond)
		}
		c.mu.Unlock()
	}
	return "the gateway did not send it"
}

func (a *arena) answers(canary string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered[canary] != ""
}

// agentOf is the user agent in X-Seen.
func agentOf(seen string) string {
	parts := strings.SplitN(seen, " ", 6)
	if len(parts) != 6 {
		return "?"
	}
	return canaryIn(parts[5])
}

// canaryIn is the canary in a user agent, which a mistake may have added bytes to.
func canaryIn(agent string) string { return canary.FindString(agent) }

var canary = regexp.MustCompile("^[a-z0-9-]*")

// readResponse reads one final response, and returns what follows it. Only the one to HEAD has no body,
// and X-Seen tells it. err is io.EOF at the end.
func readResponse(b []byte) (status int, seen string, rest []byte, err error) {
	if len(b) == 0 {
		return 0, "", nil, io.EOF
	}
	head, rest, found := bytes.Cut(b, []byte("\r\n\r\n"))
	first := statusLine.FindSubmatch(head)
	if !found || first == nil {
		return 0, "", nil, fmt.Errorf("a response is malformed: %.200q", b)
	}
	if status, _ = strconv.Atoi(string(first[1])); status < 200 && status != 101 {
		return readResponse(rest)
	}
	if s := seenLine.FindSubmatch(head); s != nil {
		seen = string(s[1])
	}
	length := lengthLine.FindSubmatch(head)
	switch {
	case strings.HasPrefix(seen, "HEAD ") || bytes.HasPrefix(rest, []byte("HTTP/1.")) || seen == "" && len(rest) == 0: // to HEAD
	case codingLine.Match(head):
		_, rest, err = strictChunks(rest)
		if rest == nil {
			err = errors.Join(err, errors.New("a body in chunks does not end"))
		}
	case length != nil:
		n, _ := strconv.Atoi(string(length[1]))
		if n > len(rest) {
			return 0, "", nil, fmt.Errorf("a body ends after %d of %d bytes", len(rest), n)
		}
		rest = rest[n:]
	default:
		rest = nil // it goes on to the end of the connection
	}
	return status, seen, rest, err
}

var (
	statusLine = regexp.MustCompile(`^HTTP/1\.[01] ([0-9]{3}) `)
	lengthLine = regexp.MustCompile(`(?i)\r\nContent-Length: ([0-9]+)`)
	codingLine = regexp.MustCompile(`(?i)\r\nTransfer-Encoding: chunked`)
)

// play2 sends requests on one connection of HTTP/2 and checks what comes back.
func (a *arena) play2(drafts []draft2, cut int, overTLS bool) {
	conn, err := a.dial(overTLS, "h2")
	if err != nil {
		a.failed("%v", err)
		return
	}
	defer conn.Close()
	a.mu.Lock()
	for _, d := range drafts {
		if r, ok := d.meant(); ok {
			a.meant[d.canary] = r
		}
	}
	a.mu.Unlock()
	c := overH2(conn)
	var streams []uint32
	for _, d := range drafts {
		streams = append(streams, c.send(d, cut))
	}
	all := c.answers(streams)
	for i, d := range drafts {
		got := all[streams[i]]
		switch {
		case got.seen != "" && agentOf(got.seen) != d.canary:
			a.failed("%v: its response is that to %q", d, got.seen)
		case got.seen == "" && d.mistake == "" && !(a.plan.unbuffered() && got.status == 502) && !slices.ContainsFunc(drafts, func(d draft2) bool { return d.mistake != "" }):
			a.failed("%v: it is without a mistake, and was answered %d; %s", d, got.status, a.around(d.canary))
		case got.seen != "":
			a.mu.Lock()
			a.answered[d.canary] = got.seen
			a.mu.Unlock()
		}
	}
}

// logged is a line of the access log.
type logged struct {
	Method, URI, Host, Decision, Upstream string
	Status                                int
	Agent                                 string `json:"http_user_agent"`
}

// finish stops the gateway and compares what the client sent, what the gateway has logged, counted and
// sent on, and what the upstream has read.
func (a *arena) finish(t *testing.T) (passed int) {
	t.Helper()
	counted := a.Samples(t)[`weir_limit_requests_total{limit="all",outcome="allowed"}`]
	if err := a.Stop(); err != nil {
		a.failed("%v", err)
	}
	log := a.log(t)
	allowed := 0
	for _, lines := range log {
		for _, l := range lines {
			if l.Decision == "allow" {
				allowed++
			}
		}
	}
	if float64(allowed) != counted {
		a.failed("%v requests were counted, and %d logged as allowed", counted, allowed)
	}
	if a.tap == nil {
		for _, seen := range a.seen {
			a.read(log, seen)
		}
		return len(a.seen)
	}
	a.tap.close()
	for _, c := range a.tap.conns {
		a.connection(log, c)
		passed += len(c.seen())
	}
	return passed
}

func (a *arena) log(t *testing.T) map[string][]logged {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(a.File), "access.log"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]logged{}
	for line := range strings.Lines(string(b)) {
		var l logged
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in the access log: %s", err, line)
		}
		all[canaryIn(l.Agent)] = append(all[canaryIn(l.Agent)], l)
	}
	return all
}

// connection compares what the gateway wrote on one connection with what the upstream has read there.
func (a *arena) connection(log map[string][]logged, c *tapped) {
	sent, err := readStrictly(c.request.Bytes())
	if err != nil {
		a.failed("what the gateway sent can be read in two ways, after %d requests: %.2000q", len(sent), c.request.Bytes())
		return
	}
	for _, r := range sent {
		for _, f := range r.fields {
			if strings.HasPrefix(strings.ToLower(f), "x-evil") {
				a.failed("a field was put into %v: %q", r, f)
			}
		}
		if r.complete {
			a.sent(r)
		}
	}
	for _, seen := range c.seen() {
		a.read(log, seen)
		at := slices.IndexFunc(sent, func(r wireRequest) bool { return a.same(seen, r) })
		if at < 0 {
			a.failed("the upstream read %q, which is not what the gateway sent: %.2000q", seen, c.request.Bytes())
			return
		}
		sent = sent[at+1:]
	}
}

// sent checks a request that the gateway sent: it is what a client has said, and nothing more.
func (a *arena) sent(r wireRequest) {
	meant, ok := a.meant[canaryIn(r.agent)]
	switch {
	case !ok:
		a.failed("the gateway sent %v, which no client has sent unambiguously", r)
	case !meant.complete:
		a.failed("the gateway sent %v, which the client had not completed", r)
	case meant.method != r.method, !sameText(meant.target, r.target), !strings.EqualFold(meant.host, r.host) && meant.host != "", !bytes.Equal(meant.body, r.body):
		a.failed("the gateway sent %v, and the client had sent %v", r, meant)
	}
}

// sameText compares two targets without regard to which bytes are percent-encoded.
func sameText(a, b string) bool {
	plain := func(s string) string {
		for i := 0; i+2 < len(s); i++ {
			if s[i] == '%' {
				if c, err := url.PathUnescape(s[i : i+3]); err == nil {
					s = s[:i] + c + s[i+3:]
				}
			}
		}
		return s
	}
	return plain(a) == plain(b)
}

// same reports whether X-Seen is about a request.
func (a *arena) same(seen string, r wireRequest) bool {
	seen = withPlainHost(seen)
	is := func(body string) bool { return seen == withPlainHost(r.about(body)) }
	return is(r.digested()) || is("- -") || a.plan.noChunks && r.chunked && is("0 "+digest(nil))
}

// withPlainHost is X-Seen with the host in the form that limits compare.
func withPlainHost(seen string) string {
	parts := strings.SplitN(seen, " ", 4)
	if len(parts) == 4 {
		parts[2] = plainHost(parts[2])
	}
	return strings.Join(parts, " ")
}

// read checks what an upstream has read: the gateway has logged the same, once.
func (a *arena) read(log map[string][]logged, seen string) {
	agent := agentOf(seen)
	lines := log[agent]
	at := slices.IndexFunc(lines, func(l logged) bool {
		host := l.Host
		if host == "" { // of HTTP/1.0
			host = a.gatewayTarget()
		}
		return l.Upstream != "" && strings.HasPrefix(withPlainHost(seen), strings.Join([]string{l.Method, l.URI, plainHost(host), ""}, " "))
	})
	if at < 0 {
		a.failed("the upstream read %q, and the gateway has logged %+v", seen, lines)
		return
	}
	log[agent] = slices.Delete(lines, at, at+1)
}

// gatewayTarget is the address that the gateway sends requests to.
func (a *arena) gatewayTarget() string {
	if a.tap != nil {
		return a.tap.addr
	}
	return "-"
}
