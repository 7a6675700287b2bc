package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/weirclient"
)

// service is a face that serves a policy.
type service struct {
	*Face
	t      testing.TB
	folder string
	token  string
	api    *document
	log    bytes.Buffer
}

const limits = `
limits:
  per-user: { key: header.user, token_bucket: { rate: 1/h, burst: 5 } }
  per-ip: { key: client.ip, token_bucket: { rate: 1/h, burst: 2 } }
  monthly: { key: [header.user, const.api], fixed_window: { limit: 10, window: 720h } }
`

// serve serves a policy, whose listen.http has more settings. files are written beside it.
func serve(t testing.TB, text, settings string, files map[string]string, more ...string) *service {
	t.Helper()
	s := &service{t: t, folder: t.TempDir(), api: readDocument(t)}
	text = strings.Join(more, "") + text
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(s.folder, "policy.yaml")
	file, err := policyfile.Parse(path, []byte("listen: { http: { address: \"127.0.0.1:0\""+settings+" } }\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	if wrong := Check(file); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	log := slog.New(slog.NewTextHandler(&s.log, nil))
	p, err := active.New(t.Context(), file, active.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(t.Context(), face.Host{Policy: p, Log: log, Metrics: prometheus.NewRegistry(), Ready: func() bool { return true },
		Listen: func(address string) (net.Listener, error) { return net.Listen("tcp", address) }})
	if err != nil {
		t.Fatal(err)
	}
	s.Face = f.(*Face)
	ended := make(chan error, 1)
	go func() { ended <- f.Serve() }()
	t.Cleanup(func() {
		f.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		p.Close()
	})
	return s
}

func (s *service) url(path string) string { return "http://" + s.Addresses()[0] + path }

// call sends a request, and returns its status, its header and its body as one line.
func (s *service) call(method, path, body string, fields ...string) (int, http.Header, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url(path), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i < len(fields); i += 2 {
		if req.Header.Set(fields[i], fields[i+1]); fields[i] == "Host" {
			req.Host = fields[i+1]
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // which follows no redirect
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if wrong := s.api.answered(method, path, resp.StatusCode, resp.Header.Get("Content-Type"), string(data)); wrong != "" {
		s.t.Errorf("the document is wrong: %s", wrong)
	}
	return resp.StatusCode, resp.Header, strings.TrimSpace(string(data))
}

// post is call for an operation, with the fields of its answer.
func (s *service) post(op, body string, fields ...string) (int, map[string]any) {
	s.t.Helper()
	status, _, text := s.call("POST", "/v1/"+op, body, fields...)
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return status, out
}

func (s *service) left(key string) float64 {
	s.t.Helper()
	quoted, _ := json.Marshal(key)
	_, out := s.post("peek", `{"limit": "per-user", "key": [`+string(quoted)+`]}`)
	return out["limits"].([]any)[0].(map[string]any)["remaining"].(float64)
}

// TestVerbs: each operation does what its name says, with the status and the header fields of a
// refusal.
func TestVerbs(t *testing.T) {
	s := serve(t, limits, "", nil)
	for i := range 2 {
		if status, out := s.post("take", `{"limit": "per-ip", "key": ["192.0.2.1"]}`); status != 200 || out["allowed"] != true {
			t.Errorf("%d: %d %v", i, status, out)
		}
	}
	status, h, text := s.call("POST", "/v1/take", `{"limit": "per-ip", "key": ["192.0.2.1"]}`)
	if status != 429 || h.Get("Retry-After") != "3600" || h.Get("RateLimit") != `"per-ip";r=0;t=3600` || !strings.Contains(text, `"retry_after_ms":3600000`) && !strings.Contains(text, `"retry_after_ms":3599`) {
		t.Errorf("%d %v %s", status, h, text)
	}
	if status, out := s.post("take?status=200", `{"limit": "per-ip", "key": ["192.0.2.1"]}`); status != 200 || out["allowed"] != false || out["limit"] != "per-ip" {
		t.Errorf("%d %v", status, out)
	}
	if status, h, text := s.call("POST", "/v1/take", `{"limit": "per-ip", "key": ["192.0.2.2"], "cost": 3}`); status != 429 || h.Get("Retry-After") != "" || strings.Contains(text, "retry_after") {
		t.Errorf("no wait helps, and yet: %d %v %s", status, h, text)
	}
	both := `{"limits": [{"limit": "per-user", "key": ["a"], "cost": 2}, {"limit": "per-ip", "key": ["192.0.2.1"]}]}`
	if status, out := s.post("take", both); status != 429 || out["limit"] != "per-ip" || s.left("a") != 5 {
		t.Errorf("all or nothing: %d %v, %v left", status, out, s.left("a"))
	}
	status, out := s.post("reserve", `{"limit": "per-user", "key": ["a"], "cost": 4}`)
	id, _ := out["reservation"].(string)
	if status != 200 || id == "" || s.left("a") != 1 {
		t.Fatalf("%d %v", status, out)
	}
	if status, out := s.post("settle", `{"reservation": "`+id+`", "cost": 1}`); status != 200 || s.left("a") != 4 {
		t.Errorf("%d %v, %v left", status, out, s.left("a"))
	}
	if status, out := s.post("settle", `{"reservation": "`+id+`", "cost": 1}`); status != 404 || out["field"] != "reservation" {
		t.Errorf("settled twice: %d %v", status, out)
	}
	_, out = s.post("reserve", `{"limit": "per-user", "key": ["a"], "cost": 4}`)
	if status, _ := s.post("cancel", `{"reservation": "`+out["reservation"].(string)+`"}`); status != 200 || s.left("a") != 4 {
		t.Errorf("%d, %v left", status, s.left("a"))
	}
	status, out = s.post("reserve", `{"limit": "per-user", "key": ["a"], "cost": 5, "max_delay_ms": 3600000}`)
	if status != 200 || out["delay_ms"].(float64) < 3590000 {
		t.Errorf("ahead of its time: %d %v", status, out)
	}
	status, out = s.post("batch", `{"calls": [{"op": "take", "call": {"limit": "per-user", "key": ["b"]}}, {"op": "take", "call": {"limit": "per-user", "key": ["b"], "cost": 9}}, {"op": "usage", "call": {}}, {"op": "take", "call": {"limit": "none"}}]}`)
	var got []any
	for _, r := range out["results"].([]any) {
		got = append(got, r.(map[string]any)["status"])
	}
	if fmt.Sprint(got) != "[200 429 400 404]" || s.left("b") != 4 {
		t.Errorf("%d %v", status, out)
	}
	if status, _, text := s.call("GET", "/v1/usage?key=b&limit=per-user", ""); status != 200 || !strings.Contains(text, `"used":1,"remaining":4`) {
		t.Errorf("%d %s", status, text)
	}
	if status, _, text := s.call("GET", "/v1/explain?limit=per-ip&key=192.0.2.1", ""); status != 200 || !strings.Contains(text, `"decided_by":"limit"`) || !strings.Contains(text, `"clears_at"`) || !strings.Contains(text, "token_bucket burst=2 rate=1/h") {
		t.Errorf("%d %s", status, text)
	}
	if err := s.policy.Engine().Override(policy.Override{Limit: "per-ip", Key: []string{"192.0.2.9"}, Ban: true, For: 1e12}); err != nil {
		t.Fatal(err)
	}
	if _, _, text := s.call("GET", "/v1/explain?limit=per-ip&key=192.0.2.9", ""); !strings.Contains(text, `"decided_by":"ban"`) || !strings.Contains(text, "is banned for") {
		t.Error(text)
	}
}

// TestWrongCalls: what is wrong is named with its field and a fix; nothing is charged.
func TestWrongCalls(t *testing.T) {
	s := serve(t, limits, "", nil)
	for body, want := range map[string]string{
		``:                                  `400|the body is empty`,
		`{`:                                 `400|`,
		`[]`:                                `400|the body is a JSON array, and not an object`,
		`{"limit": "per-user", "key": "a"}`: `400|key is a JSON string, and not an array`,
		`{"limit": "per-user", "key": ["a"], "cost": "1"}`:                                            `400|cost is a JSON string, and not a whole number`,
		`{"limits": [{"limit": "per-user", "key": ["a"]}, {"limit": "per-user", "key": ["a", "b"]}]}`: `422|"field":"limits[1].key"`,
		`{"limit": "per-user", "key": ["a"], "plan": "gold"}`:                                         `422|"detail":"there is no plan \"gold\"","field":"plan","fix":"take plan out: the policy has no plans"`,
		`{"limt": "per-user"}`:     `400|unknown field`,
		`{"limit": 7}`:             `400|"field":"limit"`,
		`{"limit": "per-user"} {}`: `400|text after`,
		`{"limit": "per-user", "key": ["a"], "limit": "monthly"}`: `400|"limit\" is there twice`,
		`{"limit": "per-user", "key": ["a"], "Limit": "monthly"}`: `400|is there twice`,
		`{"limit": "per-usr", "key": ["a"]}`:                      `404|did you mean \"per-user\"?`,
		`{"limit": "per-user"}`:                                   `422|"detail":"it has 0 parts, and the key of \"per-user\" has 1 part","field":"key"`,
		`{"limit": "per-user", "key": ["a"], "cost": -1}`:         `422|"field":"cost"`,
		`{"limit": "per-user", "key": ["a"], "cost": 1.5}`:        `400|`,
		`{"limit": "per-user", "key": ["a"], "cost": 1e99}`:       `400|`,
		"{\"limit\": \"per-user\", \"key\": [\"\xff\"]}":          `400|the body is not UTF-8`,
		`{"limit": "per-user", "key": ["\ud83d"]}`:                `400|half of a surrogate pair: \\ud83d`,
		`{"limit": "per-user", "key": ["\\\udE00\ud83d"]}`:        `400|half of a surrogate pair: \\udE00`,
		`{"limit": "per-user", "key": ["\ud83dx\ude00"]}`:         `400|half of a surrogate pair`,
		`{"limit": "per-ip", "key": ["x"]}`:                       `422|not an IP address`,
		`{}`:                                                      `422|no limit is named`,
		`{"limit": "per-user", "limits": []}`:                     `400|there are a limit and limits`,
		`{"limit": "per-user", "key": ["a"], "hold_ms": 5}`:       `400|/v1/reserve`,
		strings.Repeat(" ", maxBody+1):                            `413|`,
		`{"limits": [` + strings.Repeat(`{"limit": "per-user", "key": ["a"]},`, 300) + `{"limit": "per-user", "key": ["a"]}]}`: `422|at most 256`,
	} {
		code, text, _ := strings.Cut(want, "|")
		status, h, got := s.call("POST", "/v1/take", body)
		if fmt.Sprint(status) != code || !strings.Contains(got, text) || h.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.80s: %d %s, and not %s", body, status, got, want)
		}
	}
	for _, x := range [][]string{
		{"GET", "/v1/take", "405"}, {"POST", "/v1/usage", "405"}, {"GET", "/", "404"}, {"GET", "/openapi.json", "200"}, {"GET", "/healthz", "200"},
		{"POST", "/v1/take", "415", "Content-Type", "text/plain"}, {"POST", "/v1/take", "403", "Origin", "http://evil.example"}, {"POST", "/v1/take", "403", "Host", "evil.example"},
		{"POST", "/v1/take", "400", "Idempotency-Key", strings.Repeat("x", 65)}, {"POST", "/v1/take", "400", "Idempotency-Key", "a b"},
	} {
		if status, _, text := s.call(x[0], x[1], `{"limit": "per-user", "key": ["a"]}`, x[3:]...); fmt.Sprint(status) != x[2] {
			t.Errorf("%v: %d %s", x, status, text)
		}
	}
	if left := s.left("a"); left != 5 {
		t.Errorf("%v left", left)
	}
}

// TestKeysAreText: a key of any characters has a count of its own, however they are written; bytes that are no
// text are an error, and not all the same key.
func TestKeysAreText(t *testing.T) {
	s := serve(t, limits, "", nil)
	for _, key := range []string{`😀`, `\ud83d\ude00`, `\\ud83d`, `\\\\ud83d`, `\ufffd`, `a\"\u00e9`, `\u0000`} {
		if status, out := s.post("take", `{"limit": "per-user", "key": ["`+key+`"]}`); status != 200 {
			t.Errorf("%s: %d %v", key, status, out)
		}
	}
	for key, want := range map[string]float64{"😀": 3, `\ud83d`: 4, `\\ud83d`: 4, "\uFFFD": 4, "a\"é": 4, "\x00": 4} {
		if left := s.left(key); left != want {
			t.Errorf("%q: %v left, want %v", key, left, want)
		}
	}
	if _, err := s.client(weirclient.Options{}).Allow(t.Context(), "per-user", "\xff"); err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("the Go client: %v", err)
	}
	results, err := s.client(weirclient.Options{}).Batch(t.Context(), weirclient.Call{Asks: []weirclient.Ask{{Limit: "per-user", Key: []string{"\xff"}}}})
	if err == nil {
		t.Errorf("a batch: %v", results)
	}
}

// TestLimitThatCannotBeTaken: a limit that the policy has is not one that it lacks, also where no call can take
// from it. Its status was 404.
func TestLimitThatCannotBeTaken(t *testing.T) {
	s := serve(t, limits+"  places: { key: header.user, concurrency: { limit: 2 } }\n", "", nil)
	for name, want := range map[string]int{"places": 422, "place": 404} {
		if status, out := s.post("take", `{"limit": "`+name+`", "key": ["a"]}`); status != want || out["field"] != "limit" {
			t.Errorf("%s: %d %v", name, status, out)
		}
	}
}

// TestSeveralEntries: the header fields of a call with several keys of one limit are about the key that
// refused, and what was not charged is still there; a settlement with a wrong number of costs changes
// nothing, and can be corrected.
func TestSeveralEntries(t *testing.T) {
	s := serve(t, limits, "", nil)
	s.post("take", `{"limit": "per-user", "key": ["ann"], "cost": 5}`)
	both := `{"limits": [{"limit": "per-user", "key": ["bob"]}, {"limit": "per-user", "key": ["ann"]}, {"limit": "per-user", "key": ["eve"]}]}`
	status, h, text := s.call("POST", "/v1/take", both)
	var out struct{ Limits []map[string]any }
	if err := json.Unmarshal([]byte(text), &out); err != nil || len(out.Limits) != 3 {
		t.Fatal(text, err)
	}
	if status != 429 || h.Get("RateLimit") != `"per-user";r=0;t=3600` || len(h.Values("RateLimit")) != 1 {
		t.Errorf("%d %v", status, h)
	}
	bob, ann, eve := out.Limits[0], out.Limits[1], out.Limits[2]
	if bob["remaining"] != 5. || bob["reset_after_ms"] != 0. || ann["allowed"] != false || ann["remaining"] != 0. || eve["not_evaluated"] != true || bob["not_evaluated"] != nil {
		t.Errorf("%v", out.Limits)
	}
	// one key several times is one charge: no wait helps if the sum can never fit
	s.post("take", `{"limit": "per-user", "key": ["kim"]}`)
	for cost, helps := range map[string]bool{"2": true, "3": false} {
		twice := `{"limits": [{"limit": "per-user", "key": ["kim"], "cost": 3}, {"limit": "per-user", "key": ["kim"], "cost": ` + cost + `}]}`
		if status, out := s.post("take", twice); status != 429 || (out["retry_after_ms"] != nil) != helps {
			t.Errorf("cost %s: %d %v", cost, status, out)
		}
	}
	_, made := s.post("reserve", `{"limits": [{"limit": "per-user", "key": ["bob"], "cost": 2}, {"limit": "per-user", "key": ["eve"], "cost": 2}]}`)
	id, _ := made["reservation"].(string)
	for _, costs := range []string{`"costs": [1, 1, 1]`, `"costs": []`, `"costs": [1, -1]`, `"cost": -1`, `"cost": 1, "costs": [1, 1]`} {
		want := 400.0
		if strings.Contains(costs, "-1") {
			want = 422
		}
		if _, out := s.post("settle", `{"reservation": "`+id+`", `+costs+`}`); out["status"] != want || out["fix"] == nil {
			t.Errorf("%s: %v, want %v", costs, out, want)
		}
	}
	if status, out := s.post("settle", `{"reservation": "`+id+`", "costs": [1, 4]}`); status != 200 || s.left("bob") != 4 || s.left("eve") != 1 {
		t.Errorf("%d %v, %v and %v left", status, out, s.left("bob"), s.left("eve"))
	}
}

// TestTokens: without a token nothing is answered; a token reaches its scopes and its limits; another
// caller cannot end its reservations; a new file counts at once.
func TestTokens(t *testing.T) {
	entry := func(name, token, more string) string {
		return fmt.Sprintf("- { name: %s, sha256: %x, %s }\n", name, sha256.Sum256([]byte(token)), more)
	}
	s := serve(t, limits, ", tokens: tokens.yaml", map[string]string{"tokens.yaml": entry("one", "token-one", "scopes: [take, peek, reserve], limits: [per-user]") + entry("two", "token-two", "scopes: [reserve, usage]")})
	one := `{"limit": "per-user", "key": ["a"]}`
	for _, x := range []struct {
		token, path, body string
		want              int
	}{
		{"", "take", one, 401}, {"token-on", "take", one, 401}, {" ", "take", one, 401}, {"token-two", "take", one, 403}, {"token-one", "take", one, 200},
		{"token-one", "take", `{"limit": "per-ip", "key": ["192.0.2.1"]}`, 403}, {"token-one", "peek", one, 200},
		{"token-one", "batch", `{"calls": [{"op": "take", "call": ` + one + `}]}`, 200},
	} {
		s.token = x.token
		if status, out := s.post(x.path, x.body); status != x.want {
			t.Errorf("%q %s %s: %d %v", x.token, x.path, x.body, status, out)
		}
	}
	s.token = "token-one"
	_, out := s.post("reserve", one)
	id := out["reservation"].(string)
	if status, _, _ := s.call("GET", "/v1/usage?key=a", ""); status != 403 {
		t.Errorf("usage without the scope: %d", status)
	}
	s.token = "token-two"
	if status, _ := s.post("cancel", `{"reservation": "`+id+`"}`); status != 404 {
		t.Errorf("the reservation of another: %d", status)
	}
	_, out = s.post("batch", `{"calls": [{"op": "take", "call": `+one+`}]}`)
	if fmt.Sprint(out["results"].([]any)[0].(map[string]any)["status"]) != "403" {
		t.Errorf("a batch evades the scope: %v", out)
	}
	file := filepath.Join(s.folder, "tokens.yaml")
	if err := os.WriteFile(file, []byte("- { name: x }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Tick()
	if status, _, _ := s.call("GET", "/v1/usage?key=a", ""); status != 200 {
		t.Errorf("a broken file took the tokens out: %d", status)
	}
	if err := os.WriteFile(file, []byte(entry("three", "token-three", "scopes: [usage]")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Tick()
	if status, _, _ := s.call("GET", "/v1/usage?key=a", ""); status != 401 {
		t.Errorf("a token that is not there any more: %d", status)
	}
	if strings.Contains(s.log.String(), "token-") {
		t.Errorf("the log has a token: %s", &s.log)
	}
	for text, want := range map[string]string{
		entry("a", "", "scopes: [take]"): "empty text", entry("a", "test", "scopes: [take]"): "sample",
		"[]": "no token", "- { name: a, sha256: 00, scopes: [take] }": "SHA-256", "x": "list",
		entry("a", "b", "scopes: [all]"): "no scope", entry("a", "b", "scopes: [take], limits: [no]"): "no limit", entry("a", "b", "scopes: [take]") + entry("c", "b", "scopes: [take]"): "of another",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readTokens(file, &s.policy.File().Policy); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestEmptyTokenAtTheDoor: a request with an empty token has none, whatever hashes are known.
func TestEmptyTokenAtTheDoor(t *testing.T) {
	known := &tokens{byHash: map[[sha256.Size]byte]*token{}}
	for _, text := range []string{"", "t"} {
		k := &token{hash: sha256.Sum256([]byte(text))}
		known.byHash[k.hash] = k
	}
	for sent, found := range map[string]bool{"Bearer ": false, "Bearer": false, "Bearer t": true} {
		r := httptest.NewRequest("POST", "/v1/take", nil)
		r.Header.Set("Authorization", sent)
		if (known.find(r) != nil) != found {
			t.Errorf("%q", sent)
		}
	}
}

// TestErrorsNameTheField: an explanation without a limit, and a settlement below 0, name what the caller has
// written.
func TestErrorsNameTheField(t *testing.T) {
	s := serve(t, limits, "", nil)
	if status, _, out := s.call("GET", "/v1/explain?key=a", ""); status != 404 || !strings.Contains(out, `"no limit is named","field":"limit"`) {
		t.Errorf("%d %s", status, out)
	}
	for body, field := range map[string]string{`{"reservation": "x", "cost": -4}`: "cost", `{"reservation": "x", "costs": [1, -4]}`: "costs[1]"} {
		if status, out := s.post("settle", body); status != 422 || out["field"] != field {
			t.Errorf("%s: %d %v", body, status, out)
		}
	}
	for _, address := range []string{"http://127.0.0.1:1/v1/take", "http://127.0.0.1:1/v1"} {
		if _, err := weirclient.New(address, weirclient.Options{}); err == nil {
			t.Errorf("%s is taken for the address of a server", address)
		}
	}
}
