package edge

import (
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// conversations is how many random conversations there are beside those of wsCorpus.
var conversations = flag.Int("conversations", 60, "random conversations of WebSocket with each server")

// A wsTry is a conversation with a server, over a connection that is cut in some way.
type wsTry struct {
	wsCase
	server string // a path of the gateway
	waits  bool   // for the response, before the first frame
	cuts   []int  // what is sent after the request is cut there
	tls    bool
}

// TestWebSocketCorpus has conversations with three servers, through the gateway and directly. The client gets
// the same bytes, and so the same frames, and the same end; so does the server that takes notes.
func TestWebSocketCorpus(t *testing.T) {
	t.Parallel()
	o := newObserver(t)
	upstreams := map[string]string{"observer": o.addr, "library": libraryEcho(t), "node": nodeEcho(t)}
	dir := t.TempDir()
	selfSigned(t, dir)
	text := `
listen:
  admin: 127.0.0.1:0
  gateway: ["127.0.0.1:0", { address: "127.0.0.1:0", tls: { certificates: [{ cert: a.crt, key: a.key }] } }]
limits: { sockets: { concurrency: { limit: 20 } } }
upstreams: {`
	rest := "}\nroutes:\n"
	for name, addr := range upstreams {
		text += fmt.Sprintf(" %s: { url: \"http://%s\" },", name, addr)
		rest += fmt.Sprintf("  - { match: /%s, upstream: %s, limits: [sockets] }\n", name, name)
	}
	g := &gateway{servers.PolicyIn(t, dir, strings.TrimSuffix(text, ",")+rest)}
	g.Start(t, binary)
	addrs := g.addresses(t)

	rng, n := seeds.Of(t.Name()), 0
	rounds(t, func() {
		var wg sync.WaitGroup
		places := make(chan struct{}, 10) // half of those of the limit: the gateway may notice the end of one later
		for _, try := range wsTries(rng) {
			n++
			i := n
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				try.compare(t, i, upstreams[try.server], addrs, o)
			})
		}
		wg.Wait()
		servers.Poll(t, "no connection is left", func() bool { return g.Samples(t)["weir_connections_open"] == 0 })
	})
	t.Logf("%d conversations", n)
}

// TestNoWebSocketOverHTTP2: the gateway does not announce RFC 8441, and refuses what it has not
// announced, so that no client relies on it.
func TestNoWebSocketOverHTTP2(t *testing.T) {
	t.Parallel()
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: { address: \"127.0.0.1:0\", h2c: true }\n", up.addr, routes)
	c := dialH2(t, g.Gateway)
	f, err := c.ReadFrame()
	if settings, ok := f.(*http2.SettingsFrame); !ok || settings.HasDuplicates() {
		t.Fatal(f, err)
	} else if v, announced := settings.Value(http2.SettingEnableConnectProtocol); announced && v != 0 {
		t.Error("RFC 8441 is announced")
	}
	id := c.request(false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "h", ":path", "/", "sec-websocket-version", "13")
	if got := c.answer(id); got == "200" {
		t.Error(got)
	}
	if arrived := up.take(); arrived != "" {
		t.Errorf("the upstream got %q", arrived)
	}
}

// wsTries is each conversation of the corpus with each server, once sent together with the request
// and once cut in another way, and as many random ones.
func wsTries(rng *rand.Rand) (all []wsTry) {
	for _, server := range []string{"observer", "library", "node"} {
		for _, c := range wsCorpus() {
			all = append(all, wsTry{wsCase: c, server: server}, anyCuts(rng, c, server))
		}
		for i := range *conversations {
			c := wsCase{fmt.Sprint("random ", i), anyConversation(rng)}
			all = append(all, anyCuts(rng, c, server))
		}
	}
	short := wsMessage(wsText, "a\n").bytes() + wsClosing(1000, "").bytes()
	for i := range len(short) {
		all = append(all, wsTry{wsCase: wsCase{"short", short}, server: "observer", cuts: []int{i}})
	}
	return all
}

// anyCuts divides a conversation nowhere, at a few places, or after each byte if it is short.
func anyCuts(rng *rand.Rand, c wsCase, server string) wsTry {
	try := wsTry{wsCase: c, server: server, waits: rng.IntN(3) > 0, tls: rng.IntN(3) == 0}
	switch {
	case rng.IntN(4) == 0:
	case len(c.sent) <= 400 && rng.IntN(3) == 0:
		for i := range c.sent {
			try.cuts = append(try.cuts, i)
		}
	default:
		for range 1 + rng.IntN(4) {
			try.cuts = append(try.cuts, rng.IntN(len(c.sent)+1))
		}
		slices.Sort(try.cuts)
	}
	return try
}

// A wsOutcome is what the client receives.
type wsOutcome struct{ head, body, end, noted string }

// compare runs a conversation through the gateway and directly.
func (c *wsTry) compare(t *testing.T, i int, upstream string, gateway []string, o *observer) {
	direct := func() (net.Conn, error) { return net.Dial("tcp", upstream) }
	through := func() (net.Conn, error) { return net.Dial("tcp", gateway[0]) }
	if c.tls {
		through = func() (net.Conn, error) { return tls.Dial("tcp", gateway[1], insecure()) }
	}
	id := fmt.Sprint(i)
	want, got := c.converse(t, direct, id+"-direct", o), c.converse(t, through, id+"-through", o)
	if want == got {
		return
	}
	at := 0
	for at < min(len(want.body), len(got.body)) && want.body[at] == got.body[at] {
		at++
	}
	name := fmt.Sprintf("%s: %s (waits: %v, TLS: %v, %d cuts %v)", c.server, c.name, c.waits, c.tls, len(c.cuts), c.cuts[:min(4, len(c.cuts))])
	t.Errorf("%s\ndirectly: %q, %d bytes, ... %.40q, %q\n%s\nthrough the gateway: %q, %d bytes, ... %.40q, %q\n%s", name,
		want.head, len(want.body), want.body[at:], want.end, want.noted, got.head, len(got.body), got.body[at:], got.end, got.noted)
}

// converse sends what the client sends, closes the sending side, and reads to the end.
func (c *wsTry) converse(t *testing.T, dial func() (net.Conn, error), id string, o *observer) (out wsOutcome) {
	conn, err := dial()
	if err != nil {
		t.Error(err)
		return out
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	request := "GET /" + c.server + " HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-Case: " + id + "\r\n\r\n"
	var wg sync.WaitGroup
	defer wg.Wait()
	switched := make(chan struct{})
	wg.Go(func() {
		text, cuts := request+c.sent, []int{}
		if c.waits {
			cuts = append(cuts, len(request))
		}
		for _, cut := range c.cuts {
			cuts = append(cuts, len(request)+cut)
		}
		at := 0
		for _, cut := range append(cuts, len(text)) {
			io.WriteString(conn, text[at:cut]) // the server may have ended it: then the answer says so
			if at = cut; c.waits && at == len(request) {
				<-switched
			}
		}
		<-switched // a client that closes its side before the response has left
		conn.(interface{ CloseWrite() error }).CloseWrite()
	})
	got, err := io.ReadAll(&teller{r: conn, of: "\r\n\r\n", seen: func() { close(switched) }})
	head, body, _ := bytes.Cut(got, []byte("\r\n\r\n"))
	out.head, out.body = wsHead(string(head)), string(body)
	if err != nil {
		out.end = err.Error()
		if inner := errors.Unwrap(err); inner != nil {
			out.end = inner.Error() // without the addresses
		}
	}
	wg.Wait() // the server may have closed its side before the client has sent everything
	conn.Close()
	if c.server == "observer" {
		select {
		case out.noted = <-o.of(id):
			o.notes.Delete(id)
		case <-time.After(servers.Patience):
			out.noted = "the server does not see an end"
		}
	}
	return out
}

// wsHead is the part of a response that is about the upgrade.
func wsHead(head string) string {
	var said []string
	for line := range strings.SplitSeq(head, "\r\n") {
		name, value, isField := strings.Cut(line, ":")
		name = strings.ToLower(name)
		if !isField || name == "upgrade" || name == "connection" || strings.HasPrefix(name, "sec-websocket-") {
			said = append(said, name+value)
		}
	}
	slices.Sort(said)
	return strings.Join(said, "; ")
}

// A teller is a reader that signals when it has read a text, or the end.
type teller struct {
	r    io.Reader
	of   string
	seen func() // nil once it was called
	got  []byte
}

func (t *teller) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if t.seen == nil {
		return n, err
	}
	if t.got = append(t.got, p[:n]...); err != nil || bytes.Contains(t.got, []byte(t.of)) {
		t.seen()
		t.seen, t.got = nil, nil
	}
	return n, err
}
