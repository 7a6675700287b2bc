package main

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// looseShop is an upstream that serves paths as Express does, and counts orders.
func looseShop(t *testing.T) (url string, orders *atomic.Int64) {
	t.Helper()
	orders = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.ToLower(strings.TrimSuffix(r.URL.EscapedPath(), "/")); {
		case path == "/checkout" && r.Method == http.MethodOptions:
			w.Header().Set("Allow", "POST")
		case path == "/checkout" && r.Method == http.MethodPost:
			orders.Add(1)
		case path == "/index.php/item/42", path == "/item/42":
			w.Write([]byte("item " + r.URL.Path))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, orders
}

const probedPolicy = `limits:
  all: { token_bucket: { rate: 1/s, burst: 1 } }
upstreams:
  shop: { url: "http://127.0.0.1:9" }
PATHSroutes:
  - match: POST /checkout
    upstream: shop
    limits: [all]
MORE  - { match: /, upstream: shop }
`

// TestCheckProbe: what the upstream serves alike and passes a limit is an error with a line that
// repairs it; pasted, it is none.
func TestCheckProbe(t *testing.T) {
	url, orders := looseShop(t)
	policy := func(paths, more string) string {
		return strings.NewReplacer("PATHS", paths, "MORE", more).Replace(probedPolicy)
	}
	const strict, loose = "paths: { ignore_case: false, ignore_trailing_slash: false }\n", "paths: { ignore_case: true, ignore_trailing_slash: true }\n"
	const item, php = "  - { match: \"/item/{id}\", upstream: shop, limits: [all] }\n", "  - { match: \"/index.php/item/42\", upstream: shop, limits: [all] }\n"
	for name, c := range map[string]struct {
		policy string
		args   []string
		code   int
		want   []string
	}{
		"it can be passed": {policy(strict, ""), nil, 1, []string{
			"p.yaml:7:12: error: the upstream serves /checkout/ and /CHECKOUT like /checkout, and route 2 takes them without the limits of this one\n\tfix: replace paths in line 5 with: paths: { ignore_case: true, ignore_trailing_slash: true }\n"}},
		"it cannot":          {policy(loose, ""), nil, 0, []string{"like /checkout (by OPTIONS): counted: /checkout/ /CHECKOUT\n", "p.yaml: " + url + " was asked about 1 path with ", " requests: no limit can be passed\n"}},
		"it cannot tell":     {policy(loose, item), nil, 1, []string{"p.yaml:10:14: error: cannot tell which paths pass this route: the upstream responds to /item/1 as to a path that does not exist\n\tfix: --probe-path"}},
		"with a path":        {policy(loose, item), []string{"--probe-path", "/item/42"}, 1, []string{"the upstream serves /index.php/item/42 like /item/42 (below index.php), and route 3 takes it", "\tfix: - { match: \"/index.php/item/42\", upstream: shop, limits: [all] }\n"}},
		"with its route":     {policy(loose, item+php), []string{"--probe-path", "/item/42", "--probe-path", "/index.php/item/42"}, 0, []string{"no limit can be passed"}},
		"too many":           {policy(loose, ""), []string{"--probe-requests", "5"}, 1, []string{"after 5 requests: the probe has sent as many requests as it may: 5"}},
		"a path in the URL":  {policy(loose, ""), []string{"--probe", url + "/x"}, 2, []string{"takes a URL without a path: write " + url + " --probe-path /x"}},
		"no URL":             {policy(loose, ""), []string{"--probe", "127.0.0.1:9000"}, 2, []string{"is not a URL like http://127.0.0.1:9000"}},
		"not a path":         {policy(loose, ""), []string{"--probe-path", "x?y"}, 2, []string{`--probe-path "x?y" is not a path like /item/42`}},
		"not a header":       {policy(loose, ""), []string{"--probe-header", "x"}, 2, []string{`--probe-header "x" is not like "Cookie: session=1"`}},
		"nothing is there":   {policy(loose, ""), []string{"--probe", "http://u:secret@127.0.0.1:1"}, 1, []string{"the upstream does not respond: "}},
		"an invalid policy":  {"routes: 7\n", nil, 1, []string{"error: "}},
		"no time":            {policy(loose, ""), []string{"--probe-within", "1ns"}, 1, []string{"the upstream does not respond: "}},
		"less than nothing":  {policy(loose, ""), []string{"--probe-requests", "0"}, 2, []string{"must be above 0"}},
		"flags without it":   {policy(loose, ""), []string{"--probe", "", "--probe-path", "/x"}, 2, []string{"--probe-path needs an upstream: add --probe"}},
		"the route's method": {policy(loose, ""), []string{"--probe-own-method"}, 0, []string{"like /checkout (by POST and OPTIONS): counted"}},
	} {
		t.Run(name, func(t *testing.T) {
			orders.Store(0)
			t.Chdir(files(t, map[string]string{"p.yaml": c.policy}))
			code, out, errs := weir(t, "", append([]string{"check", "p.yaml", "--probe", url}, c.args...)...)
			for _, want := range c.want {
				if !strings.Contains(out+errs, want) {
					t.Errorf("%s%s\nwant %s", out, errs, want)
				}
			}
			if code != c.code || strings.Contains(out+errs, "secret") || strings.Contains(out, "PASSES") {
				t.Errorf("%d, want %d: %s%s", code, c.code, out, errs)
			}
			if bought := orders.Load() > 0; bought != (name == "the route's method") {
				t.Errorf("%d orders", orders.Load())
			}
		})
	}
}

// TestProbeFixesCanBePasted: the probe and then the check of a policy are content once all lines are
// pasted where they say, and no setting from before is lost. The upstream also ignores extensions and
// semicolons.
func TestProbeFixesCanBePasted(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _, _ := strings.Cut(strings.ToLower(strings.TrimSuffix(r.URL.EscapedPath(), "/")), ";")
		path, _, _ = strings.Cut(path, ".")
		if path != "/checkout" && path != "/cart" {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	const begin = "limits:\n  all: { token_bucket: { rate: 1/s, burst: 1 } }\n"
	const all = "ignore_case: true, ignore_trailing_slash: true, ignore_extension: true"
	routes := func(paths string) string {
		return "routes:\n  - match: /checkout\n    limits: [all]\n" + paths + "  - match: /cart\n    limits: [all]\n  - match: /\n"
	}
	for name, c := range map[string]struct {
		policy string
		want   []string // lines of the policy after the fixes
	}{
		"none in place":      {begin + routes(""), []string{"    paths: { " + all + " }"}},
		"one of the policy":  {"paths: { ignore_case: true, ignore_trailing_slash: true, ignore_semicolons: true }\n" + begin + routes(""), []string{"paths: { " + all + ", ignore_semicolons: true }"}},
		"one in many lines":  {begin + "paths:\n  ignore_case: true\n  ignore_trailing_slash: true\n  ignore_semicolons: true\n" + routes(""), []string{"paths: { " + all + ", ignore_semicolons: true }"}},
		"one of a route":     {begin + routes("    paths: { ignore_case: true, ignore_semicolons: true }\n"), []string{"    paths: { " + all + ", ignore_semicolons: true }", "    paths: { " + all + " }"}},
		"one of both":        {"paths: { ignore_case: true }\n" + begin + routes("    paths: { ignore_trailing_slash: true }\n"), []string{"paths: { " + all + " }", "    paths: { ignore_trailing_slash: true, ignore_extension: true }"}},
		"what allows it all": {"paths: { ambiguous: allow }\n" + begin + routes(""), []string{"paths: { " + all + ", ignore_semicolons: true, ambiguous: refuse }"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(files(t, map[string]string{"p.yaml": c.policy}))
			_, out, errs := weir(t, "", "check", "p.yaml", "--probe", s.URL)
			text := pastedPaths(t, c.policy, out)
			t.Chdir(files(t, map[string]string{"p.yaml": text}))
			for _, args := range [][]string{{"check", "p.yaml", "--probe", s.URL}, {"check", "p.yaml"}} {
				code, again, more := weir(t, "", args...)
				if code != 0 || strings.Contains(again+more, "fix: ") {
					t.Errorf("%s%s\npasted, it is\n%s\nand %q says\n%s%s", out, errs, text, args, again, more)
				}
			}
			for _, want := range c.want {
				if !strings.Contains("\n"+text, "\n"+want+"\n") {
					t.Errorf("%s\nlacks %s", text, want)
				}
			}
		})
	}
}

// pastedPaths applies the fixes that the probe has printed, the last line of the file first, as each is
// about the lines of the file that was probed.
func pastedPaths(t *testing.T, text, out string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	byLine := map[int]func(){}
	for _, m := range regexp.MustCompile(`(?m): error: .*\n\tfix: (replace paths in|add below) lines? (\d+)(?: to (\d+))?(?: with)?: (paths: .*)$`).FindAllStringSubmatch(out, -1) {
		first, _ := strconv.Atoi(m[2])
		last, err := strconv.Atoi(m[3])
		if err != nil {
			last = first
		}
		byLine[first] = func() {
			indent := strings.Repeat(" ", len(lines[first-1])-len(strings.TrimLeft(lines[first-1], " -")))
			if m[1] == "add below" {
				lines = slices.Insert(lines, first, indent+m[4])
			} else {
				lines = slices.Replace(lines, first-1, last, indent+m[4])
			}
		}
	}
	if len(byLine) == 0 {
		t.Fatalf("there is nothing to paste:\n%s", out)
	}
	for _, line := range slices.Backward(slices.Sorted(maps.Keys(byLine))) {
		byLine[line]()
	}
	return strings.Join(lines, "\n")
}
