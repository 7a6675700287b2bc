package listen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/plain"
)

const patience = 30 * time.Second

// serving is a port with one listener.
type serving struct {
	*Port
	l    *Listener
	addr string
	srv  *plain.Server
}

func serve(t *testing.T, b policy.Bounds, trusted []netip.Prefix, o Options, h http.HandlerFunc) *serving {
	t.Helper()
	p := NewPort(b, trusted)
	inner, err := Open("test", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{Port: p, l: p.Listen(inner, o), addr: inner.Addr().String(), srv: p.Front(h, slog.DiscardHandler, nil)}
	ended := make(chan error, 1)
	go func() { ended <- s.srv.Serve(s.l) }()
	t.Cleanup(func() {
		s.srv.Close()
		s.l.Close()
		if err := <-ended; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return s
}

func (s *serving) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a request and returns the response; "" if the connection was closed.
func ask(c net.Conn, raw string) string {
	io.WriteString(c, raw)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("it did not come to be: %s", what)
		}
	}
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

func peer(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	io.WriteString(w, host)
}

func TestBoundsOfConnections(t *testing.T) {
	s := serve(t, policy.Bounds{MaxConnections: 3, MaxClientConnections: 2}, nil, Options{}, peer)
	a, b := s.dial(t), s.dial(t)
	if ask(a, get) != "200 127.0.0.1" || ask(b, get) != "200 127.0.0.1" {
		t.Fatal("the first two")
	}
	if got := ask(s.dial(t), get); got != "" {
		t.Errorf("a third of one client: %q", got)
	}
	a.Close()
	until(t, "a place is given back", func() bool { return s.Counts().Open == 1 })
	if got := ask(s.dial(t), get); got != "200 127.0.0.1" {
		t.Errorf("in its place: %q", got)
	}
	if c := s.Counts(); c.Client != 1 || c.Full != 0 {
		t.Errorf("%+v", c)
	}
	// A trusted proxy brings many clients, so only the bound for all applies.
	s = serve(t, policy.Bounds{MaxConnections: 3, MaxClientConnections: 1}, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Options{}, peer)
	for range 3 {
		if got := ask(s.dial(t), get); got != "200 127.0.0.1" {
			t.Errorf("%q", got)
		}
	}
	if got := ask(s.dial(t), get); got != "" || s.Counts().Full != 1 {
		t.Errorf("a fourth: %q", got)
	}
}

func TestClientsByTheirPrefix(t *testing.T) {
	for _, c := range [][3]string{
		{"2001:db8::1", "2001:db8::2:3", "same"}, {"2001:db8::1", "2001:db8:0:1::1", "other"}, {"192.0.2.1", "192.0.2.2", "other"}, {"192.0.2.1", "192.0.2.1", "same"},
	} {
		if same := clientOf(netip.MustParseAddr(c[0])) == clientOf(netip.MustParseAddr(c[1])); same != (c[2] == "same") {
			t.Errorf("%v", c)
		}
	}
}

func TestProxyProtocol(t *testing.T) {
	us := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	s := serve(t, policy.Bounds{MaxClientConnections: 1}, nil, Options{ProxyProtocol: us}, peer)
	const line = "PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n"
	c := s.dial(t)
	for _, b := range line { // as slowly as it may come
		io.WriteString(c, string(b))
	}
	if got := ask(c, get); got != "200 192.0.2.7" {
		t.Errorf("%q", got)
	}
	if got := ask(s.dial(t), line+get); got != "" || s.Counts().Client != 1 {
		t.Errorf("another connection of the same client, by what the proxy says: %q", got)
	}
	for header, want := range map[string]string{
		"PROXY TCP6 2001:db8::1 ::1 1 2\r\n":            "200 2001:db8::1",
		"PROXY UNKNOWN\r\n":                             "200 127.0.0.1",
		block("21 11 000c c0000209 c6336401 dc04 01bb"): "200 192.0.2.9",
		"":              "",
		"PROXY TCP4 x ": "",
	} {
		if got := ask(s.dial(t), header+get); got != want {
			t.Errorf("%q: %q", header, got)
		}
	}
	if n := s.Counts().Header; n != 2 {
		t.Errorf("%d without the header", n)
	}
	// From other addresses nothing is accepted, with or without a header.
	s = serve(t, policy.Bounds{}, nil, Options{ProxyProtocol: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, peer)
	if ask(s.dial(t), line+get) != "" || ask(s.dial(t), get) != "" || s.Counts().Untrusted != 2 {
		t.Errorf("%+v", s.Counts())
	}
	// Without proxy_protocol, a header is not a valid request.
	s = serve(t, policy.Bounds{}, nil, Options{}, peer)
	if got := ask(s.dial(t), line+get); !strings.HasPrefix(got, "400 ") {
		t.Errorf("%q", got)
	}
	// A client that sends nothing delays no other.
	s = serve(t, policy.Bounds{HeaderTimeout: 20 * time.Millisecond}, nil, Options{ProxyProtocol: us}, peer)
	if got, err := io.ReadAll(s.dial(t)); len(got) > 0 || err != nil && !strings.Contains(err.Error(), "reset") || s.Counts().Header != 1 {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSlow: each kind of slow client is disconnected, and others are served meanwhile.
func TestSlow(t *testing.T) {
	bodies := make(chan error, 10)
	s := serve(t, policy.Bounds{HeaderTimeout: 100 * time.Millisecond, BodyTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond, MinBodyRate: 1 << 20}, nil, Options{H2C: true},
		func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/body":
				_, err := io.Copy(io.Discard, r.Body)
				bodies <- err
				if BodyError(r.Context()) != nil {
					w.WriteHeader(http.StatusRequestTimeout)
				}
			case "/big":
				var err error
				for p := make([]byte, 1<<20); err == nil; {
					_, err = w.Write(p)
				}
				bodies <- err
			case "/ignored":
			}
		})
	ended := func(c net.Conn) string {
		b, _ := io.ReadAll(c)
		return string(b)
	}
	c := s.dial(t)
	io.WriteString(c, "GET / HTTP/1.1\r\nHo")
	if got := ended(c); got != "" {
		t.Errorf("a header: %q", got)
	}
	c = s.dial(t)
	if got := ask(c, "GET /ignored HTTP/1.1\r\nHost: h\r\n\r\n"); got != "200 " {
		t.Fatal(got)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHo") // the second one: net/http would wait for two minutes
	if got := ended(c); got != "" {
		t.Errorf("the header of a second request: %q", got)
	}
	c = s.dial(t)
	io.WriteString(c, "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx")
	if err := <-bodies; !errors.Is(err, ErrBodySlow) {
		t.Errorf("a body: %v", err)
	}
	if got := ended(c); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
		t.Errorf("a body: %q", got)
	}
	c = s.dial(t) // net/http reads the rest of a body that the handler does not read
	io.WriteString(c, "POST /ignored HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nx")
	ended(c)
	c = s.dial(t)
	io.WriteString(c, "GET /big HTTP/1.1\r\nHost: h\r\n\r\n")
	if err := <-bodies; err == nil {
		t.Error("an answer that nobody takes")
	}
	// HTTP/2: the connection accepts what other streams write, and this stream is not read.
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	resp, err := client.Get("http://" + s.addr + "/big")
	if err != nil {
		t.Fatal(err)
	}
	if err := <-bodies; err == nil {
		t.Error("an answer that nobody takes, over HTTP/2")
	}
	if other, err := client.Get("http://" + s.addr + "/ignored"); err != nil || other.StatusCode != 200 {
		t.Errorf("another stream of the connection: %v", err)
	}
	resp.Body.Close()
	pr, pw := io.Pipe()
	defer pw.Close()
	go pw.Write([]byte("x"))
	resp, err = client.Post("http://"+s.addr+"/body", "text/plain", pr)
	if err := <-bodies; !errors.Is(err, ErrBodySlow) {
		t.Errorf("a body over HTTP/2: %v", err)
	}
	if err == nil && resp.StatusCode != 408 {
		t.Errorf("a body over HTTP/2: %s", resp.Status)
	}
}

// TestSlowTrailer: a trailer is part of the body, and may not take longer.
func TestSlowTrailer(t *testing.T) {
	slow := make(chan error, 1)
	s := serve(t, policy.Bounds{BodyTimeout: 100 * time.Millisecond, MinBodyRate: 1 << 20}, nil, Options{}, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		slow <- BodyError(r.Context())
	})
	for _, rest := range []string{"0\r\n", "0\r\nX-T: ", "0\r\nX-T: y\r\n"} {
		io.WriteString(s.dial(t), "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"+rest)
		if err := <-slow; !errors.Is(err, ErrBodySlow) {
			t.Errorf("%q: %v", rest, err)
		}
	}
}

// TestFastBody: a body that comes fast enough may take longer than the timeout.
func TestFastBody(t *testing.T) {
	s := serve(t, policy.Bounds{BodyTimeout: 5 * time.Second, MinBodyRate: 1}, nil, Options{}, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	if got := ask(s.dial(t), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"); got != "200 3<nil>" && got != "200 3 <nil>" {
		t.Error(got)
	}
	p := &pacedBody{port: NewPort(policy.Bounds{MinBodyRate: 500}, nil), n: 1250}
	if d := p.earned(); d != 2500*time.Millisecond {
		t.Errorf("1250 bytes at 500 a second may take %v", d)
	}
	p.n = 1 << 62
	if d := p.earned(); d <= 0 {
		t.Errorf("many bytes: %v", d)
	}
}

// TestBoundSilence: while a body is read before the decision, what came fast earns no time to stall. A
// body of 1 MiB could stall for 35 minutes, and kept its memory.
func TestBoundSilence(t *testing.T) {
	slow := make(chan error, 1)
	s := serve(t, policy.Bounds{BodyTimeout: 100 * time.Millisecond, MinBodyRate: 1}, nil, Options{}, func(w http.ResponseWriter, r *http.Request) {
		defer BoundSilence(r.Context())()
		io.Copy(io.Discard, r.Body)
		slow <- BodyError(r.Context())
	})
	io.WriteString(s.dial(t), "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10001\r\n\r\n"+strings.Repeat("a", 10000))
	select {
	case err := <-slow:
		if !errors.Is(err, ErrBodySlow) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the body may stall for as long as its bytes have earned")
	}
}

func TestBoundsOfRequests(t *testing.T) {
	s := serve(t, policy.Bounds{MaxFields: 5, MaxRequests: 2, MaxHeader: 4096}, nil, Options{}, peer)
	if got := ask(s.dial(t), "GET / HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("X: y\r\n", 5)+"\r\n"); got != "200 127.0.0.1" {
		t.Errorf("5 fields: %s", got)
	}
	if got := ask(s.dial(t), "GET / HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("X: y\r\n", 6)+"\r\n"); !strings.HasPrefix(got, "431 ") {
		t.Errorf("6 fields: %s", got)
	}
	if got := ask(s.dial(t), "GET / HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("y", 20_000)+"\r\n\r\n"); !strings.HasPrefix(got, "431 ") {
		t.Errorf("a long field: %s", got)
	}
	c := s.dial(t)
	io.WriteString(c, get+get+get)
	answers, _ := io.ReadAll(c)
	if n := bytes.Count(answers, []byte("HTTP/1.1 200 OK")); n != 2 {
		t.Errorf("%d requests of one connection: %s", n, answers)
	}
}

func TestRedirect(t *testing.T) {
	for port, want := range map[string]string{"443": "https://h/a?b", "8443": "https://h:8443/a?b"} {
		s := serve(t, policy.Bounds{}, nil, Options{RedirectHTTPS: port}, peer)
		for method, status := range map[string]int{"GET": 301, "POST": 308} {
			c := s.dial(t)
			io.WriteString(c, method+" /a?b HTTP/1.1\r\nHost: h:80\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || resp.StatusCode != status || resp.Header.Get("Location") != want {
				t.Errorf("%s: %v, %v", method, resp, err)
			}
		}
	}
}

// TestRedirectsToHosts: whatever the Host is, redirects lead to a valid host, and on request only
// to known ones.
func TestRedirectsToHosts(t *testing.T) {
	rng := seeds.Of(t.Name())
	hosts := []string{"h", "[evil", "h/", "h\\\\", "h@evil", "h:80@evil", "h?", "h#", "h%2f", "evil.h", "a.shop.example", "shop.example", "xshop.example", "SHOP.example.", "[::1]", "[::1]:80", "h:", "h:x", "", "..", "h..", "-"}
	const odd = "ah.-_:[]@/%\\?#1*,;=&~ "
	for range 100 {
		b := make([]byte, 1+rng.IntN(6))
		for i := range b {
			b[i] = odd[rng.IntN(len(odd))]
		}
		hosts = append(hosts, string(b))
	}
	for _, known := range [][]string{nil, {"h", "*.shop.example"}} {
		s := serve(t, policy.Bounds{}, nil, Options{RedirectHTTPS: "443", RedirectHosts: known}, peer)
		for _, host := range hosts {
			for _, version := range []string{"1.0", "1.1"} {
				c := s.dial(t)
				io.WriteString(c, "GET //a?b HTTP/"+version+"\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				to, err := url.Parse(resp.Header.Get("Location"))
				switch redirected := resp.StatusCode == http.StatusMovedPermanently; {
				case !redirected && resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusMisdirectedRequest:
					t.Errorf("%q: %s", host, resp.Status)
				case !redirected:
					if host == "h" || host == "a.shop.example" {
						t.Errorf("%q is not redirected: %s", host, resp.Status)
					}
				case err != nil || !httpsyntax.IsHost(to.Host) || to.User != nil || to.Path != "//a" || to.RawQuery != "b" ||
					!strings.HasPrefix(strings.ToLower(host), strings.TrimSuffix(strings.ToLower(to.Host), ".")):
					t.Errorf("%q is redirected to %q", host, resp.Header.Get("Location"))
				case known != nil && to.Host != "h" && !strings.HasSuffix(to.Host, ".shop.example"):
					t.Errorf("%q is redirected, and not known", host)
				}
			}
		}
	}
}
