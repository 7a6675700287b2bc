package caddy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// hourly is a limit that refills nothing which a test would notice.
func hourly(name string, n int, settings ...string) string {
	return fmt.Sprintf("limit %s {\n%s\nfixed_window limit=%d window=9000h\n}\n", name, strings.Join(settings, "\n"), n)
}

// All limits are charged or none; the first that refuses says so in the fields, in handle_errors and in
// the log's placeholders.
func TestRefused(t *testing.T) {
	s := start(t, "weir {\n"+hourly("many", 4)+"}", `http://SITE {
	route /errors* {
		weir many {
			`+hourly("few", 2, "key {path}")+`
		}
		respond "in"
	}
	route /own* {
		weir {
			`+hourly("own", 1, "status 451")+`
			refused {
				status 503
				body "later"
			}
		}
		respond "in"
	}
	handle_errors {
		respond "{err.status_code} by {http.weir.limit} for {http.weir.retry_after}"
	}
}`)
	s.want("/errors/a", nil, 200, 200)
	response, body := s.do("GET", s.site, "/errors/a", "")
	retry := response.Header.Get("Retry-After")
	if response.StatusCode != 429 || retry == "" || body != "429 by few for "+retry || !strings.Contains(response.Header.Get("Ratelimit"), `"few";r=0`) {
		t.Fatalf("%d %q %v", response.StatusCode, body, response.Header)
	}
	s.want("/errors/b", nil, 200, 200, 429) // what few refused was not charged to many
	s.want("/own", nil, 200)
	response, body = s.do("GET", s.site, "/own", "")
	if response.StatusCode != 451 || body != "later" || response.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %q %v", response.StatusCode, body, response.Header)
	}
}

// Keys are what Caddy knows: its own client address, placeholders, and parts that never run together.
func TestKeys(t *testing.T) {
	sites := ""
	for path, settings := range map[string]string{
		"client": "key {client_ip}", "remote": "key {remote_host}", "pair": "key {header.X-A} {header.X-B}", "joined": "key {header.X-A}-{header.X-B}",
		"vars": "key {vars.who}", "once": "key {header.X-A}", "cost": "key {header.X-A}\ncost {vars.cost}",
	} {
		sites += fmt.Sprintf("route /%s {\nvars who {header.X-A}\nvars cost {header.X-Cost}\nweir {\n%s}\nrespond ok\n}\n", path, hourly(path, 1, settings))
	}
	s := start(t, "servers {\ntrusted_proxies static 127.0.0.1/32\n}", "http://SITE {\n"+sites+"}")
	from := func(ip string) []string { return []string{"X-Forwarded-For", ip} }
	s.want("/client", from("192.0.2.1"), 200, 429)
	s.want("/client", from("192.0.2.2"), 200, 429)
	s.want("/client", from("2001:db8::1"), 200)
	s.want("/client", from("2001:db8::ffff"), 429) // the same /64
	s.want("/client", from("2001:db8:0:1::1"), 200)
	s.want("/remote", from("192.0.2.1"), 200)
	s.want("/remote", from("192.0.2.2"), 429)
	for _, path := range []string{"/pair", "/joined"} {
		s.want(path, []string{"X-A", "a-", "X-B", "b"}, 200, 429)
		s.want(path, []string{"X-A", "a", "X-B", "-b"}, 200, 429)
		s.want(path, []string{"X-A", "\x01a\xff", "X-B", strings.Repeat("long", 2000)}[2:], 200, 429)
	}
	s.want("/vars", []string{"X-A", "me"}, 200, 429)
	s.want("/vars", []string{"X-A", "you"}, 200, 429)
	s.want("/once", []string{"X-A", "key"}, 200, 429)
	// a header field that is sent again does not make a new key each time
	s.want("/once", []string{"X-A", "key", "X-A", "1"}, 200)
	s.want("/once", []string{"X-A", "key", "X-A", "2"}, 429)
	s.want("/cost", []string{"X-A", "a", "X-Cost", "2"}, 429)
	s.want("/cost", []string{"X-A", "a", "X-Cost", "0"}, 400)
	s.want("/cost", []string{"X-A", "a", "X-Cost", "many"}, 400)
	s.want("/cost", []string{"X-A", "a", "X-Cost", "1"}, 200, 429)
}

// Short placeholders work in limits of the global option as in those of a site. A name that only map may
// set causes a warning.
func TestShortPlaceholders(t *testing.T) {
	s := start(t, "servers {\ntrusted_proxies static 127.0.0.1/32\n}\nweir {\n"+hourly("client", 1, "key {client_ip}")+
		hourly("field", 1, "key {header.X-A}", "on_missing deny")+hourly("cost", 2, "key {path}-{query.q}", "cost {header.X-Cost}")+hourly("mapped", 1, "key {tier}")+"}",
		"http://SITE {\nmap {header.X-A} {tier} {\ndefault {header.X-A}\n}\nweir /client client\nweir /field field\nweir /cost cost\nweir /mapped mapped\nrespond ok\n}")
	for _, from := range []string{"192.0.2.1", "192.0.2.2"} {
		s.want("/client", []string{"X-Forwarded-For", from}, 200, 429)
		s.want("/field", []string{"X-A", from}, 200, 429)
		s.want("/mapped", []string{"X-A", from}, 200, 429)
		s.want("/cost?q="+from, []string{"X-Cost", "2"}, 200, 429)
	}
	s.want("/field", nil, 429)
	if log := s.Output(); !strings.Contains(log, "{tier} is no placeholder of Caddy") {
		t.Error("there is no warning of {tier}\n" + log)
	}
}

// Without an order of its own, weir comes before logins: guesses of passwords are counted.
func TestOrder(t *testing.T) {
	const login = "basic_auth {\nbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nrespond ok\n"
	s := start(t, "", "http://SITE {\n"+login+"weir {\n"+hourly("guesses", 2, "key {client_ip}")+"}\n}\n"+
		"http://OTHER {\n"+login+"rate_limit {\nzone guesses2 {\nkey {remote_host}\nwindow 1h\nevents 2\n}\n}\n}")
	s.want("/", nil, 401, 401, 429)
	for _, want := range []int{401, 401, 429} {
		if got, _ := s.send("GET", s.other, "/", ""); got != want {
			t.Errorf("rate_limit: %d, want %d", got, want)
		}
	}
}

// Waiting and concurrency work as in the gateway: a place is held until the response has ended.
func TestConcurrency(t *testing.T) {
	s := start(t, "", `http://SITE {
	weir {
		limit one {
			concurrency limit=1
		}
	}
	reverse_proxy OTHER
}
http://OTHER {
	respond ok
}`)
	for range 5 {
		s.want("/", nil, 200) // each gives its place back
	}
}

// A policy file brings its routes, wherever a handler names it; a change of the file is noticed.
func TestPolicyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(limit int) {
		text := fmt.Sprintf("limits:\n  shop: { key: client.ip, fixed_window: { limit: %d, window: 9000h } }\n  plain: { status: 451, fixed_window: { limit: 1, window: 9000h } }\nroutes:\n  - { match: /shop/, limits: [shop], refused: { status: 503, body: busy } }\n  - { match: /plain, limits: [plain] }\n", limit)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(2)
	s := start(t, "", "http://SITE {\nweir {\npolicy "+file+"\n}\nrespond ok\nhandle_errors {\nrespond \"{err.status_code} by {http.weir.limit}\"\n}\n}\nhttp://OTHER {\nweir {\npolicy "+file+"\n}\nrespond ok\n}")
	s.want("/free", nil, 200, 200, 200)
	s.want("/shop/a", nil, 200)
	for _, want := range []int{200, 503} {
		if status, _ := s.send("GET", s.other, "/shop/b", ""); status != want {
			t.Fatal(status)
		}
	}
	write(4)
	servers.Poll(t, "the change of the file is noticed", func() bool { return s.get("/shop/a") == 200 })
	s.want("/shop/a", nil, 200, 503)
	s.want("/plain", nil, 200)
	for path, want := range map[string]string{"/plain": "451 by plain", "/shop/a": "busy"} {
		if response, body := s.do("GET", s.site, path, ""); body != want || response.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %q %v", path, response.StatusCode, body, response.Header)
		}
	}
}

// Operators see counts in Caddy's metrics, learn why a key is refused, and reset it.
func TestAdmin(t *testing.T) {
	s := start(t, "metrics", "http://SITE {\nweir {\n"+hourly("mine", 1, "key {client_ip}")+"}\nrespond ok\n}")
	s.want("/", nil, 200, 429, 429)
	_, metrics := s.send("GET", s.admin, "/metrics", "")
	for _, line := range []string{
		`weir_limit_requests_total{limit="mine",outcome="allowed",policy="caddy"} 1`,
		`weir_limit_requests_total{limit="mine",outcome="limited",policy="caddy"} 2`,
	} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if strings.Contains(metrics, "127.0.0.1\"") && strings.Contains(metrics, "weir_limit_requests_total{limit=\"127") {
		t.Error("a key is in the metrics")
	}
	status, body := s.send("GET", s.admin, "/weir/explain?limit=mine&key=127.0.0.1", "")
	var x struct {
		Allowed bool
		By      string
		Retry   int64 `json:"retry_after_ms"`
	}
	if err := json.Unmarshal([]byte(body), &x); err != nil || status != 200 || x.Allowed || x.By != "limit" || x.Retry <= 0 {
		t.Errorf("explain: %d %s", status, body)
	}
	if status, body := s.send("GET", s.admin, "/weir/explain?limit=yours&key=a", ""); status != 400 || !strings.Contains(body, "yours") {
		t.Errorf("explain of a limit that does not exist: %d %s", status, body)
	}
	if status, body := s.send("POST", s.admin, "/weir/reset?limit=mine&key=127.0.0.1", ""); status != http.StatusNoContent {
		t.Errorf("reset: %d %s", status, body)
	}
	s.want("/", nil, 200, 429)
	s.mustLoad("metrics", "http://SITE {\nrespond ok\n}")
	if status, _ := s.send("GET", s.admin, "/weir/explain?limit=mine&key=127.0.0.1", ""); status != 404 {
		t.Errorf("explain without limits: %d", status)
	}
}
