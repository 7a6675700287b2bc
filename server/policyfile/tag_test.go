package policyfile

import (
	"strings"
	"testing"
)

// TestTagsAndPrefixes: problems have their position and a fix.
func TestTagsAndPrefixes(t *testing.T) {
	const page = `
stores: { s: { url: "redis+cluster://h", prefix: PREFIX } }
limits:
  a: { key: host, tag: TAG, store: s, token_bucket: { rate: 1/s, burst: 1 } }
  b: { key: client.ip, store: s, token_bucket: { rate: 1/s, burst: 1 } }
routes: [{ match: /, limits: [a, b] }]
`
	for _, c := range []struct{ prefix, tag, want string }{
		{"'a b'", "host", "x.yaml:2:50: error: \"a b\" is not what keys may begin with\n\tfix: write up to 64"},
		{"5", "host", "x.yaml:2:50: error: this is a number, and must be a text"},
		{"x", "client.ip", "x.yaml:4:24: error: client.ip is no part of the key: what one key has used would be kept once for each client.ip\n\tfix: write host, which the key has, or const.TEXT"},
		{"x", "[host]", "x.yaml:4:19: error: this is a list, and must be a text"},
		{"x", "host", "x.yaml:6:34: warning: \"a\" and \"b\" are charged one after the other, and given back where one refuses: the store spreads its keys over nodes, and they are in different slots\n\tfix: give both the same tag: const.TEXT"},
	} {
		f, _ := Parse("x.yaml", []byte(strings.NewReplacer("PREFIX", c.prefix, "TAG", c.tag).Replace(page)))
		var said strings.Builder
		for _, p := range f.Problems {
			said.WriteString(p.String() + "\n")
		}
		if !strings.Contains(said.String(), c.want) {
			t.Errorf("%s, %s:\n%swant\n%s", c.prefix, c.tag, said.String(), c.want)
		}
	}
}
