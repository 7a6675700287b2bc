package policy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/internal/jsonscan"
)

func TestParts(t *testing.T) {
	r := &request{
		Request: Request{
			Method: "GET", Host: "Shop.Example:8080", Path: "/a/%62//c", Query: "sku_id=7&x=a%20b+c&two=1&two=2&empty=&%73ku2=9", Client: "10.0.0.1",
			Header: http.Header{
				"User-Id": {"u1"},
				"Twice":   {"1", "2"},
				"Cookie":  {`a=1; session="s 1"`, "late=2; a=3"},
			},
		},
		pattern: &pattern{segments: []segment{{text: "a"}, {name: "what"}}, tail: tailBelow, rest: "more"},
	}
	for text, want := range map[string]struct {
		value   string
		present bool
	}{
		"client.ip":       {"10.0.0.1", true},
		"header.user-id":  {"u1", true},
		"header.twice":    {"", true}, // ambiguous: it has no value, but does not count as missing
		"header.none":     {"", false},
		"query.sku_id":    {"7", true},
		"query.sku2":      {"9", true},
		"query.x":         {"a b c", true},
		"query.two":       {"", true},
		"query.empty":     {"", true},
		"query.none":      {"", false},
		"cookie.a":        {"", true}, // sent twice
		"cookie.session":  {"s 1", true},
		"cookie.late":     {"2", true},
		"cookie.none":     {"", false},
		"host":            {"shop.example", true},
		"method":          {"GET", true},
		"path":            {"/a/b/c", true},
		"path.what":       {"b", true},
		"path.more":       {"c", true},
		"path.none":       {"", false},
		"const.all of it": {"all of it", true},
	} {
		p, err := parsePart(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if value, present, _ := p.value(r); value != want.value || present != want.present {
			t.Errorf("%s = %q, %v, want %q, %v", text, value, present, want.value, want.present)
		}
	}
	for _, text := range []string{"", "client", "client.", "header", "header.", "header.a b", "cookie.a;b", "ip", "jwt.", "customer.x", "header.Host", "query."} {
		if p, err := parsePart(text); err == nil {
			t.Errorf("%q is read as %+v", text, p)
		}
	}
}

// TestCredentialsAreOneKey: all that upstreams take for the same credentials has one key, in
// requests, in overrides and in exemptions; other credentials have another one.
func TestCredentialsAreOneKey(t *testing.T) {
	const want = "bearer Sk-1"
	for _, text := range []string{"Bearer Sk-1", "bearer Sk-1", "BEARER Sk-1", "Bearer  Sk-1", "Bearer\tSk-1", "Bearer \t Sk-1", " Bearer Sk-1\t", "Bearer\xa0Sk-1", "Bearer \x85\xa0Sk-1 \xa0"} {
		r := &request{Request: Request{Header: http.Header{"Authorization": {text}}}}
		p, err := parsePart("header.authorization")
		if err != nil {
			t.Fatal(err)
		}
		if value, present, repeated := p.value(r); value != want || !present || repeated {
			t.Errorf("%q is the key %q, %v, %v", text, value, present, repeated)
		}
		o := activeOverride{Override: Override{Key: []string{text}}}
		if key, err := o.locate(&limit{parts: []part{p}}); err != nil || key != EncodeKey(want) {
			t.Errorf("an override of %q has the key %q, %v", text, key, err)
		}
		x := exemption{}
		if err := x.add("key."+text, []string{"header.Authorization"}); err != nil || string(x.keys[0]) != EncodeKey(want) {
			t.Errorf("an exemption of %q: %q, %v", text, x.keys, err)
		}
	}
	for text, want := range map[string]string{
		"Bearer sk-1": "bearer sk-1", "Other Sk-1": "other Sk-1", "Sk-1": "Sk-1", "sk-1": "sk-1", "": "", "Bearer": "Bearer", "Bearer a b": "bearer a b",
	} {
		if got := CanonicalAuthorization(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// TestEncodedCredentialsAreOneKey: decoders skip characters that are no base64, and ignore bits beyond
// the last byte. However a client writes its user name and password, or the signature of its token, it
// has at most two keys.
func TestEncodedCredentialsAreOneKey(t *testing.T) {
	for _, c := range []struct {
		good     string
		spelled  []string
		distinct string
	}{
		{"Basic dXNlcjpwYXNzd29yZA==", []string{ // of "user:password"
			"Basic dXNlcjpwYXNzd29yZA", "Basic dXNlcjpwYXNzd29yZB==", "Basic dXNl!cjpwYXNzd29yZA==", "Basic dXNl cjpwYXNzd29yZA==", "Basic dXNlcjpwYXNzd29yZA==x",
			"Basic =dXNlcjpwYXNzd29yZA==", "basic dXNlcjpwYXNzd29yZA==, a=b", "Basic dXNlcjpwYXNzd29yZA==" + strings.Repeat("=", 2000),
		}, "Basic dXNlcjpwYXNzd29yZQ=="},
		{"Bearer eyJhIjoxfQ.e30.AAAAAA", []string{
			"Bearer eyJhIjoxfQ.e30.AAAAAB", "Bearer eyJhIjoxfQ.e30.AAAAAP", "Bearer eyJhIjoxfQ.e30.AAAAAA==", "Bearer eyJhIjoxfQ.e30.AA!AAAA", "Bearer eyJhIjoxfQ.e30.AAAA AA",
		}, "Bearer eyJhIjoxfQ.e30.AAAABA"},
	} {
		good, other := CanonicalAuthorization(c.good), CanonicalAuthorization(c.spelled[0])
		if CanonicalAuthorization(c.distinct) == good || other == good {
			t.Errorf("%q has the key of another", c.good)
		}
		for _, text := range c.spelled {
			if got := CanonicalAuthorization(text); got != other {
				t.Errorf("%q becomes %q, and %q becomes %q", c.spelled[0], other, text, got)
			}
		}
	}
}

// TestBodyFieldsInKeys: a text and a whole number are parts of a key as they are written. Whatever
// upstreams may take for another value shares one counter, and does not count as missing.
func TestBodyFieldsInKeys(t *testing.T) {
	for text, want := range map[string]string{
		`"gpt"`: "gpt", `" gpt"`: " gpt", `"1"`: "1", `"1.0"`: "1.0", `"true"`: "true", `17`: "17", `-3`: "-3", `0`: "0",
		`1.0`: "", `1e0`: "", `1E0`: "", `-0`: "", `true`: "", `false`: "", `["gpt"]`: "", `{"a":1}`: "", `9007199254740993`: "", `1e400`: "",
	} {
		f := jsonscan.Fields(treeOf(t, "model"), []byte(`{"model":`+text+`}`), true)[0]
		if value, present, unclear := bodyValue(f); value != want || !present || unclear != (want == "") {
			t.Errorf("%s is %q, present %v, unclear %v", text, value, present, unclear)
		}
	}
	for _, body := range []string{`{}`, `{"model":null}`} {
		f := jsonscan.Fields(treeOf(t, "model"), []byte(body), true)[0]
		if value, present, unclear := bodyValue(f); value != "" || present || unclear {
			t.Errorf("%s: %q, present %v, unclear %v", body, value, present, unclear)
		}
	}
}

func treeOf(t *testing.T, name string) *jsonscan.Tree {
	t.Helper()
	tree := jsonscan.NewTree()
	if err := tree.Add(name, 0); err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestClientKey(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1":                 "192.0.2.1",
		"::ffff:192.0.2.1":          "192.0.2.1",
		"2001:db8:1:2:3:4:5:6":      "2001:db8:1:2::/64",
		"2001:db8:1:2::":            "2001:db8:1:2::/64",
		"fe80::1%eth0":              "fe80::/64",
		"::1":                       "::/64",
		"pppa006.compuserve.com":    "pppa006.compuserve.com",
		"":                          "",
		"192.0.2.1:80":              "192.0.2.1:80",
		"2001:DB8:1:2:ffff:ffff::1": "2001:db8:1:2::/64",
	} {
		if got := ClientKeyOf(text); got != want {
			t.Errorf("ClientKeyOf(%q) = %q, want %q", text, got, want)
		}
	}
	if ClientKey(netip.Addr{}) != "" {
		t.Error("no address has a key")
	}
}

func TestKeysAreInjective(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{
		nil, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"a", "b"}, {"ab"}, {"a\x01b"}, {"\x01b"}, {"a", "\x01b"}, {"a:b", "c"}, {"a", "b:c"},
		{strings.Repeat("x", 126)}, {strings.Repeat("x", 127)}, {strings.Repeat("x", 128)}, {strings.Repeat("x", 129)},
		{strings.Repeat("x", 128), ""}, {strings.Repeat("x", 64), strings.Repeat("x", 65)}, {strings.Repeat("x", 65), strings.Repeat("x", 64)},
	} {
		key := EncodeKey(parts...)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have one key", parts, other)
		}
		seen[key] = parts
		if len(key) > maxKey {
			t.Errorf("a key of %d bytes", len(key))
		}
		if back, err := DecodeKey(key); err == nil && !slices.Equal(back, parts) {
			t.Errorf("%q comes back as %q", parts, back)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("a", "b", "c", "", uint8(3), uint8(2))
	f.Add("a", "\x01b", "ab", "", uint8(2), uint8(1))
	f.Add(strings.Repeat("x", 200), "", "", "", uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, a, b, c, d string, n, m uint8) {
		all := []string{a, b, c, d}
		one, two := all[:int(n)%5], all[4-int(m)%5:]
		if (EncodeKey(one...) == EncodeKey(two...)) != slices.Equal(one, two) {
			t.Errorf("%q and %q have one key", one, two)
		}
		key := EncodeKey(one...)
		if back, err := DecodeKey(key); err == nil != (key == "" || key[0] != hashed || len(key) != 33) && !slices.Equal(back, one) {
			t.Errorf("%q comes back as %q, %v", one, back, err)
		}
	})
}

func FuzzDecodeKey(f *testing.F) {
	f.Add("\x01a")
	f.Add("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	f.Fuzz(func(t *testing.T, key string) {
		parts, err := DecodeKey(key)
		if err == nil && len(key) <= maxKey && EncodeKey(parts...) != key && isMinimal(key) {
			t.Errorf("%q decodes to %q, which encodes to %q", key, parts, EncodeKey(parts...))
		}
	})
}

// isMinimal reports whether all lengths below 128 in a key are one byte, as EncodeKey writes them.
func isMinimal(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool { return r >= 0x80 })
}

func FuzzQuery(f *testing.F) {
	f.Add("sku_id=1&x=2", "sku_id")
	f.Add("%73ku_id=%31", "sku_id")
	f.Add("a=1&a=2", "a")
	f.Fuzz(func(t *testing.T, query, name string) {
		value, present, _ := queryValue(query, name, false)
		if !present && value != "" {
			t.Errorf("%q is missing and has the value %q", name, value)
		}
		if again, _, _ := queryValue(query+"&"+query, name, false); present && again != "" {
			t.Errorf("given twice, %q has the value %q", name, again)
		}
	})
}
