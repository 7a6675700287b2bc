package policyfile

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirredis"
)

const secretive = `
# a comment
stores:
  a: { url: "redis://app:s3cret@127.0.0.1:6379/0?client_name=x&dial_timeout=1s" }
  b: { url: "redis+sentinel://:s3cret@h1,h2/main?sentinel_password=s3cret&sentinel_user=u" }
  c: { url: "redis://127.0.0.1:6379" }
limits:
  z: &base { key: [client.ip], token_bucket: { rate: 10/s, burst: 20 }, store: a }
  y: { key: client.ip, roll_out: 0.5%, token_bucket: { rate: 10/s, burst: 20 }, store: b }
routes:
  - { match: /, limits: [z, y], refused: { body: "<p>a & b: 100%</p>\n\u2028\t\"" } }
`

// TestPublished: the published policy has no password, and sent back it is the same policy.
func TestPublished(t *testing.T) {
	f, err := Parse("p.yaml", []byte(secretive))
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.Published()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("s3cret")) || strings.Count(string(text), hidden) != 3 {
		t.Errorf("%s", text)
	}
	if bytes.Index(text, []byte(`"z"`)) > bytes.Index(text, []byte(`"y"`)) {
		t.Error("it is in another order")
	}
	back, err := Parse("p.yaml", f.Reveal(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if changes := policy.Diff(&f.Policy, &back.Policy); len(changes) > 0 {
		t.Errorf("%v", changes)
	}
	for what, other := range map[string]string{
		"another place":     strings.Replace(string(text), "127.0.0.1:6379/0", "192.0.2.1:6379/0", 1),
		"the end of a name": strings.Replace(string(text), "h1,h2/main", "h1,h2/main,evil.example/main", 1),
		"a body":            strings.Replace(string(text), "<p>a", "redis://app:xxxxx@127.0.0.1:6379/0?client_name=x&dial_timeout=1s", 1),
		"another store":     strings.Replace(string(text), `"a": {`, `"q": {`, 1),
	} {
		if other == string(text) {
			t.Fatal(what)
		}
		got, err := Parse("p.yaml", f.Reveal([]byte(other)))
		if got == nil || err != nil && what != "another store" && what != "the end of a name" {
			t.Fatal(what, err)
		}
		for _, s := range got.Policy.Stores {
			if strings.Contains(s.URL, "s3cret") && s != f.Policy.Stores[0] && s != f.Policy.Stores[1] {
				t.Errorf("%s: a password went to %s", what, s.URL)
			}
		}
		for _, r := range got.Policy.Routes {
			if strings.Contains(r.Refused.Body, "s3cret") {
				t.Errorf("%s: a password is in a body", what)
			}
		}
	}
}

// FuzzPublished: every policy is the same after it was published and sent back, and the published
// form has no password.
func FuzzPublished(f *testing.F) {
	f.Add(secretive)
	f.Add(page)
	f.Add("stores: { a: { url: 'unix://u:p@/s?db=1' } }\nlimits: { x: { store: a, token_bucket: { rate: 1/s, burst: 1 } } }")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseText("testdata/p.yaml", []byte(text))
		if err != nil {
			return
		}
		shown, err := file.Published()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseText("testdata/p.yaml", file.Reveal(shown))
		if err != nil {
			t.Fatalf("%v\n%s", err, shown)
		}
		if changes := policy.Diff(&file.Policy, &back.Policy); len(changes) > 0 {
			t.Errorf("%v\n%s", changes, shown)
		}
		again, err := Parse("testdata/p.yaml", shown)
		if err != nil {
			return // without its password a URL may be invalid
		}
		for _, s := range again.Policy.Stores {
			address, err := weirredis.ParseURL(s.URL)
			if err == nil && (address.Password != "" && address.Password != hidden || address.SentinelPassword != "" && address.SentinelPassword != hidden) {
				t.Errorf("a password is shown: %s", shown)
			}
		}
	})
}
