package httpapi

import (
	"bytes"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document that the service serves.
type document struct {
	root     map[string]any
	mu       sync.Mutex // of compiler
	compiler *jsonschema.Compiler
}

func readDocument(t testing.TB) *document {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{root: parsed.(map[string]any), compiler: jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("mem:openapi.json", parsed); err != nil {
		t.Fatal(err)
	}
	return d
}

// at returns what stands at a path of names; nil for nothing. References are followed.
func (d *document) at(from any, names ...string) any {
	for _, name := range names {
		m, ok := d.follow(from).(map[string]any)
		if !ok {
			return nil
		}
		from = m[name]
	}
	return d.follow(from)
}

func (d *document) follow(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	ref, ok := m["$ref"].(string)
	if !ok {
		return v
	}
	return d.at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// valid returns why a text does not match the schema of a content; empty if it does.
func (d *document) valid(content any, kind, text string) string {
	schema, ok := d.at(content, kind).(map[string]any)
	if !ok {
		return "has no content of the type " + kind
	}
	ref, _ := schema["schema"].(map[string]any)["$ref"].(string)
	d.mu.Lock()
	defer d.mu.Unlock()
	compiled, err := d.compiler.Compile("mem:openapi.json" + ref)
	if err != nil {
		return err.Error()
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err == nil {
		err = compiled.Validate(value)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// answered returns in what a response differs from the document; empty for nothing, and for paths that
// are no operations.
func (d *document) answered(method, path string, status int, kind, text string) string {
	path, _, _ = strings.Cut(path, "?")
	op := d.at(d.root, "paths", path, strings.ToLower(method))
	if op == nil {
		return ""
	}
	response := d.at(op, "responses", fmt.Sprint(status))
	if response == nil {
		return fmt.Sprintf("%s %s: the status %d is not in the document", method, path, status)
	}
	kind, _, _ = mime.ParseMediaType(kind)
	if wrong := d.valid(d.at(response, "content"), kind, text); wrong != "" {
		return fmt.Sprintf("%s %s: %d: %s\n%s", method, path, status, wrong, text)
	}
	return ""
}

// TestDocumentIsTrue: every operation gives each answer that the document has, and each matches its
// schema; all other tests check theirs, too. What the service accepts matches the schema of requests.
func TestDocumentIsTrue(t *testing.T) {
	d := readDocument(t)
	one := `{"limit": "per-user", "key": ["a"]}`
	own := `{"charges": [{"name": "own", "key": "a", "limit": {"token_bucket": {"rate": "1/h", "burst": 5}}, "cost": 1, "keep": true}, {"name": "own", "key_base64": "/w", "limit": {"all": [{"fixed_window": {"limit": 1, "window": "1h"}}, {"sliding_log": {"limit": 1, "window": "1h"}}]}, "cost": 2}, {"op": "settle", "name": "own", "key": "a", "limit": {"token_bucket": {"rate": "1/h", "burst": 5}}, "cost": 1, "receipt": "bm8", "once": "a7", "once_for_ns": 60000000000}]}`
	limits := strings.Replace(limits, "burst: 5", "burst: 50", 1) + "  in-flight: { key: client.ip, concurrency: { limit: 50 } }\n  one: { key: header.a, on_missing: skip, concurrency: { limit: 1 } }\n" +
		"routes: [{ match: /, limits: [in-flight, one], respond: { status: 204 } }]\n"
	s := serve(t, limits, ", client_limits: {}", nil)
	_, out := s.post("reserve", one)
	id := out["reservation"].(string)
	const entered = `{"request": {"path": "/"}}`
	_, out = s.post("enter", entered)
	place := out["place"].(string)
	body := map[string][]string{ // of each operation, the first is accepted
		"take":    {one, `{"limits": [` + one + `]}`},
		"peek":    {one},
		"reserve": {one, `{"limit": "per-user", "key": ["z"], "cost": 2, "max_delay_ms": 1000, "hold_ms": 1000}`},
		"settle":  {`{"reservation": "` + id + `", "cost": 1}`},
		"cancel":  {`{"reservation": "` + id + `"}`},
		"batch":   {`{"calls": [{"op": "take", "call": ` + one + `}, {"op": "cancel", "call": {"reservation": "x"}}]}`},
		"charge":  {own},
		"enter":   {entered, `{"request": {"path": "/", "method": "POST", "host": "h.example", "client": "2001:db8::1", "headers": {"X-A": "b"}, "length": 5}, "hold_ms": 1000}`},
		"leave":   {`{"place": "` + place + `"}`},
	}
	seen := map[string]bool{}
	note := func(s *service, method, op, text string, fields ...string) int {
		path := "/v1/" + op
		status, _, _ := s.call(method, path, text, fields...) // which checks the answer
		path, _, _ = strings.Cut(path, "?")
		seen[fmt.Sprint(path, " ", status)] = true
		return status
	}
	note(s, "POST", "peek", one, "Idempotency-Key", "same")
	operations := slices.Sorted(maps.Keys(body))
	slices.Reverse(operations) // settle comes before cancel, which ends the same reservation
	for _, op := range operations {
		texts := body[op]
		for _, text := range texts {
			content := d.at(d.root, "paths", "/v1/"+op, "post", "requestBody", "content")
			if status := note(s, "POST", op, text); status != 200 && op != "cancel" {
				t.Errorf("%s: %d", op, status)
			}
			if wrong := d.valid(content, "application/json", text); wrong != "" {
				t.Errorf("%s: the document refuses what the service accepts: %s", op, wrong)
			}
		}
		note(s, "POST", op, `{"calls": []}`)
		note(s, "POST", op, texts[0], "Content-Type", "text/plain")
		note(s, "POST", op, strings.Repeat(" ", maxBody+1))
		note(s, "POST", op, texts[0], "Origin", "http://page.example")
		seen[fmt.Sprint("/v1/", op, " ", s.slowly(op))] = true
		note(s, "POST", op, `{"calls": [{"op": "peek", "call": {}}], "limit": "none"}`)
		note(s, "POST", op, texts[0], "Idempotency-Key", "same") // of another call, but for the peek
		note(s, "POST", op, strings.Replace(texts[0], "{", "{ ", 1), "Idempotency-Key", "same")
	}
	_, out = s.post("reserve", `{"limit": "per-user", "key": ["b"]}`)
	note(s, "POST", "cancel", `{"reservation": "`+out["reservation"].(string)+`"}`)
	const expired = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, x := range [][2]string{
		{"take", `{"limit": "per-user", "key": ["a"], "cost": 60}`}, {"peek", `{"limit": "per-user", "key": ["a"], "cost": 60}`}, {"reserve", `{"limit": "per-user", "key": ["a"], "cost": 60}`},
		{"take", `{"limit": "none", "key": []}`}, {"peek", `{"limit": "none", "key": []}`}, {"reserve", `{"limit": "none", "key": []}`},
		{"settle", `{"reservation": "` + expired + `", "cost": 1}`}, {"cancel", `{"reservation": "` + expired + `"}`},
		{"settle", `{"reservation": "none", "cost": 1}`}, {"cancel", `{"reservation": "none"}`},
		{"charge", `{"charges": [{"name": "own", "limit": {"no": {}}}]}`},
		{"leave", `{"place": "` + expired + `"}`}, {"leave", `{"place": "none"}`},
		{"enter", `{"request": {"path": "/", "headers": {"A": "b"}}}`}, {"enter", `{"request": {"path": "/", "headers": {"A": "b"}}}`},
	} {
		note(s, "POST", x[0], x[1])
	}
	for _, query := range []string{"usage?key=a", "usage", "usage?key=a&key=b&key=c&key=d", "explain?limit=per-user&key=a", "explain?limit=none", "explain?limit=per-user", "explain?limit=monthly&key=a&key=api"} {
		note(s, "GET", query, "")
		note(s, "GET", query, "", "Origin", "http://page.example")
	}
	closed := serve(t, limits, ", tokens: tokens.yaml", map[string]string{"tokens.yaml": "- { name: one, sha256: " + strings.Repeat("ab", 32) + ", scopes: [hook] }\n"})
	full := serve(t, limits, ", client_limits: { store: own }", nil, "stores: { own: { url: \"redis://127.0.0.1:1\" } }\n")
	full.policy.Now().Direct["own"] = failing{fmt.Errorf("down")}
	full.replays.size = maxReplaySum
	for _, op := range operations {
		texts := body[op]
		note(closed, "POST", op, texts[0])
		note(full, "POST", op, texts[0], "Idempotency-Key", "x")
		note(full, "POST", op, texts[0])
	}
	note(closed, "GET", "usage?key=a", "")
	note(closed, "GET", "explain?limit=per-user&key=a", "")
	for path, methods := range d.at(d.root, "paths").(map[string]any) {
		for method, op := range methods.(map[string]any) {
			for status := range d.at(op, "responses").(map[string]any) {
				unlikely := status == "500" || method == "get" && status == "503" // a defect; a client that leaves
				if !seen[path+" "+status] && !unlikely {
					t.Errorf("%s: no answer had the status %s", path, status)
				}
			}
		}
	}
}
