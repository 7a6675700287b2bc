package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPolicyAsAnArgument: serve and replay accept the policy file as their first argument.
func TestPolicyAsAnArgument(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": shop, "log": accessLog})
	code, out, errs := weir(t, "", "replay", dir+"/p.yaml", "--json", dir+"/log")
	if code != 0 || !strings.HasPrefix(out, `{"requests":4,"unparsed":1,`) {
		t.Errorf("%d %q %q", code, out, errs)
	}
	served := files(t, map[string]string{"p.yaml": "listen: { admin: \"127.0.0.1:0\" }\n"})
	r := startWeir(t, "serve", served+"/p.yaml")
	r.until(`"msg":"serving"`)
	r.stop()
}

// TestReplayOfSomethingElse: a file that is no access log is an error, and not a report without
// limited clients.
func TestReplayOfSomethingElse(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": shop, "other": "no access log\nat all\n", "empty": ""})
	for _, args := range [][]string{{"p.yaml"}, {"p.yaml", "--json"}, {"p.yaml", "--sweep", "rate=1/s,2/s limit=per-sku"}, {"p.yaml", "--compare", dir + "/p.yaml"}, {"--suggest"}} {
		if args[0] == "p.yaml" {
			args[0] = dir + "/p.yaml"
		}
		code, out, errs := weir(t, "", append(append([]string{"replay"}, args...), dir+"/other")...)
		if code != 1 || out != "" || !strings.Contains(errs, "no line could be read") {
			t.Errorf("%q: %d %q %q", args, code, out, errs)
		}
	}
	if code, _, errs := weir(t, "", "replay", dir+"/p.yaml", dir+"/empty"); code != 0 {
		t.Errorf("an empty log: %d %q", code, errs)
	}
}

// TestReplayWarnsOfMissingParts: there is a warning if the log lacks the header fields of a key,
// because all clients then share one.
func TestReplayWarnsOfMissingParts(t *testing.T) {
	dir := files(t, map[string]string{
		"p.yaml": strings.Replace(shop, "key: query.sku_id", "key: [header.user-id, query.sku_id]", 1),
		"log":    accessLog,
	})
	code, _, errs := weir(t, "", "replay", dir+"/p.yaml", dir+"/log")
	if want := "warning: no request had header.user-id, a part of the key of the limit per-sku: its on_missing applied to all of them\n"; code != 0 || !strings.Contains(errs, want) || strings.Contains(errs, "query.sku_id") {
		t.Errorf("%d %q", code, errs)
	}
}

// TestAdminFromTheEnvironment: without flags, the address and the token file come from the
// environment.
func TestAdminFromTheEnvironment(t *testing.T) {
	admin := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "Bearer "+name {
				t.Errorf("%s was sent %q", name, got)
			}
			w.Write([]byte(`{"overrides":[{"limit":"` + name + `","kind":"ban","until":"later"}]}`))
		}))
	}
	one, two, three := admin("env"), admin("env"), admin("flag")
	defer one.Close()
	defer two.Close()
	defer three.Close()
	dir := t.TempDir()
	for _, name := range []string{"env", "flag"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("WEIR_ADMIN", one.URL+","+two.URL)
	t.Setenv("WEIR_TOKEN_FILE", dir+"/env")
	if code, out, errs := weir(t, "", "bans"); code != 0 || strings.Count(out, "ban   env") != 2 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if code, out, errs := weir(t, "", "bans", "--admin", three.URL, "--token-file", dir+"/flag"); code != 0 || strings.Count(out, "ban   flag") != 1 {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// TestUsageOfAStoreThatIsDown: a limit whose store is unavailable has no figures, and the error is no value of
// a column.
func TestUsageOfAStoreThatIsDown(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"usage":[{"limit":"monthly","key":["acme"],"error":"its store is unavailable"},{"limit":"daily","key":["acme"],"allowed":10,"used":3,"remaining":7}]}`))
	}))
	defer admin.Close()
	code, out, errs := weir(t, "", "usage", "acme", "--admin", admin.URL)
	table := "LIMIT     USED   ALLOWED   LEFT   ALL BACK AT\nmonthly   -      -         -      -\ndaily     3      10        7      \n"
	if code != 0 || out != table || errs != "weir: monthly: its store is unavailable\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

// TestCompletionIsShown: the help mentions completion.
func TestCompletionIsShown(t *testing.T) {
	if code, out, _ := weir(t, "", "--help"); code != 0 || !strings.Contains(out, "\n  completion  ") {
		t.Errorf("%d %q", code, out)
	}
	if code, out, errs := weir(t, "", "completion", "bash"); code != 0 || !strings.Contains(out, "__start_weir") {
		t.Errorf("%d %.80q %q", code, out, errs)
	}
}
