package policyfile

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/raced"
)

// TestFixesCanBePasted: invalid policies, the exact problem of each, and the policy after its fixes
// were pasted, which is valid.
func TestFixesCanBePasted(t *testing.T) {
	raced.Skip(t)
	const limit = "limits:\n  api:\n    key: client.ip\n    token_bucket: { rate: 10/s, burst: 20 }\n"
	const route = "routes:\n  - match: /\n    limits: [api]\n"
	for name, c := range map[string]struct {
		text  string
		wants []string
	}{
		"parameters beside the algorithm": {
			"limits:\n  api:\n    key: client.ip\n    token_bucket:\n    rate: 10/s\n    burst: 20\n" + route,
			[]string{"p:5:5: error: rate, burst: these belong to token_bucket: indent them further than it\n\tfix: token_bucket: { rate: 10/s, burst: 20 }"},
		},
		"a parameter beside the algorithm": {
			"limits:\n  api:\n    key: client.ip\n    token_bucket: { burst: 20 }\n    rate: 10/s\n" + route,
			[]string{"p:5:5: error: rate: these belong to token_bucket: indent them further than it\n\tfix: token_bucket: { burst: 20, rate: 10/s }"},
		},
		"a parameter that is there twice": {
			"limits:\n  api:\n    key: client.ip\n    token_bucket: { rate: 10/s, burst: 20 }\n    rate: 3/s\n" + route,
			[]string{"p:5:5: error: rate is a parameter of token_bucket, which has one already\n\tfix: remove the line"},
		},
		"parameters without an algorithm": {
			"limits:\n  api:\n    key: client.ip\n    rate: 10/s\n    burst: 5\n" + route,
			[]string{"p:4:5: error: rate, burst: these are parameters of an algorithm, and the limit names none\n\tfix: token_bucket: { rate: 10/s, burst: 5 }"},
		},
		"a rate without an algorithm": {
			"limits:\n  api:\n    rate: 10/s\n    key: client.ip\n" + route,
			[]string{"p:3:5: error: rate: these are parameters of an algorithm, and the limit names none\n\tfix: token_bucket: { rate: 10/s, burst: 20 }"},
		},
		"a window without an algorithm": {
			"limits:\n  api:\n    limit: 10\n    window: 1m\n" + route,
			[]string{"p:3:5: error: limit, window: these are parameters of an algorithm, and the limit names none\n\tfix: fixed_window: { limit: 10, window: 1m }"},
		},
		"a store that is not there": {
			strings.Replace(limit, "burst: 20 }\n", "burst: 20 }\n    store: main\n", 1) + route,
			[]string{"p:5:12: error: there is no store \"main\"\n\tfix: add at the end: stores: { main: { url: redis://127.0.0.1:6379 } }"},
		},
		"an upstream that is not there": {
			limit + route + "    upstream: app\n",
			[]string{"p:8:15: error: there is no upstream \"app\"\n\tfix: add at the end: upstreams: { app: { url: http://127.0.0.1:9000 } }"},
		},
		"a limit that is not there": {
			route,
			[]string{"p:3:14: error: there is no limit \"api\"\n\tfix: add at the end: limits: { api: { key: client.ip, token_bucket: { rate: 10/s, burst: 20 } } }"},
		},
		"a path for a match": {limit + "routes:\n  - path: /x\n    limits: [api]\n", []string{"p:6:5: error: there is no key \"path\" here\n\tfix: match: /x"}},
		"a text for a list":  {limit + "routes:\n  - match: /\n    limits: api\n", []string{"p:7:13: error: this is a text, and must be a list\n\tfix: limits: [api]"}},
		"a text for a count": {strings.Replace(limit, "burst: 20", `burst: "20"`, 1) + route, []string{"p:4:40: error: this is a text, and must be a whole number\n\tfix: burst: 20"}},
		"a port for an address": {
			"listen:\n  gateway: 8080\n" + limit + "upstreams: { up: { url: http://127.0.0.1:9 } }\nroutes:\n  - match: /\n    upstream: up\n    limits: [api]\n",
			[]string{"p:2:12: error: this is a number, and must be a text or a list or a map\n\tfix: gateway: \":8080\""},
		},
		"a port for admin":                             {"listen:\n  admin: 9090\n" + limit + route, []string{"p:2:10: error: this is a number, and must be a text\n\tfix: admin: 127.0.0.1:9090"}},
		"a rate without a duration":                    {strings.Replace(limit, "10/s", "10", 1) + route, []string{"p:4:27: error: a rate is a count and a duration, like 10/s or 10/m: the duration is missing\n\tfix: rate: 10/s"}},
		"a missing parameter":                          {strings.Replace(limit, ", burst: 20", "", 1) + route, []string{"p:4:5: error: burst is missing: How many requests may come at once (the bucket's capacity); at least 1\n\tfix: burst: 20"}},
		"a path without its slash":                     {limit + "routes:\n  - match: GET api/x\n    limits: [api]\n", []string{"p:6:12: warning: \"GET api/x\" matches requests for the host api: a path begins with /\n\tfix: match: GET /api/x"}},
		"a route that can be passed":                   {limit + "routes:\n  - match: POST /pay\n    limits: [api]\n  - match: /\n", []string{"p:6:12: warning: requests for /pay/ and /PAY pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /pay; if yours does not, write false\n\tfix: add below line 6: paths: { ignore_case: true, ignore_trailing_slash: true }"}},
		"a route that can be passed by case":           {"paths: { ignore_trailing_slash: true }\n" + limit + "routes:\n  - match: /pay\n    limits: [api]\n  - match: /\n", []string{"p:7:12: warning: requests for /PAY pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /pay; if yours does not, write false\n\tfix: replace paths in line 1 with: paths: { ignore_case: true, ignore_trailing_slash: true }"}},
		"a route with paths that can be passed":        {limit + "routes:\n  - match: /pay\n    limits: [api]\n    paths:\n      ignore_trailing_slash: false\n      ambiguous: allow\n  - match: /\n", []string{"p:6:12: warning: requests for /PAY pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /pay; if yours does not, write false\n\tfix: replace paths in lines 8 to 10 with: paths: { ignore_case: true, ignore_trailing_slash: false, ambiguous: allow }"}},
		"a route in braces that can be passed":         {"paths: { ignore_semicolons: true }\n" + limit + "upstreams: { a: { url: http://127.0.0.1:8 } }\nroutes:\n  - { match: /pay, limits: [api], upstream: a }\n  - match: /\n", []string{"p:8:14: warning: requests for /pay/ and /PAY pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /pay; if yours does not, write false\n\tfix: add after the brace of line 8, column 5: paths: { ignore_case: true, ignore_trailing_slash: true },"}},
		"a route with ignore_case":                     {limit + "routes:\n  - match: /pay\n    limits: [api]\n    ignore_case: true\n  - match: /\n", []string{"p:6:12: warning: requests for /pay/ pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /pay; if yours does not, write false\n\tfix: replace ignore_case in line 8 with: paths: { ignore_case: true, ignore_trailing_slash: true }"}},
		"a route with ignore_case in braces":           {limit + "routes:\n  - { match: /pay, limits: [api], ignore_case: false }\n  - match: /\n", []string{"p:6:14: warning: requests for /pay/ pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /pay; if yours does not, write false\n\tfix: replace ignore_case in line 6 with: paths: { ignore_case: false, ignore_trailing_slash: true }"}},
		"a route with ignore_case and paths":           {limit + "routes:\n  - match: /pay\n    limits: [api]\n    ignore_case: true\n    paths: { ambiguous: allow }\n  - match: /\n", []string{"p:6:12: warning: requests for /pay/ pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /pay; if yours does not, write false\n\tfix: remove ignore_case in line 8, and replace paths in line 9 with: paths: { ignore_case: true, ignore_trailing_slash: true, ambiguous: allow }"}},
		"a key with a path that has several spellings": {strings.Replace(limit, "client.ip", "path", 1) + "routes:\n  - match: /api/\n    limits: [api]\n", []string{"p:6:12: warning: requests for /api/a/ and /api/A and /api/a;x=1 have counters of their own in the limit \"api\", whose key has path, and many upstreams (Express, Rails, ASP.NET, Tomcat) serve them like /api/a; if yours does not, write false\n\tfix: add below line 6: paths: { ignore_case: true, ignore_trailing_slash: true, ignore_semicolons: true }"}},
		"a variable of a key with several spellings":   {strings.Replace(limit, "client.ip", "path.id", 1) + "routes:\n  - match: /item/{id}\n    limits: [api]\n    paths: { ignore_case: true }\n", []string{"p:6:12: warning: requests for /item/a;x=1 have counters of their own in the limit \"api\", whose key has path.id, and many upstreams (Express, Rails, ASP.NET, Tomcat) serve them like /item/a; if yours does not, write false\n\tfix: replace paths in line 8 with: paths: { ignore_case: true, ignore_semicolons: true }"}},
		"a route that can be passed, and counts spellings": {strings.Replace(limit, "client.ip", "path", 1) + "routes:\n  - match: /a/\n    limits: [api]\n  - match: /\n", []string{
			"p:6:12: warning: requests for /a/a/ and /a/A and /a/a;x=1 have counters of their own in the limit \"api\", whose key has path, and many upstreams (Express, Rails, ASP.NET, Tomcat) serve them like /a/a; if yours does not, write false; the next fix repairs this too",
			"p:6:12: warning: requests for /a and /A/ pass the limit \"api\": route 2 takes them, and many upstreams (Express, Rails, ASP.NET) serve them like /a/; if yours does not, write false\n\tfix: add below line 6: paths: { ignore_case: true, ignore_trailing_slash: true, ignore_semicolons: true }"}},
		"a burst of a leaky bucket": {strings.Replace(limit, "token_bucket: { rate: 10/s, burst: 20 }", "leaky_bucket: { rate: 10/s, burst: 20 }", 1) + route, []string{"p:4:33: error: there is no key \"burst\" here\n\tfix: did you mean queue?"}},
		"a burst of a window":       {strings.Replace(limit, "token_bucket: { rate: 10/s, burst: 20 }", "fixed_window: { window: 1m, burst: 20 }", 1) + route, []string{"p:4:33: error: there is no key \"burst\" here\n\tfix: did you mean limit?"}},
		"a count as max_burst":      {strings.Replace(limit, "token_bucket: { rate: 10/s, burst: 20 }", "smooth_bursty: { rate: 10/s, burst: 20 }", 1) + route, []string{"p:4:34: error: there is no key \"burst\" here\n\tfix: replace burst: 20 with max_burst: 2s"}},
		"a rate of a log":           {strings.Replace(limit, "token_bucket: { rate: 10/s, burst: 20 }", "sliding_log: { rate: 20/10s }", 1) + route, []string{"p:4:20: error: there is no key \"rate\" here\n\tfix: replace rate: 20/10s with limit: 20, window: 10s"}},
		"a misspelt algorithm":      {strings.Replace(limit, "token_bucket", "token_buket", 1) + route, []string{"p:4:5: error: there is no key \"token_buket\" here\n\tfix: did you mean token_bucket?"}},
		"a misspelt limit":          {limit + strings.Replace(route, "[api]", "[apii]", 1), []string{"p:7:14: error: there is no limit \"apii\"\n\tfix: did you mean \"api\"?"}},
		"yes for true":              {limit + "    shadow: yes\n" + route, []string{"p:5:13: error: this is a text, and must be true or false\n\tfix: shadow: true"}},
		"a number for a duration":   {strings.Replace(limit, "token_bucket: { rate: 10/s, burst: 20 }", "sliding_log: { limit: 5, window: 60 }", 1) + route, []string{"p:4:38: error: this is a number, and must be a text\n\tfix: window: 60s"}},
		"a misspelt parameter":      {strings.Replace(limit, "burst", "brust", 1) + route, []string{"p:4:33: error: there is no key \"brust\" here\n\tfix: did you mean burst?"}},

		"a rate of nothing":          {strings.Replace(limit, "10/s", "0/s", 1) + route, []string{"p:4:27: error: rate \"0/s\": 0 lets nothing pass: the number must be at least 1\n\tfix: rate: 1/s"}},
		"a fraction for a rate":      {strings.Replace(limit, "10/s", "0.5/s", 1) + route, []string{"p:4:27: error: rate \"0.5/s\": \"0.5\" is not a whole number (a fraction is written with a longer duration: 1/2s, not 0.5/s)\n\tfix: rate: 1/2s"}},
		"a burst of nothing":         {strings.Replace(limit, "20", "0", 1) + route, []string{"p:4:40: error: 0 lets nothing pass: it must be at least 1\n\tfix: burst: 1"}},
		"a window in words":          {"limits:\n  api:\n    fixed_window: { limit: 10, window: 1 minute }\n" + route, []string{"p:3:40: error: 1 minute is not a duration: write it like 500ms, 1h30m or 1d\n\tfix: window: 1m"}},
		"slots that do not divide":   {"limits:\n  api:\n    sliding_window: { limit: 10, window: 1m, slots: 7 }\n" + route, []string{"p:3:53: error: 1m0s cannot be divided into 7 slots of equal length\n\tfix: slots: 6"}},
		"a part for a roll out":      {limit + "    roll_out: 5\n" + route, []string{"p:5:15: error: this is a number, and must be a text\n\tfix: roll_out: 5%"}},
		"a store without a url":      {"stores:\n  main: { prefix: x }\n" + limit + route, []string{"p:2:3: error: url is missing: Where the store is: SCHEME://HOST:PORT. The scheme says what it is; docs/stores.md lists the schemes and their URLs\n\tfix: url: redis://127.0.0.1:6379"}},
		"a store as a url":           {"stores:\n  main: redis://127.0.0.1:6379\n" + limit + route, []string{"p:2:9: error: this is a text, and must be a map\n\tfix: main: { url: redis://127.0.0.1:6379 }"}},
		"an upstream as a url":       {limit + "upstreams:\n  app: http://127.0.0.1:9000\n" + route + "    upstream: app\n", []string{"p:6:8: error: this is a text, and must be a map\n\tfix: app: { url: http://127.0.0.1:9000 }"}},
		"a health check as its path": {limit + "upstreams:\n  app:\n    url: http://127.0.0.1:9000\n    health: /status\n" + route + "    upstream: app\n", []string{"p:8:13: error: this is a text, and must be a map\n\tfix: health: { path: /status }"}},
		"a health check switched on": {limit + "upstreams:\n  app:\n    url: http://127.0.0.1:9000\n    health: true\n" + route + "    upstream: app\n", []string{"p:8:13: error: this is true or false, and must be a map\n\tfix: health: { path: /healthz }"}},
		"one time limit":             {limit + "upstreams:\n  app:\n    url: http://127.0.0.1:9000\n    timeouts: 5s\n" + route + "    upstream: app\n", []string{"p:8:15: error: this is a text, and must be a map\n\tfix: timeouts: { response: 5s }"}},
		"an algorithm as a rate":     {"limits:\n  api:\n    token_bucket: 10/s\n" + route, []string{"p:3:19: error: this is a text, and must be a map\n\tfix: token_bucket: { rate: 10/s, burst: 20 }"}},
		"an algorithm as a number":   {"limits:\n  api:\n    concurrency: 10\n" + route, []string{"p:3:18: error: this is a number, and must be a map\n\tfix: concurrency: { limit: 10 }"}},
		"a response as a status":     {limit + route + "    refused: 503\n", []string{"p:8:14: error: this is a number, and must be a map\n\tfix: refused: { status: 503 }"}},

		"an empty key":            {"limits:\n  api:\n    key:\n    token_bucket: { rate: 10/s, burst: 20 }\n" + route, []string{"p:3:5: error: key is empty: write its parts, or remove the line to share one counter among all clients\n\tfix: key: client.ip"}},
		"an empty key as null":    {"limits:\n  api:\n    key: ~\n    token_bucket: { rate: 10/s, burst: 20 }\n" + route, []string{"p:3:5: error: key is empty: write its parts, or remove the line to share one counter among all clients\n\tfix: key: client.ip"}},
		"a key of no parts":       {"limits:\n  api:\n    key: []\n    token_bucket: { rate: 10/s, burst: 20 }\n" + route, []string{"p:3:5: error: key has no parts: write them, or remove the line to share one counter among all clients\n\tfix: key: client.ip"}},
		"an empty exempt":         {limit + "    exempt:\n" + route, []string{"p:5:5: error: exempt is empty: write its value, or remove the line\n\tfix: exempt: [10.0.0.0/8]"}},
		"an empty list of limits": {limit + "routes:\n  - match: /\n    limits:\n", []string{"p:7:5: error: limits is empty: write its value, or remove the line\n\tfix: limits: [api]"}},
		"an empty limit":          {"limits:\n  api:\n" + route, []string{"p:2:3: error: api is empty: write its settings below it, indented further, or remove the line\n\tfix: api: { key: client.ip, token_bucket: { rate: 10/s, burst: 20 } }"}},
		"an empty algorithm":      {"limits:\n  api:\n    token_bucket:\n" + route, []string{"p:3:5: error: token_bucket is empty: write its value, or remove the line\n\tfix: token_bucket: { rate: 100/s, burst: 20 }"}},
		"an empty upstream":       {limit + "upstreams:\n  app:\n" + route + "    upstream: app\n", []string{"p:6:3: error: app is empty: write its settings below it, indented further, or remove the line\n\tfix: app: { url: http://127.0.0.1:9000 }"}},
		"an empty section":        {"trusted_proxies:\n" + limit + route, []string{"p:1:1: error: trusted_proxies is empty: write its value, or remove the line\n\tfix: trusted_proxies: [10.0.0.0/8]"}},
		"a limit beside limits":   {"limits:\napi:\n  key: client.ip\n  token_bucket: { rate: 10/s, burst: 20 }\n" + route, []string{"p:2:1: error: api belongs to limits: indent further than limits\n\tfix: put two spaces in front of all lines of api"}},
		"settings beside a limit": {"limits:\n  api:\n  key: client.ip\n  token_bucket: { rate: 10/s, burst: 20 }\n" + route, []string{"p:3:3: error: key, token_bucket belong to api: indent further than api\n\tfix: put two spaces in front of all lines of key, token_bucket"}},
		"a url beside its upstream": {limit + "upstreams:\n  app:\n  url: http://127.0.0.1:9000\n" + route + "    upstream: app\n",
			[]string{"p:7:3: error: url belongs to app: indent further than app\n\tfix: app: { url: http://127.0.0.1:9000 }"}},
		"an address beside listen":   {"listen:\nadmin: 127.0.0.1:9090\n" + limit + route, []string{"p:2:1: error: admin belongs to listen: indent further than listen\n\tfix: listen: { admin: 127.0.0.1:9090 }"}},
		"the gateway beside listen":  {"listen:\ngateway: 127.0.0.1:8080\n" + limit + route, []string{"p:2:1: error: gateway belongs to listen: indent further than listen\n\tfix: listen: { gateway: 127.0.0.1:8080 }"}},
		"no space after a colon":     {strings.Replace(limit, "key: ", "key:", 1) + route, []string{"p:3:5: error: there is no space after the colon of key\n\tfix: key: client.ip"}},
		"no space, and no more keys": {"listen:\n  gateway:127.0.0.1:8080\n" + limit + route, []string{"p:2:3: error: there is no space after the colon of gateway\n\tfix: gateway: 127.0.0.1:8080"}},
		"no space after a rate":      {"limits:\n  api:\n    token_bucket:\n      rate: 10/s\n      burst:20\n" + route, []string{"p:5:7: error: there is no space after the colon of burst\n\tfix: burst: 20"}},
		"no space within braces":     {strings.Replace(limit, "burst: ", "burst:", 1) + route, []string{"p:4:33: error: there is no space after the colon of burst\n\tfix: burst: 20"}},
	} {
		text := c.text
		f, err := Parse("p", []byte(text))
		var invalid *InvalidError
		if err != nil && !errors.As(err, &invalid) {
			t.Fatal(err)
		}
		var got []string
		for _, p := range f.Problems {
			got = append(got, p.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.wants, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.wants, "\n"))
			continue
		}
		text = pasted(text, f.Problems[len(f.Problems)-1])
		f, err = Parse("p", []byte(text))
		if err != nil || len(f.Problems) > 0 {
			t.Errorf("%s: pasted, it is\n%s\n%v %v", name, text, err, f.Problems)
		}
	}
}

// toPlace is a fix that says where its line belongs.
var toPlace = regexp.MustCompile(`^(?:remove (\w+) in line (\d+), and )?(replace (\w+) in lines?|add below line|add after the brace of line) (\d+)(?: to (\d+)|, column (\d+))?(?: with)?: (.*)$`)

// placed applies a fix that says where its line belongs, and does no more than it says.
func placed(lines, place []string) string {
	if gone, _ := strconv.Atoi(place[2]); gone > 0 {
		lines[gone-1] = regexp.MustCompile(place[1]+`: *\w+,?`).ReplaceAllLiteralString(lines[gone-1], "")
	}
	place = place[2:]
	key, fix := place[2], place[6]
	first, _ := strconv.Atoi(place[3])
	line := lines[first-1]
	indent := line[:len(line)-len(strings.TrimLeft(line, " -"))]
	switch {
	case place[5] != "":
		col, _ := strconv.Atoi(place[5])
		lines[first-1] = line[:col] + " " + fix + line[col:]
	case key == "":
		lines = slices.Insert(lines, first, strings.ReplaceAll(indent, "-", " ")+fix)
	case place[4] == "":
		lines[first-1] = regexp.MustCompile(`\b`+key+`: *(\{[^}]*\}|\w+)`).ReplaceAllLiteralString(line, fix)
	default:
		last, _ := strconv.Atoi(place[4])
		lines = slices.Replace(lines, first-1, last, indent+fix)
	}
	return strings.Join(lines, "\n")
}

var didYouMean = regexp.MustCompile(`^did you mean "?([^"?]+)"?\?$`)

var unknownKey = regexp.MustCompile(`^there is no key "(\w+)" here$`)

// pasted applies a fix as a reader would: it replaces a word, replaces the value of KEY with KEY:
// VALUE in the same line or the one above that begins the map, or adds KEY: VALUE to the map that
// lacks it.
func pasted(text string, p Problem) string {
	lines := strings.Split(text, "\n")
	if place := toPlace.FindStringSubmatch(p.Fix); place != nil {
		return placed(lines, place)
	}
	line := &lines[p.Line-1]
	if line, ok := strings.CutPrefix(p.Fix, "add at the end: "); ok {
		return text + line + "\n"
	}
	if p.Fix == "remove the line" {
		return strings.Join(slices.Delete(lines, p.Line-1, p.Line), "\n")
	}
	if parts := strings.Split(strings.TrimPrefix(p.Fix, "replace "), " with "); len(parts) == 2 && strings.HasPrefix(p.Fix, "replace ") {
		*line = strings.Replace(*line, parts[0], parts[1], 1)
		return strings.Join(lines, "\n")
	}
	if word := didYouMean.FindStringSubmatch(p.Fix); word != nil {
		rest := (*line)[p.Col-1:]
		end := strings.IndexAny(rest, ":], ")
		*line = (*line)[:p.Col-1] + word[1] + rest[end:]
		return strings.Join(lines, "\n")
	}
	if _, names, ok := strings.Cut(p.Fix, "two spaces in front of all lines of "); ok {
		for at := p.Line - 1; at < len(lines); at++ {
			key, _, _ := strings.Cut(lines[at][min(p.Col-1, len(lines[at])):], ":")
			if key == "" || key[0] != ' ' && !slices.Contains(strings.Split(names, ", "), key) {
				break
			}
			lines[at] = "  " + lines[at]
		}
		return strings.Join(lines, "\n")
	}
	if unknown := unknownKey.FindStringSubmatch(p.Message); unknown != nil {
		if _, value, ok := strings.Cut(p.Fix, ": "); ok {
			*line = strings.Replace(*line, unknown[1]+": "+value, p.Fix, 1)
			return strings.Join(lines, "\n")
		}
	}
	key, _, _ := strings.Cut(p.Fix, ":")
	value := regexp.MustCompile(`\b` + key + `:( *(\{[^}]*\}|\[[^\]]*\]|"[^"]*"|[^,}]+))?`)
	for at := p.Line - 1; at >= max(p.Line-3, 0); at-- {
		if found := value.FindStringIndex(lines[at]); found != nil {
			lines[at] = lines[at][:found[0]] + p.Fix + strings.TrimPrefix(lines[at][found[1]:], "\n")
			if at < p.Line-1 { // the lines below that do not belong to it
				for at++; at < len(lines) && strings.Contains(p.Fix, strings.TrimSpace(lines[at])) && strings.TrimSpace(lines[at]) != ""; {
					lines = append(lines[:at], lines[at+1:]...)
				}
			}
			return strings.Join(lines, "\n")
		}
	}
	brace := strings.Index(*line, "{")
	if brace < 0 { // a line of its own, below, in place of the lines that it repeats
		if written := strings.TrimSpace(*line); strings.Contains(p.Fix, written) {
			indent := (*line)[:len(*line)-len(written)]
			end := p.Line
			for end < len(lines) && lines[end] != "" && strings.Contains(p.Fix, strings.TrimSpace(lines[end])) {
				end++
			}
			return strings.Join(slices.Replace(lines, p.Line-1, end, indent+p.Fix), "\n")
		}
		lines = slices.Insert(lines, p.Line, strings.Repeat(" ", len(*line)-len(strings.TrimLeft(*line, " -")))+p.Fix)
		return strings.Join(lines, "\n")
	}
	*line = (*line)[:brace+1] + " " + p.Fix + "," + (*line)[brace+1:]
	return strings.Join(lines, "\n")
}
