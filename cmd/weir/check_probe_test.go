package main

import (
	"net/http"
	"net/http/httptest"
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
			"p.yaml:7:12: error: the upstream serves /checkout/ and /CHECKOUT like /checkout, and route 2 takes them without the limits of this one\n\tfix: paths: { ignore_case: true, ignore_trailing_slash: true }\n"}},
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
