package edge

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirflow/weir/proof/servers"
)

const (
	// theBound is the one bound of a gateway that is short. All others are an hour. It is longer than a busy
	// machine stands still: clients that are not bound go on sending within it.
	theBound = 9 * time.Second
	// atLeast is the shortest time until a client is disconnected: the gateway may end some waits a tenth early.
	atLeast = theBound * 17 / 20
	// atMost is far above what a busy machine takes, and below all other bounds, those of net/http included.
	atMost = 50 * time.Second
)

// trickling serves the policy of the phases, in which one bound is short.
func trickling(t *testing.T, short, upstream string) *gateway {
	t.Helper()
	dir := t.TempDir()
	selfSigned(t, dir)
	is := func(bound string) string {
		if bound == short {
			return theBound.String()
		}
		return "1h"
	}
	timeouts := fmt.Sprintf("timeouts: { response: %s, idle: %s, upgraded: %s }", is("timeouts.response"), is("timeouts.idle"), is("timeouts.upgraded"))
	g := &gateway{servers.PolicyIn(t, dir, fmt.Sprintf(`
listen:
  admin: 127.0.0.1:0
  gateway:
    - { address: "127.0.0.1:0", h2c: true }
    - { address: "127.0.0.1:0", tls: { certificates: [{ cert: a.crt, key: a.key }] } }
    - { address: "127.0.0.1:0", proxy_protocol: [127.0.0.0/8] }
  bounds: { header_timeout: %s, body_timeout: %s, min_body_rate: 1000, write_timeout: %s, idle_timeout: %s }
limits:
  one: { key: header.x-phase, on_missing: skip, concurrency: { limit: 1 } }
  line: { key: header.x-phase, concurrency: { limit: 1, queue: 1 } }
  pace: { key: header.x-phase, leaky_bucket: { rate: 1/%[7]s, queue: 1 } }
upstreams:
  whole: { url: "http://%[5]s", %[6]s }
  parts: { url: "http://%[5]s", buffer_request: off, %[6]s }
routes:
  - { match: /streamed, upstream: parts, limits: [one] }
  - { match: /paced, upstream: whole, limits: [pace] }
  - { match: /places, upstream: whole, limits: [line], waiting: { timeout: %[8]s } }
  - { match: /none, respond: { status: 404 } }
  - { match: /, upstream: whole, limits: [one] }
`, is("header_timeout"), is("body_timeout"), is("write_timeout"), is("idle_timeout"), upstream, timeouts, is("rate"), is("waiting.timeout")))}
	g.Start(t, binary)
	return g
}

// A phaseUpstream leaves the gateway waiting, or sends without an end.
type phaseUpstream struct {
	addr string
	seen sync.Map // the keys of all requests
}

func newPhaseUpstream(t *testing.T) *phaseUpstream {
	t.Helper()
	u := &phaseUpstream{}
	s := httptest.NewUnstartedServer(u)
	s.Config.SetKeepAlivesEnabled(false) // idle connections would keep goroutines of the gateway
	s.Start()
	t.Cleanup(s.Close)
	u.addr = s.Listener.Addr().String()
	return u
}

func (u *phaseUpstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.seen.Store(r.Header.Get("X-Phase"), nil)
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	switch r.URL.Path {
	case "/silent", "/places":
		<-r.Context().Done()
	case "/stalled":
		io.WriteString(w, "a part")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "/endless":
		endless(w)
	case "/echo", "/flood", "/talk":
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if r.URL.Path == "/flood" {
			endless(conn)
		}
		if r.URL.Path == "/talk" {
			talk(conn)
		}
		io.Copy(conn, rw)
	}
}

// talk writes a byte now and then.
func talk(w io.Writer) {
	ticker := time.NewTicker(theBound / 20)
	defer ticker.Stop()
	for range ticker.C {
		if _, err := w.Write([]byte(".")); err != nil {
			return
		}
	}
}

func endless(w io.Writer) {
	for p := make([]byte, 64<<10); ; {
		if _, err := w.Write(p); err != nil {
			return
		}
	}
}

// TestTrickling is the table of phases, for each bound against a gateway in which only that bound is
// short. Each client is disconnected after that time, and not before. Then nothing of it is left: no
// connection, no place under a limit, no goroutine.
func TestTrickling(t *testing.T) {
	t.Parallel()
	up := newPhaseUpstream(t)
	for bound := range strings.FieldsSeq(allBounds) {
		t.Run(bound, func(t *testing.T) {
			t.Parallel()
			holdPhases(t, bound, up)
		})
	}
}

// TestPhasesAreDocumented: the table of docs/listening.md has the phases.
func TestPhasesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/listening.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## How long a slow client may take\n")
	table, _, _ = strings.Cut(table, "\n## ")
	said := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (.+?) \\| `?([a-z_.]+)`? \\|").FindAllStringSubmatch(table, -1) {
		said[row[1]] = row[2]
	}
	delete(said, "phase")
	tested := map[string]string{}
	for _, p := range phases("") {
		if p.bound != "" {
			tested[p.name] = p.bound
		} else if tested[p.name] == "" {
			tested[p.name] = "none"
		}
	}
	if !maps.Equal(said, tested) {
		t.Errorf("docs/listening.md has %v\nthe phases are %v", said, tested)
	}
}

// holdPhases plays the phases of a bound.
func holdPhases(t *testing.T, bound string, up *phaseUpstream) {
	g := trickling(t, bound, up.addr)
	addrs := g.addresses(t)
	before := g.goroutines(t, addrs)
	round := 0
	rounds(t, func() {
		round++
		all := tricklers(bound, round)
		holdAll(t, g, addrs, all, up)
		servers.Poll(t, "no connection is left", func() bool { return g.Samples(t)["weir_connections_open"] == 0 })
		servers.Poll(t, "no goroutine is left", func() bool { return g.Samples(t)["go_goroutines"] <= before })
		for _, c := range all {
			up.seen.Delete(c.key)
		}
	})
}

// goroutines returns how many there are while nobody is connected. Some serve an address from its first request on:
// so each address has one first. The lowest of several readings is taken, as the goroutines of these
// connections may still be ending.
func (g *gateway) goroutines(t *testing.T, addrs []string) float64 {
	t.Helper()
	request := func(i int) string {
		return fmt.Sprintf("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Phase: before %d\r\n\r\n", i)
	}
	for i, text := range map[int]string{0: request(0), 2: "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + request(2)} {
		if got := send(t, addrs[i], text); !strings.HasPrefix(got, "HTTP/1.1 ") {
			t.Fatalf("address %d: %q", i, got)
		}
	}
	conn, err := tls.Dial("tcp", addrs[1], insecure())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	io.WriteString(conn, request(1))
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	servers.Poll(t, "these connections have ended", func() bool {
		now := g.Samples(t)
		return now["weir_connections_accepted_total"] == float64(len(addrs)) && now["weir_connections_open"] == 0
	})
	least := math.Inf(1)
	for range 20 {
		least = min(least, g.Samples(t)["go_goroutines"])
	}
	return least
}

// holdAll plays all clients at once, and checks when they are disconnected.
func holdAll(t *testing.T, g *gateway, addrs []string, all []*trickler, up *phaseUpstream) {
	var ended, lasting sync.WaitGroup
	over := make(chan struct{}) // those that are bound have ended
	var mu sync.Mutex
	took := map[string][]time.Duration{}
	for _, c := range all {
		if c.bound == "" {
			lasting.Go(func() { c.last(t, addrs, over) })
			continue
		}
		ended.Go(func() {
			d := c.end(t, g, addrs, up)
			mu.Lock()
			defer mu.Unlock()
			took[c.name] = append(took[c.name], d)
		})
	}
	ended.Wait()
	close(over)
	lasting.Wait()
	for name, all := range took {
		t.Logf("%s: %d clients were ended after %.1f to %.1f s", name, len(all), slices.Min(all).Seconds(), slices.Max(all).Seconds())
	}
}

// A trickler is a client in a phase.
type trickler struct {
	*phase
	name              string
	way, first, again string
	key               string
	conn              net.Conn
	began             time.Time
}

// tricklers are all clients of the phases of a bound, and of those that it does not bound.
func tricklers(bound string, round int) (all []*trickler) {
	for i, p := range phases("") {
		if p.bound != bound && !slices.Contains(strings.Fields(p.lasts), bound) {
			continue
		}
		for way := range strings.FieldsSeq(p.over) {
			for j := range p.first {
				for _, again := range append([]string{""}, p.again...) {
					key := fmt.Sprintf("%s-%d-%d", bound, round, len(all))
					own := phases(key)[i]
					all = append(all, &trickler{phase: &own, name: p.name, way: way, first: own.first[j], again: again, key: key})
				}
			}
		}
	}
	return all
}

// open connects, sends, and goes on sending until the test calls the returned function.
func (c *trickler) open(t *testing.T, addrs []string) (stop func()) {
	c.began = time.Now()
	var err error
	switch c.way {
	case "clear":
		c.conn, err = net.Dial("tcp", addrs[0])
	case "tls":
		c.conn, err = tls.Dial("tcp", addrs[1], insecure())
	case "h2":
		c.conn, err = tls.Dial("tcp", addrs[1], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	case "record": // what is sent after the handshake is a part of a record, so that nothing of it can be read
		if c.conn, err = net.Dial("tcp", addrs[1]); err == nil {
			err = tls.Client(c.conn, insecure()).HandshakeContext(t.Context())
		}
	case "handshake":
		c.conn, err = net.Dial("tcp", addrs[1])
	case "proxy":
		c.conn, err = net.Dial("tcp", addrs[2])
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	c.conn.SetDeadline(c.began.Add(atMost))
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		io.WriteString(c.conn, c.first)
		ticker := time.NewTicker(theBound / 60) // slowly: a PROXY header of more than 107 bytes is refused for its length
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				io.WriteString(c.conn, c.again)
				if c.sips {
					c.conn.Read(make([]byte, 1))
				}
			case <-stopped:
				return
			}
		}
	})
	return func() {
		close(stopped)
		wg.Wait()
	}
}

// end waits until a client is disconnected, checks that, and returns how long it took.
func (c *trickler) end(t *testing.T, g *gateway, addrs []string, up *phaseUpstream) time.Duration {
	stop := c.open(t, addrs)
	if stop == nil {
		return 0
	}
	defer c.conn.Close()
	if c.deaf {
		servers.Poll(t, "its request is sent on", func() bool { _, seen := up.seen.Load(c.key); return seen })
		servers.Poll(t, c.name+": its place is free", func() bool { return c.isFree(t, g) })
		stop()
		return c.took(t, "")
	}
	got, err := c.read()
	stop()
	d := c.took(t, string(got))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: it may go on", c)
	}
	if c.says != "" && c.said(got) != c.says {
		t.Errorf("%s: the client gets %q, want %s", c, c.said(got), c.says)
	}
	c.conn.Close()
	servers.Poll(t, c.name+": its place is free", func() bool { return c.isFree(t, g) })
	return d
}

// took is how long the client took.
func (c *trickler) took(t *testing.T, got string) time.Duration {
	d := time.Since(c.began)
	least := atLeast
	if c.own > 0 {
		least = c.own * 17 / 20
	}
	if d < least || d > atMost {
		t.Errorf("%s: it took %v, want at least %v and at most %v: %.200q", c, d, least, atMost, got)
	}
	return d
}

func (c *trickler) String() string {
	return fmt.Sprintf("%s, %s, %s: %.60q, then %.30q", c.name, c.bound, c.way, c.first, c.again)
}

// isFree reports whether the limit admits another request of the client's key.
func (c *trickler) isFree(t *testing.T, g *gateway) bool {
	got := statuses(send(t, g.Gateway, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Phase: "+c.key+"\r\n\r\n"))
	return len(got) == 1 && got[0] == "200"
}

// read reads until the connection ends, or the HTTP/2 stream if the bound is for streams.
func (c *trickler) read() (got []byte, err error) {
	p := make([]byte, 64<<10)
	for err == nil && !c.ended(got) {
		var n int
		n, err = c.conn.Read(p)
		got = append(got, p[:n]...)
	}
	return got, err
}

// ended reports whether the phase has ended before the connection.
func (c *trickler) ended(got []byte) bool {
	if c.over != overHTTP2 {
		return c.ends > 0 && len(finalStatuses(got)) == c.ends
	}
	return c.bound != "header_timeout" && c.bound != "idle_timeout" && streamEnded(got)
}

// finalStatuses returns the statuses of final responses of HTTP/1.
func finalStatuses(got []byte) []string {
	return slices.DeleteFunc(statuses(string(got)), func(s string) bool { return s[0] == '1' })
}

// streamEnded reports whether a stream has ended.
func streamEnded(got []byte) bool {
	r := http2.NewFramer(nil, bytes.NewReader(got))
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return false
		}
		_, reset := f.(*http2.RSTStreamFrame)
		if h := f.Header(); h.StreamID > 0 && (reset || h.Flags.Has(http2.FlagDataEndStream) && (h.Type == http2.FrameData || h.Type == http2.FrameHeaders)) {
			return true
		}
	}
}

// said returns the status of the first final response.
func (c *trickler) said(got []byte) string {
	if c.over != overHTTP2 {
		if all := finalStatuses(got); len(all) > 0 {
			return all[0]
		}
		return ""
	}
	r := http2.NewFramer(nil, bytes.NewReader(got))
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return ""
		}
		if m, ok := f.(*http2.MetaHeadersFrame); ok {
			return m.PseudoValue("status")
		}
	}
}

// last checks that the gateway keeps a client connected until the other clients have ended.
func (c *trickler) last(t *testing.T, addrs []string, over <-chan struct{}) {
	stop := c.open(t, addrs)
	if stop == nil {
		return
	}
	defer c.conn.Close()
	defer stop()
	<-over
	c.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if got, err := io.ReadAll(c.conn); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s, %s: ended after %v, with %v: %.200q", c.name, c.way, time.Since(c.began), err, got)
	}
}

// TestUnreadAnswers floods connections with requests, and with frames that HTTP/2 has to answer, and
// reads none of the responses: the gateway ends the connections.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n  bounds: { write_timeout: 2s, idle_timeout: 2s }\n", "127.0.0.1:1", "routes: [{ match: /, respond: { status: 200, body: \""+strings.Repeat("x", 4000)+"\" } }]\n")
	const hello = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	floods := [][2]string{
		{hello, frame(fPing, 0, 0, "12345678")}, {hello, frame(fSettings, 0, 0, "")},
		{"", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"}, {"", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"},
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range floods {
		conn, err := net.Dial("tcp", g.Gateway)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.(*net.TCPConn).SetReadBuffer(4 << 10) // or the system would take in answers by the million
		wg.Go(func() {
			_, err := io.WriteString(conn, f[0])
			for flood := strings.Repeat(f[1], 1000); err == nil; {
				_, err = io.WriteString(conn, flood)
			}
		})
	}
	servers.Poll(t, "the connections are there", func() bool { return g.Samples(t)["weir_connections_accepted_total"] == float64(len(floods)) })
	servers.Poll(t, "no connection is left", func() bool { return g.Samples(t)["weir_connections_open"] == 0 })
}
