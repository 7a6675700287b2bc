package main

import (
	"regexp"
	"strings"
	"testing"
)

const asked = `
listen: { http: "127.0.0.1:0", admin: "127.0.0.1:0" }
limits:
  per-user: { key: header.user, token_bucket: { rate: 1/d, burst: 3 } }
  pair: { key: [header.user, query.sku], fixed_window: { limit: 5, align: "day:UTC" } }
  all: { token_bucket: { rate: 1/d, burst: 9 } }
`

// TestTakeAndExplain: decisions of a running server, and why it makes them, with the exit codes that
// scripts read.
func TestTakeAndExplain(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": asked})
	r := startWeir(t, "serve", dir+"/p.yaml")
	at := r.until(`"http":\["([^"]+)"`)
	admin := r.until(`"admin":\["([^"]+)"`)
	defer r.stop()
	for _, c := range []struct {
		args string
		code int
		want string // of both outputs, as a regular expression
	}{
		{"take per-user ann", 0, `^allow remaining=2 limit=3 reset=24h0m0s\n$`},
		{"take per-user ann 3 --peek", 1, `^deny retry=2[34]h\S+ remaining=2 limit=3 reset=\S+\n$`},
		{"take per-user ann 2", 0, `^allow remaining=0 `},
		{"take per-user ann 1 --json", 1, `^{"limit":"per-user","allowed":false,"capacity":3,"remaining":0,"retry_after_ms":8\d+,"reset_after_ms":\d+,"window_ms":259200000,"source":"local"}\n$`},
		{"take per-user ann 4", 1, `^deny retry=never `},
		{"take per-user bob 0", 0, `^allow remaining=3 `},
		{`take pair ["a,b","7"] 2`, 0, `^allow remaining=3 limit=5 `},
		{"take pair ann,7", 0, `^allow remaining=4 limit=5 `},
		{"take pair ann", 3, `pair`},
		{"take all []", 0, `^allow remaining=8 limit=9 `},
		{"take per-usr ann", 3, `per-user`},
		{"take per-user ann 1.5", 2, `"1.5" is not a cost`},
		{"take per-user ann many", 2, `"many" is not a cost`},
		{"take per-user ann -1", 2, `write -- before arguments if one of them begins with "-"`},
		{"take --peek -- per-user ann -1", 2, `"-1" is not a cost: write a whole number of at least 0`},
		{"take --peek -- per-user -ann", 0, `^allow remaining=3 `},
		{"take per-user ann --plan gold", 3, `there is no plan "gold"`},
		{"take per-user", 2, `KEY is missing`},
		{"take per-user [ann", 2, `is not a key`},
		{"explain per-user ann", 0, `(?s)^refused for another .*\n.*rule +token_bucket burst=3 rate=1/d\n.*decided by +limit\n.*left +0 of 3\n.*arithmetic +3 of 3 used, so 0 left, and a cost of 1 has to wait for 1 more, which takes .*admitted again +20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ\nrefused before +20\S+Z  cost 4, 0 of 3 left\n +20\S+Z  cost 1, 0 of 3 left  retry after 2[34]h\S+\n$`},
		{"explain per-user bob --json", 0, `"window_ms":259200000.*"algorithm":"token_bucket".*"decided_by":"limit"`},
		{"explain nothing ann", 3, `nothing`},
	} {
		code, out, errs := weir(t, "", append([]string{strings.Fields(c.args)[0], "--http", at}, strings.Fields(c.args)[1:]...)...)
		if code != c.code || !regexp.MustCompile(c.want).MatchString(out+errs) {
			t.Errorf("weir %s: %d\n%s%s", c.args, code, out, errs)
		}
	}
	if code, _, errs := weir(t, "", "ban", "per-user", "ann", "--for", "1h", "--admin", admin); code != 0 {
		t.Fatal(errs)
	}
	_, fromHTTP, _ := weir(t, "", "explain", "per-user", "bob", "--http", at)
	if code, out, errs := weir(t, "", "explain", "per-user", "bob", "--admin", admin); code != 0 || out != fromHTTP {
		t.Errorf("listen.admin explains otherwise: %d %s%s, listen.http: %s", code, out, errs, fromHTTP)
	}
	_, jsonHTTP, _ := weir(t, "", "explain", "per-user", "bob", "--json", "--http", at)
	t.Setenv("WEIR_ADMIN", admin)
	if code, out, errs := weir(t, "", "explain", "per-user", "bob", "--json"); code != 0 || out != jsonHTTP {
		t.Errorf("listen.admin explains otherwise in JSON: %d %s%s, listen.http: %s", code, out, errs, jsonHTTP)
	}
	if code, _, errs := weir(t, "", "explain", "per-user", "bob", "--admin", admin, "--http", at); code != 2 || !strings.Contains(errs, "name one of them") {
		t.Errorf("two addresses: %d %s", code, errs)
	}
	t.Setenv("WEIR_HTTP", at)
	if code, out, errs := weir(t, "", "explain", "per-user", "ann"); code != 0 || !strings.HasPrefix(out, "refused: the key is banned for ") || !strings.Contains(out, "override ends") {
		t.Errorf("%d %s%s", code, out, errs)
	}
}

// TestTakeWithoutADecision: no server, a wrong address, a token that is wrong or lacking.
func TestTakeWithoutADecision(t *testing.T) {
	dir := files(t, map[string]string{
		"p.yaml":      strings.Replace(asked, `http: "127.0.0.1:0"`, `http: { address: "127.0.0.1:0", tokens: tokens.yaml }`, 1),
		"tokens.yaml": "[{ name: shop, sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, scopes: [take] }]\n", // of "secret"
		"token":       "secret\n",
		"wrong":       "other\n",
	})
	r := startWeir(t, "serve", dir+"/p.yaml")
	at := r.until(`"http":\["([^"]+)"`)
	defer r.stop()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--http", "127.0.0.1:1"}, 3, "nothing listens there: start weir serve with listen: { http:"},
		{[]string{"--http", "ftp://x"}, 2, "write it like http://127.0.0.1:8082"},
		{[]string{"--http", at, "--http", at}, 2, "name one server"},
		{[]string{"--http", at}, 3, "--token-file FILE or $WEIR_HTTP_TOKEN_FILE"},
		{[]string{"--http", at, "--token-file", dir + "/wrong"}, 3, "is wrong"},
		{[]string{"--http", at, "--token-file", dir + "/none"}, 2, "none"},
		{[]string{"--http", at, "--token-file", dir + "/token"}, 0, "allow remaining=2"},
	} {
		code, out, errs := weir(t, "", append([]string{"take", "per-user", "ann"}, c.args...)...)
		if code != c.code || !strings.Contains(out+errs, c.want) || strings.Contains(errs, "secret") {
			t.Errorf("%v: %d %s%s", c.args, code, out, errs)
		}
	}
	if code, _, errs := weir(t, "", "explain", "per-user", "ann", "--http", at, "--token-file", dir+"/token"); code != 3 || !strings.Contains(errs, "usage") {
		t.Errorf("a token without the scope: %d %s", code, errs)
	}
}
