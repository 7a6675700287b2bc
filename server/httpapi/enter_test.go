package httpapi

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/server/outstanding"
	"github.com/weirflow/weir/weirclient"
)

const inFlight = `
limits:
  per-client: { key: client.ip, token_bucket: { rate: 1/h, burst: 3 } }
  exports: { key: header.x-tenant, on_missing: skip, concurrency: { limit: 1 } }
routes:
  - { match: /export, limits: [per-client, exports], respond: { status: 204 } }
  - { match: /search, adaptive: { knee: { initial: 1, max: 1 } }, respond: { status: 204 } }
  - { match: /plain, limits: [per-client], respond: { status: 204 } }
`

// tokenLine is an entry of a file with tokens.
func tokenLine(name, token, scopes string) string {
	return fmt.Sprintf("- { name: %s, sha256: %x, scopes: %s }\n", name, sha256.Sum256([]byte(token)), scopes)
}

// enterCall is a call of enter.
func enterCall(path, client string, fields ...string) string {
	var headers []string
	for i := 0; i < len(fields); i += 2 {
		headers = append(headers, fmt.Sprintf("%q: %q", fields[i], fields[i+1]))
	}
	return fmt.Sprintf(`{"request": {"path": %q, "client": %q, "headers": {%s}}}`, path, client, strings.Join(headers, ", "))
}

// TestEnter: a request keeps its places until it leaves, and what it is charged, together or not at all.
func TestEnter(t *testing.T) {
	s := serve(t, inFlight, "", nil)
	status, first := s.post("enter", enterCall("/export", "192.0.2.1", "x-tenant", "a"))
	if status != 200 || first["allowed"] != true || first["place"] == nil || first["hold_ms"] != 60000.0 {
		t.Fatalf("%d %v", status, first)
	}
	if status, h, text := s.call("POST", "/v1/enter", enterCall("/export", "192.0.2.1", "X-Tenant", "a")); status != 429 || !strings.Contains(text, `"limit":"exports","status":429`) || strings.Contains(text, "place") {
		t.Errorf("without a place: %d %v %s", status, h, text)
	}
	if status, got := s.post("enter", enterCall("/export", "192.0.2.1", "X-Tenant", "b")); status != 200 || got["place"] == first["place"] {
		t.Errorf("another tenant: %d %v", status, got)
	}
	if _, h, _ := s.call("POST", "/v1/enter", enterCall("/plain", "192.0.2.1")); h.Get("RateLimit") != `"per-client";r=0;t=10800` { // what was refused was not charged
		t.Errorf("%v", h)
	}
	if status, got := s.post("enter", enterCall("/plain", "192.0.2.1")); status != 429 || got["limit"] != "per-client" || got["retry_after_ms"].(float64) < 3590_000 {
		t.Errorf("%d %v", status, got)
	}
	if status, _, text := s.call("POST", "/v1/enter?status=200", enterCall("/plain", "192.0.2.1")); status != 200 || !strings.Contains(text, `"allowed":false`) {
		t.Errorf("%d %s", status, text)
	}
	place := first["place"].(string)
	for i, want := range []int{200, 404} {
		if status, got := s.post("leave", `{"place": "`+place+`"}`); status != want {
			t.Errorf("leaving, %d: %d %v", i, status, got)
		}
	}
	if status, _ := s.post("enter", enterCall("/export", "192.0.2.2", "X-Tenant", "a")); status != 200 {
		t.Errorf("after it has left: %d", status)
	}
	if status, got := s.post("enter", enterCall("/none", "192.0.2.1")); status != 200 || got["place"] != nil {
		t.Errorf("without a route: %d %v", status, got)
	}
	for body, field := range map[string]string{
		`{}`:                        "request",
		`{"request": {}}`:           "request.path",
		`{"request": {"path": ""}}`: "request.path",
		`{"request": {"path": "/"}, "hold_ms": -1}`:                       "hold_ms",
		`{"request": {"path": "/"}, "hold_ms": 3600001}`:                  "hold_ms",
		`{"request": {"path": "/", "method": "GE T"}}`:                    "request.method",
		`{"request": {"path": "/", "client": "host"}}`:                    "request.client",
		`{"request": {"path": "/", "client": "1.2.3.4:5"}}`:               "request.client",
		`{"request": {"path": "/", "headers": {"a b": "c"}}}`:             "request.headers",
		`{"request": {"path": "/", "headers": {"a": "c\r\nX: y"}}}`:       "request.headers",
		`{"request": {"path": "/", "headers": {"a-b": "c", "A-B": "d"}}}`: "A-B",
		`{"request": {"path": "/", "length": -1}}`:                        "request.length",
	} {
		if status, got := s.post("enter", body); status != 400 || got["field"] != field {
			t.Errorf("%s: %d %v", body, status, got)
		}
	}
	if status, got := s.post("leave", `{"place": "x", "outcome": "fine"}`); status != 400 || got["field"] != "outcome" {
		t.Errorf("%d %v", status, got)
	}
}

// TestEnterRefusesWhatTheGatewayRefuses: clients choose the path and the host, so one that no application should read
// is a refusal, and no error that a caller may take for an outage.
func TestEnterRefusesWhatTheGatewayRefuses(t *testing.T) {
	s := serve(t, inFlight, "", nil)
	for _, request := range []string{
		`{"path": "/export#1"}`, `{"path": "/export\\x"}`, `{"path": "/ "}`, `{"path": "x"}`, `{"path": "*"}`, `{"path": "http://shop.example/export"}`,
		`{"path": "/export", "host": "a b"}`, `{"path": "/export", "host": "shop.example\r\n"}`, `{"path": "/export", "host": "shop.example:x"}`,
	} {
		if status, _, text := s.call("POST", "/v1/enter", `{"request": `+request+`}`); status != 429 || text != `{"allowed":false,"status":400}` {
			t.Errorf("%s: %d %s", request, status, text)
		}
	}
	if status, got := s.post("enter", `{"request": {"path": "/plain", "host": "[2001:db8::1]:8080"}}`); status != 200 {
		t.Errorf("%d %v", status, got)
	}
}

// TestClientEntersWithALength: a Go program says how long the body is.
func TestClientEntersWithALength(t *testing.T) {
	s := serve(t, `
limits:
  bytes: { key: client.ip, cost: bytes, token_bucket: { rate: 1/h, burst: 100 } }
routes:
  - { match: /, limits: [bytes], respond: { status: 204 } }
`, "", nil)
	c := s.client(weirclient.Options{})
	for i, want := range []bool{true, false} {
		got, err := c.Enter(t.Context(), weirclient.Request{Path: "/", Client: "192.0.2.1", Length: 60}, 0)
		if err != nil || got.Allowed != want {
			t.Errorf("%d: %+v %v", i, got, err)
		}
	}
}

// TestEnterAdaptive: the limit of a route finds itself from what the callers say of their requests.
func TestEnterAdaptive(t *testing.T) {
	s := serve(t, inFlight, "", nil)
	for outcome, want := range map[string]string{"ok": "{1 0 0 1}", "ignored": "{0 1 0 1}", "dropped": "{0 0 1 1}"} {
		before := s.policy.Engine().AdaptiveCounts()[0].Outcomes
		status, got := s.post("enter", enterCall("/search", "192.0.2.1"))
		if status != 200 {
			t.Fatalf("%d %v", status, got)
		}
		if status, refused := s.post("enter", enterCall("/search", "192.0.2.1")); status != 429 || refused["status"] != 503.0 || refused["retry_after_ms"] != 1000.0 {
			t.Errorf("beside it: %d %v", status, refused)
		}
		if status, _ := s.post("leave", `{"place": "`+got["place"].(string)+`", "outcome": "`+outcome+`"}`); status != 200 {
			t.Errorf("%d", status)
		}
		o := s.policy.Engine().AdaptiveCounts()[0].Outcomes
		o.OK, o.Ignored, o.Dropped, o.Refused = o.OK-before.OK, o.Ignored-before.Ignored, o.Dropped-before.Dropped, o.Refused-before.Refused
		if fmt.Sprint(o) != want {
			t.Errorf("%s: %v, want %s", outcome, o, want)
		}
	}
}

// TestEnterAtOnce: of callers at once, no more are in flight than the limit says, and at the end none is.
func TestEnterAtOnce(t *testing.T) {
	s := serve(t, strings.Replace(inFlight, "limit: 1", "limit: 3", 1), "", nil)
	var mu sync.Mutex
	in, most := 0, 0
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				status, got := s.post("enter", enterCall("/export", fmt.Sprintf("192.0.2.%d", i), "X-Tenant", "a"))
				if status != 200 {
					continue
				}
				mu.Lock()
				in++
				most = max(most, in)
				mu.Unlock()
				mu.Lock()
				in--
				mu.Unlock()
				s.post("leave", `{"place": "`+got["place"].(string)+`"}`)
			}
		})
	}
	all.Wait()
	if most > 3 || s.places.Len() != 0 {
		t.Errorf("%d at once, %d left", most, s.places.Len())
	}
}

// TestPlacesExpire: a place whose holder is gone is free, and its requests say nothing about the latency.
func TestPlacesExpire(t *testing.T) {
	s := serve(t, inFlight, "", nil)
	now := time.Now()
	s.places = outstanding.NewPlaces(outstanding.Options{Now: func() time.Time { return now }})
	_, got := s.post("enter", enterCall("/search", "192.0.2.1"))
	now = now.Add(time.Minute)
	s.Tick()
	if a := s.policy.Engine().AdaptiveCounts()[0]; a.InFlight != 0 || a.Outcomes.Ignored != 1 {
		t.Errorf("%+v", a)
	}
	if status, body := s.post("leave", `{"place": "`+got["place"].(string)+`"}`); status != 410 {
		t.Errorf("%d %v", status, body)
	}
}

// TestEnterTokens: a token needs the scope, must be for all limits, and leaves no place of another one.
func TestEnterTokens(t *testing.T) {
	s := serve(t, inFlight, ", tokens: tokens.yaml", map[string]string{"tokens.yaml": tokenLine("one", "a", "[enter]") + tokenLine("two", "b", "[enter]") + tokenLine("three", "c", "[take]") +
		strings.Replace(tokenLine("four", "d", "[enter]"), "}", ", limits: [per-client] }", 1)})
	body := enterCall("/search", "192.0.2.1")
	for token, want := range map[string]int{"c": 403, "d": 403, "x": 401} {
		if status, _, text := s.call("POST", "/v1/enter", body, "Authorization", "Bearer "+token); status != want {
			t.Errorf("%s: %d %s", token, status, text)
		}
	}
	_, got := s.post("enter", body, "Authorization", "Bearer a")
	leave := `{"place": "` + got["place"].(string) + `"}`
	for _, x := range []struct {
		token string
		want  int
	}{{"b", 404}, {"c", 403}, {"a", 200}} {
		if status, _, text := s.call("POST", "/v1/leave", leave, "Authorization", "Bearer "+x.token); status != x.want {
			t.Errorf("%s: %d %s", x.token, status, text)
		}
	}
}

// TestClientEnters: a Go program enters and leaves, once.
func TestClientEnters(t *testing.T) {
	s := serve(t, inFlight, "", nil)
	c := s.client(weirclient.Options{})
	export := weirclient.Request{Method: "POST", Host: "shop.example", Path: "/export?id=1", Client: "192.0.2.1", Header: map[string]string{"X-Tenant": "a"}}
	first, err := c.Enter(t.Context(), export, time.Second)
	if err != nil || !first.Allowed {
		t.Fatalf("%+v %v", first, err)
	}
	if got, err := c.Enter(t.Context(), export, 0); err != nil || got.Allowed || got.Limit != "exports" || got.Status != 429 || got.RetryAfter != weir.Never || got.Leave(t.Context(), weir.OK) != nil {
		t.Errorf("%+v %v", got, err)
	}
	for range 2 {
		if err := first.Leave(t.Context(), weir.OK); err != nil {
			t.Error(err)
		}
	}
	if s.places.Len() != 0 {
		t.Errorf("%d places are left", s.places.Len())
	}
	search := weirclient.Request{Path: "/search"}
	for _, o := range []weir.Outcome{weir.OK, weir.Ignore, weir.Dropped} {
		got, err := c.Enter(t.Context(), search, 0)
		if err != nil || !got.Allowed {
			t.Fatalf("%+v %v", got, err)
		}
		if err := got.Leave(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(s.policy.Engine().AdaptiveCounts()[0].Outcomes); got != "{1 1 1 0}" {
		t.Errorf("ok, ignored, dropped, refused: %s", got)
	}
}

// TestEnterWithoutRoom: a request for which there is no more place is charged nothing.
func TestEnterWithoutRoom(t *testing.T) {
	s := serve(t, inFlight, "", nil)
	s.places = outstanding.NewPlaces(outstanding.Options{Max: 1})
	status, first := s.post("enter", enterCall("/export", "192.0.2.1", "x-tenant", "a"))
	if status != 200 {
		t.Fatalf("%d %v", status, first)
	}
	for range 3 {
		if status, got := s.post("enter", enterCall("/export", "192.0.2.1", "x-tenant", "b")); status != 503 || !strings.Contains(fmt.Sprint(got["detail"]), "too many requests are in flight") {
			t.Errorf("%d %v", status, got)
		}
	}
	if _, h, _ := s.call("POST", "/v1/enter", enterCall("/plain", "192.0.2.1")); h.Get("RateLimit") != `"per-client";r=1;t=7200` {
		t.Errorf("%v", h)
	}
	if status, _ := s.post("leave", `{"place": "`+first["place"].(string)+`"}`); status != 200 {
		t.Errorf("%d", status)
	}
	s.places = outstanding.NewPlaces(outstanding.Options{Max: 2})
	for i, want := range []int{200, 429, 429, 429} { // what a limit refuses needs no room
		if status, got := s.post("enter", enterCall("/export", fmt.Sprint("192.0.2.", 10+i), "x-tenant", "c")); status != want {
			t.Errorf("%d: %d %v", i, status, got)
		}
	}
}
