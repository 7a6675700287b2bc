package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAdminCommands: exit codes, and what goes to stdout and stderr.
func TestAdminCommands(t *testing.T) {
	policy := strings.Replace(shop, "limits:", `listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
upstreams: { up: { url: "http://127.0.0.1:9" } }
limits:`, 1)
	policy = strings.Replace(policy, "{ match:", "{ upstream: up, match:", 1)
	dir := files(t, map[string]string{"policy.yaml": policy, "same.yaml": policy, "bad.yaml": strings.Replace(policy, "6/m", "0/m", 1)})
	_, admin := served(t, dir+"/policy.yaml")
	_, other := served(t, dir+"/same.yaml")
	at := "http://" + admin
	const nobody = "http://127.0.0.1:1"
	for _, c := range []struct {
		args        string
		code        int
		out, stderr string // what is in them
	}{
		{"diff FILE/same.yaml --admin AT", 0, "nothing changes\n", ""},
		{"diff FILE/bad.yaml --admin AT", 1, "", "FILE/bad.yaml:5:"},
		{"diff FILE/none.yaml --admin AT", 2, "", "no such file"},
		{"diff", 2, "", "is missing: write weir diff"},
		{"diff FILE/same.yaml --admin NOBODY", 1, "", "nothing listens there: start weir serve"},
		{"diff FILE/same.yaml --admin ftp://127.0.0.1:9090", 2, "", "write it like http://127.0.0.1:9090"},
		{"diff FILE/same.yaml --admin HOST", 0, "nothing changes\n", ""},
		{"reload --admin AT", 0, "nothing changes\n", ""},
		{"reload --admin AT --token-file FILE/none", 2, "", "no such file"},
		{"reload --admin AT --ca FILE/policy.yaml", 2, "", "no certificate in PEM"},
		{"ban per-sku 7 --admin AT", 2, "", "--for 1h"},
		{"ban per-sku 7 --for 1h --admin AT --admin NOBODY --admin OTHER", 1, "ban until", "nothing listens there: start weir serve"},
		{"bans --admin OTHER", 0, "ban   per-sku   7   ", ""},
		{"bans --json --admin AT", 0, `"key":["7"]`, ""},
		{"ban per-sku 7 --for long --admin AT", 1, "", "1h or 7d"},
		{"ban per-skq 7 --for 1h --admin AT", 1, "", `did you mean "per-sku"?`},
		{"ban per-sku [7] --for 1h --admin AT", 2, "", "JSON array of strings"},
		{"grant per-sku 8 --for 1h --set burst=5 --admin AT", 0, "grant until", ""},
		{"grant per-sku 8 --for 1h --set burts=5 --admin AT", 1, "", `did you mean "burst"?`},
		{"lift per-sku 8 --admin AT", 0, "lifted\n", ""},
		{"lift per-sku 8 --admin AT", 1, "", "neither a ban nor a grant"},
		{"usage --export csv --admin AT", 0, "limit,key,allowed,used", ""},
		{"usage --export csv --admin NOBODY", 1, "", "nothing listens there: start weir serve"},
		{"usage --export xml --admin AT", 1, "", "csv"},
	} {
		names := strings.NewReplacer("FILE", dir, "AT", at, "HOST", admin, "NOBODY", nobody, "OTHER", "http://"+other)
		code, out, stderr := weir(t, "", strings.Fields(names.Replace(c.args))...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(stderr, names.Replace(c.stderr)) || c.out == "" && out != "" {
			t.Errorf("weir %s: %d\n%s%s", c.args, code, out, stderr)
		}
	}
	if err := os.WriteFile(dir+"/policy.yaml", []byte(strings.Replace(policy, "6/m", "0/m", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := weir(t, "", "reload", "--admin", at); code != 1 || !strings.Contains(stderr, "\n"+dir+"/policy.yaml:5:") {
		t.Errorf("%d: %s", code, stderr)
	}
	if err := os.Remove(dir + "/policy.yaml"); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := weir(t, "", "reload", "--admin", at); code != 1 || !strings.Contains(stderr, "no such file") {
		t.Errorf("%d: %s", code, stderr)
	}
}

// TestTokens: a token that is missing or wrong, and where to look for the right one.
func TestTokens(t *testing.T) {
	policy := strings.Replace(shop, "limits:", `listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
admin: { token_file: token }
upstreams: { up: { url: "http://127.0.0.1:9" } }
limits:`, 1)
	policy = strings.Replace(policy, "{ match:", "{ upstream: up, match:", 1)
	dir := files(t, map[string]string{"policy.yaml": policy, "token": "0123456789abcdef\n", "wrong": "fedcba9876543210\n"})
	_, admin := served(t, dir+"/policy.yaml")
	for _, c := range []struct {
		args []string
		env  string
		code int
		want string
	}{
		{nil, "", 1, "the server wants a token: name a file with the token of admin.token_file with --token-file FILE or $WEIR_TOKEN_FILE"},
		{[]string{"--token-file", dir + "/wrong"}, "", 1, "the token in " + dir + "/wrong is wrong: it is not in admin.token_file of the server"},
		{nil, dir + "/wrong", 1, "the token in " + dir + "/wrong is wrong"},
		{[]string{"--token-file", dir + "/token"}, dir + "/wrong", 0, ""},
		{nil, dir + "/token", 0, ""},
	} {
		t.Setenv("WEIR_TOKEN_FILE", c.env)
		code, out, stderr := weir(t, "", append([]string{"reload", "--admin", admin}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) || c.want == "" && (stderr != "" || out != "nothing changes\n") {
			t.Errorf("%q, %q: %d\n%s%s", c.args, c.env, code, out, stderr)
		}
		if strings.Contains(out+stderr, "0123456789abcdef") || strings.Contains(out+stderr, "fedcba9876543210") {
			t.Errorf("the token is shown: %s%s", out, stderr)
		}
	}
}

// TestKeys: keys are read as written, and escaped so that a terminal takes none for a command.
func TestKeys(t *testing.T) {
	for _, parts := range [][]string{{"10.0.0.1"}, {"10.0.0.1", "7"}, {"a,b", "7"}, {""}, {"", ""}, {"[x"}, {"a b\x1b[2J\n"}, {"\u009b\U0001f600é"}, {}} {
		text := keyText(parts)
		got, err := keyParts(text)
		if err != nil || !slices.Equal(got, parts) {
			t.Errorf("%q: %s, read back as %q, %v", parts, text, got, err)
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: %q", parts, text)
		}
	}
}
