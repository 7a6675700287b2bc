package edge

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// attempts is how many attempts of each kind are made at each upstream.
var attempts = flag.Int("attempts", 150, "attempts of each kind at each upstream")

// attempt is a request by which a client tries to reach an upstream with a used-up key.
type attempt struct {
	method  string // GET if empty; POST with trailers
	target  string
	fields  []string // alternating names and values
	trailer []string // the same
}

const (
	victim = "A7" // the used-up key
	limits = `
limits:
  header: { key: [host, header.x-api-key], on_missing: deny, token_bucket: { rate: 1/d, burst: 1 } }
  query: { key: [host, query.sku_id], on_missing: deny, token_bucket: { rate: 1/d, burst: 1 } }
  cookie: { key: [host, cookie.session], on_missing: deny, token_bucket: { rate: 1/d, burst: 1 } }
  admin: { key: host, token_bucket: { rate: 1/d, burst: 1 } }
  method: { key: host, token_bucket: { rate: 1/d, burst: 1 } }
`
)

// TestNothingReachesUncounted: a used-up key never reaches an upstream, however a client writes it:
// over HTTP/1 or HTTP/2, as read by each upstream. Nor does a request without the required header.
// (Some upstreams overlook parameters and cookies that are written in an unusual way.)
func TestNothingReachesUncounted(t *testing.T) {
	upstreams := observers(t)
	upstreams["php-as-such"] = upstreams["php"]
	upstreams["php-open"] = upstreams["php"] // the search must find what this policy leaves open
	text := "listen:\n  admin: 127.0.0.1:0\n  gateway: { address: \"127.0.0.1:0\", h2c: true }\n" + limits + "upstreams:\n"
	routes := "routes:\n"
	for name, addr := range upstreams {
		// Not buffered: chunks arrive as such, and a Content-Length that arrives was invented by
		// the client. uWSGI reads no chunks.
		text += fmt.Sprintf("  %s: { url: \"http://%s\", buffer_request: %s }\n", name, addr, map[bool]string{true: "{ memory: 1MiB }", false: "off"}[name == "uwsgi"])
		for _, r := range []struct{ method, path, limit string }{{"", "/h", "header"}, {"", "/q", "query"}, {"", "/c", "cookie"}, {"DELETE ", "/m", "method"}, {"", "/admin", "admin"}, {"", "/admin/", "admin"}} {
			routes += fmt.Sprintf("  - { match: \"%s%s.test%s\", upstream: %s, limits: [%s]", r.method, name, r.path, name, r.limit)
			switch name {
			case "php-as-such":
				routes += ", parameters: php"
			case "php-open":
				routes += ", underscore_headers: allow"
			}
			routes += " }\n"
		}
		routes += fmt.Sprintf("  - { match: %s.test/, upstream: %s }\n", name, name)
	}
	g := servePolicy(t, binary, text+routes)
	for name := range upstreams {
		t.Run(name, func(t *testing.T) {
			rng := seeds.Of(t.Name())
			s := &searcher{t: t, gateway: g.Gateway, host: name + ".test", statuses: map[int]int{}}
			s.useUp()
			for i, began := 0, time.Now(); searching(i, began, len(upstreams)); i++ {
				s.try(attempt{target: "/h", fields: headerVariants(rng)}, func(r reading) string { return r.Header })
				s.try(attempt{target: "/q?" + queryVariant(rng)}, func(r reading) string { return cmp.Or(r.Query, "none") })
				s.try(attempt{target: "/c", fields: []string{"Cookie", cookieVariant(rng)}}, func(r reading) string { return cmp.Or(r.Cookie, "none") })
				s.try(attempt{target: pathVariant(rng)}, func(r reading) string {
					if r.Admin {
						return victim
					}
					return "another path"
				})
				s.try(attempt{target: "/m", method: methodVariant(rng)}, func(r reading) string {
					if r.Method == "DELETE" {
						return victim
					}
					return "another method"
				})
				if i%4 == 0 {
					s.try(attempt{target: "/h", fields: []string{"X-Api-Key", fmt.Sprint("t", i)}, trailer: []string{foldedName(rng, "X-Api-Key"), victim}}, func(r reading) string { return r.Header })
				}
			}
			t.Logf("%d attempts, %d refused by a limit, %d as bad requests, %d arrived with other keys %v", s.all, s.limited, s.bad, s.arrived, s.statuses)
			if (s.found > 0) != strings.HasSuffix(name, "-open") {
				t.Errorf("%d attempts reached the upstream uncounted", s.found)
			}
			if s.arrived == 0 || s.limited == 0 || s.bad == 0 {
				t.Error("the search has become blind")
			}
		})
	}
}

// searching reports whether one of several searches goes on after that many attempts: for all
// attempts, and with -guard for its share of that time.
func searching(attempt int, began time.Time, searches int) bool {
	return attempt < *attempts || time.Since(began) < *guard/time.Duration(searches)
}

// searcher tries requests at one upstream.
type searcher struct {
	t                          *testing.T
	gateway, host              string
	all, limited, bad, arrived int
	found                      int // attempts that reached the upstream with the victim's key
	statuses                   map[int]int
}

// useUp uses up the victim's keys, and the empty ones that count ambiguous requests.
func (s *searcher) useUp() {
	for _, a := range []attempt{
		{target: "/h", fields: []string{"X-Api-Key", victim}}, {target: "/h", fields: []string{"X-Api-Key", "x", "X-Api-Key", "y"}}, {target: "/admin"},
		{target: "/q?sku_id=" + victim}, {target: "/q?sku_id=x&sku_id=y"}, {target: "/m", method: "DELETE"},
		{target: "/c", fields: []string{"Cookie", "session=" + victim}}, {target: "/c", fields: []string{"Cookie", "session=x; session=y"}},
	} {
		if status, _ := s.send1(a); status != 200 {
			s.t.Fatalf("%+v: %d", a, status)
		}
		if status, _ := s.send1(a); status != 429 {
			s.t.Fatalf("%+v, again: %d", a, status)
		}
	}
}

// try sends an attempt over each protocol. None may arrive with the victim's key.
func (s *searcher) try(a attempt, key func(reading) string) {
	for protocol, send := range map[string]func(attempt) (int, string){"HTTP/1": s.send1, "HTTP/2": s.send2} {
		status, body := send(a)
		s.all++
		switch {
		case status == 429:
			s.limited++
			continue
		case status >= 500 && status != http.StatusNotImplemented: // of a method
			s.t.Errorf("%s, %s: %d to %+q: %s", s.host, protocol, status, a, body)
			continue
		case status != 200:
			s.bad++
			s.statuses[status]++
			continue
		}
		var r reading
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			continue // nginx does not escape what it puts there: then it is not the victim's key
		}
		s.arrived++
		if got := key(r); got == victim || got == "" { // without a key, it should have been refused
			if s.found++; s.found < 5 {
				s.t.Logf("%s, %s: reached the upstream uncounted: %+q, read as %+v", s.host, protocol, a, r)
			}
		}
		if r.Length != "" && !strings.HasSuffix(s.host, "-open.test") {
			s.t.Errorf("%s, %s: a Content_Length arrived: %+q", s.host, protocol, a)
		}
	}
}

// send1 sends an attempt over HTTP/1.
func (s *searcher) send1(a attempt) (status int, body string) {
	conn, err := net.Dial("tcp", s.gateway)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(servers.Patience))
	var b strings.Builder
	method, end := cmp.Or(a.method, "GET"), "\r\n"
	if a.trailer != nil {
		method = "POST"
		end = fmt.Sprintf("Transfer-Encoding: chunked\r\nTrailer: %s\r\n\r\n1\r\nx\r\n0\r\n%s: %s\r\n\r\n", a.trailer[0], a.trailer[0], a.trailer[1])
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, a.target, s.host)
	for i := 0; i < len(a.fields); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", a.fields[i], a.fields[i+1])
	}
	io.WriteString(conn, b.String()+end)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// send2 sends an attempt over HTTP/2.
func (s *searcher) send2(a attempt) (status int, body string) {
	c := dialH2(s.t, s.gateway)
	defer c.Close()
	method := cmp.Or(a.method, "GET")
	if a.trailer != nil {
		method = "POST"
	}
	fields := []string{":method", method, ":scheme", "http", ":authority", s.host, ":path", a.target}
	if a.trailer != nil {
		fields = append(fields, "trailer", a.trailer[0])
	}
	for i, f := range a.fields {
		if i%2 == 0 {
			f = strings.ToLower(f)
		}
		fields = append(fields, f)
	}
	id := c.request(a.trailer == nil, fields...)
	if a.trailer != nil {
		c.WriteData(id, false, []byte("x"))
		c.trailers(id, strings.ToLower(a.trailer[0]), a.trailer[1])
	}
	return c.whole(id)
}

// foldedName returns a name that some upstreams may take for another one.
func foldedName(rng *rand.Rand, name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c == '-' && rng.IntN(2) > 0:
			b.WriteByte('_')
		case c == '-' && rng.IntN(2) > 0:
			b.WriteByte("_.!#$%&'*+^`|~-"[rng.IntN(15)])
		case rng.IntN(4) == 0:
			b.WriteString(strings.ToUpper(string(c)))
		default:
			b.WriteString(strings.ToLower(string(c)))
		}
	}
	return b.String()
}

func methodVariant(rng *rand.Rand) string {
	var b strings.Builder
	for _, c := range "DELETE" {
		b.WriteString(pick(rng, string(c), string(c), strings.ToLower(string(c))))
	}
	return pick(rng, "", "", "", "", " ", "\r\n", "\x00") + b.String() + pick(rng, "", "", "", "", " ", "\t", "\x00", "S")
}

func headerVariants(rng *rand.Rand) (fields []string) {
	value := pick(rng, victim, victim, " "+victim, victim+" ", "\t"+victim, victim+"\t ", victim+"\xa0", "\xa0"+victim, victim+"\x85", "\x0b"+victim, victim+"\x00", "\r\n "+victim)
	fields = []string{foldedName(rng, "X-Api-Key"), value}
	decoy := []string{"X-Api-Key", fmt.Sprint("d", rng.Uint32())}
	switch rng.IntN(4) {
	case 0:
		fields = append(fields, decoy...)
	case 1:
		fields = append(decoy, fields...)
	case 2: // the decoy is removed by the gateway
		fields = append(append(fields, decoy...), "Connection", "X-Api-Key")
	}
	if rng.IntN(8) == 0 {
		fields = append(fields, foldedName(rng, "Content_Length"), "5")
	}
	return fields
}

// escaped percent-encodes some characters of a text.
func escaped(rng *rand.Rand, text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if rng.IntN(6) == 0 {
			fmt.Fprintf(&b, pick(rng, "%%%02x", "%%%02X"), c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func queryVariant(rng *rand.Rand) string {
	name := pick(rng, "sku_id", "sku_id", "sku.id", "sku id", "sku+id", "sku[id", "sku_id%00", "sku_id%00x", " sku_id", "+sku_id", "%20sku_id", "sku_id[]", "sku_id[0]", "sku_id[a]", "[sku_id]", "SKU_ID", "Sku_Id", "sku%5fid", "sku_id ", "sku_id\t", "sku_id]", ";sku_id", "sku_id;")
	pair := escaped(rng, name) + "=" + escaped(rng, victim) + pick(rng, "", "", "", "", ";x", "#", "%00", "+", "%20", "\x7f", " ", "\xff")
	decoy := fmt.Sprintf("%s=d%d", pick(rng, "sku_id", "x"), rng.Uint32())
	return pick(rng, pair, pair, decoy+"&"+pair, pair+"&"+decoy, decoy+";"+pair, pair+";"+decoy, "&"+pair+"&", "?"+pair, decoy+"%26"+pair, decoy+" "+pair)
}

func cookieVariant(rng *rand.Rand) string {
	name := pick(rng, "session", "session", "Session", "SESSION", "session ", " session", `"session"`, "%73ession", "session[]", "session\t", "ses.sion", "$session")
	value := pick(rng, victim, victim, `"`+victim+`"`, url.PathEscape(victim), "%41"+victim[1:], `"\101`+victim[1:]+`"`, victim+" ", " "+victim, victim+`"`, victim+"\t", `"`+victim)
	pair, decoy := name+"="+value, fmt.Sprintf("session=d%d", rng.Uint32())
	switch rng.IntN(3) {
	case 0:
		return pair
	case 1:
		return decoy + pick(rng, "; ", ";", ", ", ",", " ", "\t", ";;", "; x=1; ", ";$Path=/; ") + pair
	default:
		return pair + pick(rng, "; ", ";", ", ", ",", " ", "\t", ";;", "; x=1; ") + decoy
	}
}

func pathVariant(rng *rand.Rand) string {
	p := pick(rng, "/admin", "/admin/", "/admin/x", "//admin", "/./admin", "/x/../admin", "/x/%2e%2e/admin", "/x/..%2fadmin", "/%2fadmin", "/%2e/admin", "/.//admin", "/x/.%2e/./admin", "/../admin", "/..%2f..%2fadmin")
	before, name, _ := strings.Cut(p, "admin")
	p = before + escaped(rng, "admin") + name
	return p + pick(rng, "", "", "", "/", "//", "/.", "?", "?x", "#", "%20", " ", "\t", "\x7f", "%00", "%0a", "\\", "\xff", ";x")
}
