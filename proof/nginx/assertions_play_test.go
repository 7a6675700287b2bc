package nginx

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// play is one run of a file against one of the two servers, from a client address of its own.
type play struct {
	t       *testing.T
	pair    *pair
	up      *slowServer
	server  string // its name
	addr    string
	local   *net.TCPAddr
	client  *http.Transport
	ctx     context.Context
	end     context.CancelFunc
	last    http.Header // of the last response
	since   int         // how many lines the server's log had before
	wrote   []string    // how the lines have to begin that the server wrote since then
	held    int
	late    bool // the machine was too slow: the results mean nothing
	results map[string]string
}

// connect sets the client's address.
func (s *play) connect(from string) {
	s.local = &net.TCPAddr{IP: net.ParseIP(from)}
	s.ctx, s.end = context.WithTimeout(s.t.Context(), patience)
	s.client = &http.Transport{MaxIdleConnsPerHost: 32, DialContext: s.dial}
}

func (s *play) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: s.local}).DialContext(ctx, network, s.addr)
}

// close cancels the requests in flight.
func (s *play) close() {
	s.end()
	s.client.CloseIdleConnections()
}

// send sends a request, reads the response after a pause, and returns its status and the length of its body.
func (s *play) send(path string, pause time.Duration, fields ...string) (status, length int, header http.Header) {
	r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		return 0, 0, nil
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := s.client.RoundTrip(r)
	if err != nil {
		return 0, 0, nil
	}
	defer resp.Body.Close()
	s.wait(pause)
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return 0, int(n), nil
	}
	return resp.StatusCode, int(n), resp.Header
}

// get returns the status of a request, 0 for none.
func (s *play) get(path string, fields ...string) (status int) {
	status, _, s.last = s.send(path, 0, fields...)
	return status
}

// body returns the length of a response that is read after a pause.
func (s *play) body(path string, pause time.Duration) (length int) {
	_, length, _ = s.send(path, pause)
	return length
}

// start sends a request whose status comes later.
func (s *play) start(path string, fields ...string) <-chan int {
	came := make(chan int, 1)
	go func() {
		status, _, _ := s.send(path, 0, fields...)
		came <- status
	}()
	return came
}

// hold sends a request that stays at the upstream until leave is called.
func (s *play) hold(path string, fields ...string) (leave func()) {
	s.held++
	name := fmt.Sprintf("%s %s %d", s.server, s.local, s.held)
	came, release := s.up.expect(name)
	ended := s.start(path, append(fields, "X-Hold", name)...)
	select {
	case <-came:
	case status := <-ended:
		s.t.Errorf("%s: %s was not held: %d", s.server, path, status)
		return func() {}
	case <-s.ctx.Done():
		return func() {}
	}
	return func() {
		close(release)
		<-ended
	}
}

// wait sleeps, so that limits admit more.
func (s *play) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

// within records that the machine is too slow if more than d has passed since a time.
func (s *play) within(began time.Time, d time.Duration) {
	if time.Since(began) > d {
		s.late = true
	}
}

// check records whether an assertion is true, and otherwise what was seen.
func (s *play) check(name string, holds bool, format string, args ...any) {
	s.results[name] = ""
	if !holds {
		s.results[name] = fmt.Sprintf(format, args...)
	}
}

func (s *play) status(name string, want, got int) {
	s.check(name, got == want, "%d, want %d", got, want)
}

// pair2 is two requests one after another, 100 ms apart: the first one passes.
func (s *play) pair2(first, second string, want int, path string) {
	s.status(first, 200, s.get(path))
	s.wait(100 * time.Millisecond)
	s.status(second, want, s.get(path))
}

// decided is the decision of the limits about the last request. nginx has it in a variable and in its
// log, the gateway in its log.
func (s *play) decided(name string, want int, variable, line string, got int) {
	if line != "" {
		s.wrote = append(s.wrote, line)
	}
	lines := s.settled(len(s.wrote))
	said := ""
	if s.last != nil {
		said = s.last.Get("X-Status")
	}
	fits := len(lines) == len(s.wrote)
	for i := range min(len(lines), len(s.wrote)) {
		fits = fits && strings.Contains(lines[i], s.wrote[i])
	}
	s.check(name, got == want && fits && (s.server != "nginx" || said == variable), "%d with %q, and lines %q; want %d with %q, and %q", got, said, lines, want, variable, s.wrote)
}

// lines returns the lines about limits in the server's log.
func (s *play) lines() (all []string) {
	if s.server != "nginx" {
		return s.pair.weirLines()
	}
	text, _ := os.ReadFile(filepath.Join(s.pair.dir, "error.log"))
	for _, found := range nginxLine.FindAllStringSubmatch(string(text), -1) {
		all = append(all, found[1]+": "+found[2])
	}
	return all
}

// settled waits for n lines and returns them.
func (s *play) settled(n int) (lines []string) {
	s.until(func() bool { lines = s.lines()[s.since:]; return len(lines) >= n })
	return lines
}

// until waits for a condition, and reports whether it became true.
func (s *play) until(done func() bool) bool {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return false
		}
	}
	return true
}

// logged asserts that the server wrote a line.
func (s *play) logged(name, part string) {
	has := func() bool {
		return slices.ContainsFunc(s.lines()[s.since:], func(l string) bool { return strings.Contains(l, part) })
	}
	s.check(name, s.until(has), "no line with %q among %q", part, s.lines()[s.since:])
}

// unlogged asserts that the line of an access log for / names no limit.
func (s *play) unlogged(name, line string) {
	found := s.until(func() bool {
		if s.server == "nginx" {
			text, _ := os.ReadFile(filepath.Join(s.pair.dir, "test.log"))
			return slices.Contains(strings.Split(string(text), "\n"), line)
		}
		return s.accessLine()
	})
	s.check(name, found, "the access log has no such line")
}

// accessLine reports whether the gateway's access log has a line for / without a limit.
func (s *play) accessLine() bool {
	text, _ := os.ReadFile(filepath.Join(s.pair.dir, "access.log"))
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		var l struct{ URI, Decision, Limit string }
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.URI == "/" {
			return l.Decision == "allow" && l.Limit == ""
		}
	}
	return false
}

// eventually asserts a status that a server may return only when it has noticed the end of another
// request.
func (s *play) eventually(name string, want int, path string) {
	got := 0
	s.until(func() bool { got = s.get(path); return got == want })
	s.status(name, want, got)
}

// overlong holds as many requests with a key of 300 bytes as the limit has places. One more passes nginx, which skips the limit for such keys,
// and not the gateway.
func (s *play) overlong(name, path string) {
	key := []string{"X-Key", strings.Repeat("x", 300)}
	var leave []func()
	for range 10 {
		leave = append(leave, s.hold(path, key...))
	}
	want := 503
	if s.server == "nginx" {
		want = 200
	}
	s.status(name, want, s.get(path, key...))
	for _, l := range leave {
		l()
	}
}

// slowServer is an upstream that delays its responses until the test releases them, by the name of
// the request.
type slowServer struct {
	*httptest.Server
	mu   sync.Mutex
	held map[string]*heldRequest
}

type heldRequest struct{ came, release chan struct{} }

// newSlow starts a slowServer. It responds with files, with 404 to requests with X-Missing, and with the
// length and the beginning of request bodies.
func newSlow(t *testing.T) *slowServer {
	s := &slowServer{held: map[string]*heldRequest{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		held := s.held[r.Header.Get("X-Hold")]
		s.mu.Unlock()
		switch {
		case held != nil:
			close(held.came)
			select {
			case <-r.Context().Done():
			case <-held.release:
			}
		case r.Header.Get("X-Missing") != "":
			http.NotFound(w, r)
		case r.URL.Path == "/long.html":
			_, _ = io.WriteString(w, strings.Repeat("1234567890\n", 1<<16))
		case strings.HasPrefix(r.URL.Path, "/proxy_limit_req/"):
			body, err := io.ReadAll(r.Body)
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("X-Body", string(body))
		default:
			_, _ = io.WriteString(w, "SEE-THIS")
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// expect registers a request whose response will be delayed.
func (s *slowServer) expect(name string) (came <-chan struct{}, release chan struct{}) {
	h := &heldRequest{make(chan struct{}), make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = h
	return h.came, h.release
}
