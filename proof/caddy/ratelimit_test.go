package caddy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A configuration of mholt/caddy-ratelimit works as it is: zones with matchers, the tightest first, each
// with an exact window of its own, in a Caddyfile and in JSON.
func TestRateLimit(t *testing.T) {
	s := start(t, "order rate_limit before respond", `http://SITE {
	rate_limit {
		zone Static_Zone {
			match {
				method GET
				path /api*
			}
			key static
			window 1h
			events 4
		}
		zone by_key {
			key {http.request.header.X-Key}
			window 1h
			events 2
		}
		log_key
		jitter 0.5
		sweep_interval 1m
	}
	respond ok
	handle_errors {
		respond "{http.rate_limit.exceeded.name}" 429
	}
}
http://OTHER {
	rate_limit {
		zone six {
			key {remote_host}
			ipv4_prefix 8
			window 1s
			events 1
		}
	}
	respond ok
}`)
	s.want("/free", []string{"X-Key", "a"}, 200, 200, 429)
	s.want("/free", []string{"X-Key", "b"}, 200, 200, 429)
	s.want("/api/x", []string{"X-Key", "c"}, 200, 200)
	response, body := s.do("GET", s.site, "/api/x", "", "X-Key", "c")
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if response.StatusCode != 429 || body != "by_key" || err != nil || seconds < 3590 || seconds > 5400 {
		t.Errorf("%d %q, Retry-After %q", response.StatusCode, body, response.Header.Get("Retry-After"))
	}
	s.want("/api/x", []string{"X-Key", "d"}, 200, 200)
	if _, body := s.send("GET", s.site, "/api/x", "", "X-Key", "e"); body != "Static_Zone" {
		t.Errorf("refused by %q", body)
	}
	if status, _ := s.send("POST", s.site, "/api/x", "", "X-Key", "e"); status != 200 {
		t.Errorf("the zone does not match, and refuses: %d", status)
	}
	for _, text := range []string{`"rate limit exceeded","zone":"by_key"`, `"key":"c"`, `"setting":"sweep_interval"`, "ipv6_prefix 64"} {
		if !strings.Contains(s.Output(), text) {
			t.Errorf("the log lacks %s\n%s", text, s.Output())
		}
	}

	config := map[string]any{
		"admin": map[string]any{"listen": s.admin},
		"apps": map[string]any{"http": map[string]any{"servers": map[string]any{"one": map[string]any{
			"listen":          []string{s.site},
			"automatic_https": map[string]any{"disable": true},
			"routes": []any{map[string]any{"handle": []any{
				map[string]any{"handler": "rate_limit", "rate_limits": map[string]any{
					"json": map[string]any{
						"match": []any{map[string]any{"path": []string{"/json"}}}, "key": "{http.request.header.X-Key}", "window": "1h", "max_events": 1,
					},
				}},
				map[string]any{"handler": "static_response", "body": "ok"},
			}}},
		}}}},
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := s.send("POST", s.admin, "/load", string(data), "Content-Type", "application/json"); status != 200 {
		t.Fatal(body)
	}
	s.want("/json", []string{"X-Key", "a"}, 200, 429)
	s.want("/other", []string{"X-Key", "a"}, 200, 200)
}

// Mistakes are found before anything is served, with the line and what to write instead.
func TestMistakes(t *testing.T) {
	limit := func(lines string) string {
		return "http://:1 {\n\tweir {\n\t\tlimit a {\n" + lines + "\n\t\t}\n\t}\n}\n"
	}
	zone := func(lines string) string { return "http://:1 {\n\trate_limit {\n" + lines + "\n\t}\n}\n" }
	for name, c := range map[string]struct{ text, want string }{
		"rate":         {limit("key {client_ip}\nrate 10\nburst 5"), "Caddyfile:5: "},
		"misspelt":     {limit("key {client_ip}\ntoken_bucket rate=1/s burst=2\nshadov"), "Caddyfile:6: "},
		"in a block":   {limit("token_bucket {\nrate 1/s\nburts 2\n}"), "Caddyfile:6: "},
		"key":          {limit("key clientip\nrate 1/s\nburst 5"), "client.ip"},
		"placeholder":  {limit("key {}\nrate 1/s\nburst 5"), "Caddyfile:4"},
		"no such":      {limit("key {client_ipp}\nrate 1/s\nburst 5"), "Caddyfile:4: key: no placeholder of Caddy is named {client_ipp}: write {client_ip}"},
		"no prefix":    {limit("key {headers.X-Key}\nrate 1/s\nburst 5"), "write {header.X-Key}"},
		"no field":     {limit("key {http.request.remot.host}\nrate 1/s\nburst 5"), "write {http.request.remote.host}"},
		"global":       {"{\n\tweir {\n\t\tlimit a {\n\t\t\tkey {clent_ip}\n\t\t\trate 1/s\n\t\t\tburst 2\n\t\t}\n\t}\n}\n", "Caddyfile:4: key: no placeholder of Caddy is named {clent_ip}: write {client_ip}"},
		"zone's key":   {zone("zone a {\nkey {remotehost}\nwindow 1m\nevents 5\n}"), "zone a: key: no placeholder of Caddy is named {remotehost}: write {remote_host}"},
		"store":        {limit("rate 1/s\nburst 5\nstore away"), "Caddyfile:6: "},
		"unknown":      {"http://:1 {\n\tweir nobody\n}\n", "Caddyfile:2: there is no limit"},
		"none":         {"http://:1 {\n\tweir\n}\n", "Caddyfile:2: weir names no limit"},
		"setting":      {"http://:1 {\n\tweir {\n\t\trefuse 503\n\t}\n}\n", "Caddyfile:3"},
		"option":       {"{\n\tweir {\n\t\tstore shared reddis://127.0.0.1\n\t}\n}\n", "Caddyfile:3: "},
		"differently":  {"{\n\tweir {\n\t\tlimit a {\n\t\t\trate 1/s\n\t\t\tburst 2\n\t\t}\n\t}\n}\n" + limit("rate 1/s\nburst 5"), "differently"},
		"file":         {"http://:1 {\n\tweir {\n\t\tpolicy missing.yaml\n\t}\n}\n", "missing.yaml"},
		"upstream":     {"http://:1 {\n\tweir {\n\t\tpolicy upstream.yaml\n\t}\n}\n", "upstream"},
		"window":       {zone("zone a {\nkey {remote_host}\nevents 5\n}"), "zone a has no window"},
		"events":       {zone("zone a {\nkey {remote_host}\nwindow 1m\nevents 0\n}"), "Caddyfile:6"},
		"zone":         {zone("zone a {\nkeys {remote_host}\n}"), "Caddyfile:4"},
		"distributed":  {zone("zone a {\nkey {remote_host}\nwindow 1m\nevents 5\n}\ndistributed"), "distributed needs a store"},
		"jitter":       {zone("zone a {\nkey {remote_host}\nwindow 1m\nevents 5\n}\njitter 20"), "jitter 20"},
		"ipv6 address": {zone("zone a {\nkey {remote_host}\nwindow 1m\nevents 5\nipv6_prefix 129\n}"), "ipv6_prefix 129"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, text := range map[string]string{
				"Caddyfile":     c.text,
				"upstream.yaml": "limits:\n  a: { token_bucket: { rate: 1/s, burst: 2 } }\nupstreams:\n  app: { url: \"http://127.0.0.1:9\" }\nroutes:\n  - { match: /, upstream: app, limits: [a] }\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := command(t, dir, "validate", "--config", "Caddyfile").CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("want an error with %s\n%s\n%s", c.want, c.text, out)
			}
		})
	}
}

// The configurations of docs/caddy.md are valid.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/caddy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```caddyfile\n")[1:]
	if len(blocks) < 4 {
		t.Fatalf("%d configurations were found", len(blocks))
	}
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "Caddyfile"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := command(t, dir, "validate", "--config", "Caddyfile").CombinedOutput(); err != nil {
			t.Errorf("%s\n%s", text, out)
		}
	}
}
