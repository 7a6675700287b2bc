package policyfile

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const hashSecret = "an installation's secret of 32 bytes"

func hashed(key string) string {
	h := HashAPIKey([]byte(hashSecret), key)
	return hex.EncodeToString(h[:])
}

// planned writes a policy with API keys, and loads it.
func planned(t *testing.T, keys string) (*File, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"keys.yaml": keys, "s": hashSecret + "\n", "p.yaml": `
plans: { from: api_key, api_keys: keys.yaml, hash_secret_file: s, default: free }
limits:
  requests: { key: customer, token_bucket: { rate: 10/s, burst: 20 }, plans: { pro: { rate: 100/s, burst: 200 }, enterprise: unlimited } }
routes: [{ match: /, limits: [requests] }]
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(filepath.Join(dir, "p.yaml"))
}

// TestAPIKeys: keys are found by their hashes, in a file and in the files of a directory.
func TestAPIKeys(t *testing.T) {
	f, err := planned(t, fmt.Sprintf("- { customer: acme, plan: pro, hmac_sha256: %s }\n- { customer: 7, hmac_sha256: \"%s\" }\n", hashed("k1"), strings.ToUpper(hashed("k2"))))
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := f.APIKeys.Find("k1"); !ok || c.Name != "acme" || c.Plan != "pro" {
		t.Errorf("%+v, %v", c, ok)
	}
	if c, ok := f.APIKeys.Find("k2"); !ok || c.Name != "7" || c.Plan != "" {
		t.Errorf("%+v, %v", c, ok)
	}
	if k := f.APIKeys; k.PlanOf("acme") != "pro" || k.PlanOf("7") != "" || k.PlanOf("k1") != "" || !k.HasPlan("pro") || k.HasPlan("free") {
		t.Errorf("the plans of customers: %q, %q", k.PlanOf("acme"), k.PlanOf("7"))
	}
	for _, key := range []string{"", "k3", hashed("k1"), "acme"} {
		if c, ok := f.APIKeys.Find(key); ok {
			t.Errorf("%q is %+v", key, c)
		}
	}
	dir := t.TempDir()
	for name, key := range map[string]string{"a.yaml": "a", "b.json": "b", "c.yml": "c", "d.yaml~": "d", ".e.yaml": "e", "none.yaml": ""} {
		text := "[]"
		if key != "" {
			text = fmt.Sprintf(`[{"customer": %q, "hmac_sha256": %q}]`, key, hashed(key))
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys, problems, err := LoadAPIKeys(dir, []byte(hashSecret))
	if err != nil || len(problems) > 0 || keys.Len() != 3 {
		t.Fatalf("%v, %v, %d keys", err, problems, keys.Len())
	}
	if same, _, err := ReloadAPIKeys(dir, []byte(hashSecret), keys); same != nil || err != nil {
		t.Errorf("nothing has changed: %v, %v", same, err)
	}
	if other, _, err := ReloadAPIKeys(dir, []byte(hashSecret+"x"), keys); other == nil || err != nil {
		t.Errorf("another secret: %v", err)
	}
	if none, _, err := ReloadAPIKeys(t.TempDir(), []byte(hashSecret), keys); none != nil || err == nil {
		t.Errorf("a directory that has lost its files: %v, %v", none, err)
	}
}

// TestWrongAPIKeys: a problem has its file, line and column, and nothing of what stands where the
// hash should be: it may be the key itself.
func TestWrongAPIKeys(t *testing.T) {
	ok := fmt.Sprintf("- { customer: acme, plan: pro, hmac_sha256: %s }\n", hashed("k1"))
	for _, c := range []struct{ text, want string }{
		{"customer: acme\n", "keys.yaml:1:9: error: the file is not a list of keys"},
		{"", "keys.yaml:1:1: error: the file is empty\n\tfix: write [] in a file that is to have no keys"},
		{"# a comment\n", "keys.yaml:1:1: error: the file is empty"},
		{"[]", "p.yaml:2:35: warning: keys.yaml has no keys: each request that needs a customer gets 401"},
		{ok + "- { customer: acme, hmac_sha256: " + hashed("k2") + " }\n- { customer: acme, plan: enterprise, hmac_sha256: " + hashed("k3") + " }\n", "keys.yaml:2:3: warning: the keys of the customer \"acme\" have different plans: another one is in "},
		{ok + "- acme\n", "keys.yaml:2:3: error: this is not an entry for a key"},
		{ok + "- { customer: a, hmac_sha256: weir_secret }\n", "keys.yaml:2:31: error: hmac_sha256 is not a hash"},
		{ok + "- { customer: a, key: weir_secret }\n", "keys.yaml:2:18: error: an entry has no \"key\""},
		{ok + "- { customer: a }\n", "error: the entry has no hmac_sha256"},
		{ok + "- { plan: pro, hmac_sha256: " + hashed("k2") + " }\n", "error: the entry has no customer"},
		{ok + "- { customer: b, hmac_sha256: " + hashed("k1") + " }\n", "error: this key is there twice, first in"},
		{ok + "- { customer: b, plan: [a], hmac_sha256: " + hashed("k2") + " }\n", "keys.yaml:2:24: error: the plan is not a name"},
		{ok + "- { customer: b, plan: por, hmac_sha256: " + hashed("k2") + " }\n", "keys.yaml:2:24: warning: no limit has parameters for the plan \"por\""},
		{ok + "- { customer: \xff }\n", "keys.yaml:2:1: error: the line is not UTF-8 text"},
		{ok + "\t- {", "keys.yaml:2:1: error: "},
		{strings.Repeat("[", 100), "error: the file is nested"},
		{strings.Repeat("x", 1<<20+1), "error: the file has 1048577 bytes"},
	} {
		f, err := planned(t, c.text)
		var said strings.Builder
		for _, p := range f.Problems {
			said.WriteString(p.String() + "\n")
		}
		if !strings.Contains(said.String(), c.want) || strings.Contains(c.want, "warning") != (err == nil) {
			t.Errorf("%.60q:\n%swant %s", c.text, said.String(), c.want)
		}
		if strings.Contains(said.String(), "weir_secret") || strings.Contains(said.String(), hashed("k1")) {
			t.Errorf("%.60q: the message has a key:\n%s", c.text, said.String())
		}
	}
}

// TestPlansInAPolicyFile: what is wrong is reported at its place, with a fix.
func TestPlansInAPolicyFile(t *testing.T) {
	const page = `
plans: { from: [PLANFROM], jwt: { jwks: "https://id.example/j", issuer: i, audience: a }, unknown: UNKNOWN }
limits:
  requests: { key: customer, token_bucket: { rate: 10/s, burst: 20 }, plans: { pro: PLAN } }
routes: [{ match: /, limits: [requests] }]
`
	for _, c := range []struct{ from, unknown, plan, want string }{
		{"jwt.plan", "deny", "{ rate: 100/s, burst: 200 }", ""},
		{"jwt.plan", "deny", "{ burst: 200 }", ""},
		{"jwt.plan", "default", "unlimited", "warning: all requests without customer share one key"},
		{"jwt.plan", "deny", "unlimted", "x.yaml:4:85: error: \"unlimted\" is not what the limit is for a plan"},
		{"jwt.plan", "deny", "{ rat: 100/s }", "x.yaml:4:92: error: a token_bucket has no \"rat\"\n\tfix: did you mean rate?"},
		{"jwt.plan", "deny", "{ rate: 0/s }", "x.yaml:4:93: error: rate \"0/s\""},
		{"jwt.plan", "deny", "{ burst: [1] }", "error: burst is not a parameter like this"},
		{"jwt.plan", "deny", "{ token_bucket: { burst: 7 } }", "a plan has the algorithm of its limit, token_bucket, and only other parameters\n\tfix: pro: { burst: 7 }"},
		{"jwt.plan", "deny", "{ fixed_window: { limit: 7, window: 1m } }", "a plan has the algorithm of its limit, token_bucket, and only other parameters"},
		{"header.x-plan", "deny", "unlimited", "no customer is ever known: customers are found by api_key or jwt.CLAIM\n\tfix: at the top level, plans: { from: api_key,"},
		{"jwt.plan", "deny", "{ burst: -1 }", "x.yaml:4:94: error: "},
		{"header.x-plan", "", "unlimited", "warning: requests of which no trusted proxy sends the plan get 401"},
		{"jwt", "deny", "unlimited", "x.yaml:2:17: error: \"jwt\" is not where a plan is found"},
		{"jwt.plan", "denny", "unlimited", "x.yaml:2:100: error: \"denny\" is not known here"},
	} {
		f, _ := Parse("x.yaml", []byte(strings.NewReplacer("PLANFROM", c.from, "UNKNOWN", c.unknown, "PLAN", c.plan).Replace(page)))
		var said strings.Builder
		for _, p := range f.Problems {
			said.WriteString(p.String() + "\n")
		}
		if !strings.Contains(said.String(), c.want) || c.want == "" && said.Len() > 0 {
			t.Errorf("%+v:\n%s", c, said.String())
		}
	}
}
