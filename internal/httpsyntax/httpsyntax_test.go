package httpsyntax

import (
	"net/url"
	"strings"
	"testing"
)

func TestTokens(t *testing.T) {
	for b := range 256 {
		c := byte(b)
		delimiter := strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 // of RFC 9110
		if want := c > ' ' && c < 0x7f && !delimiter; IsToken([]byte{c}) != want || IsToken(string([]byte{c})) != want || IsTokenByte(c) != want {
			t.Errorf("%q as a token: want %v", c, want)
		}
	}
	if IsToken("") {
		t.Error("an empty token is one")
	}
}

func TestHosts(t *testing.T) {
	for _, good := range []string{
		"a", "a.b", "a.b.", "A-b_c~d.e", "a:1", "a:65535", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80", "[::ffff:1.2.3.4]", strings.Repeat("a", 254) + ":65535",
	} {
		if !IsHost(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{
		"", "[evil", "[", "[]", "[::1", "::1]", "::1", "[::1]x", "[::1]:", "[fe80::1%eth0]", "[1.2.3.4]", "[a]", "a:", "a:b", "a:1:2", "a:65536", "a:000001", ":80", ".", ".a", "a..b", "a.:x",
		"a/b", "a@b", "a b", "a\\b", "a%41", "a?b", "a#b", "a,b", "a;b", "a\x00", "\xc3\xa4", "*", strings.Repeat("a", 255),
	} {
		if IsHost(bad) {
			t.Errorf("%q passes", bad)
		}
	}
	for b := range 256 { // no other byte is part of a name
		c := byte(b)
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if want := letter || strings.IndexByte("-._~", c) >= 0; IsHost(string([]byte{'a', c, 'a'})) != want {
			t.Errorf("%q in a host: want %v", c, want)
		}
	}
}

// TestCanonicalTarget: net/url reads each target as it is sent on, and so does every reader of RFC
// 3986.
func TestCanonicalTarget(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "/a?b?c": "/a?b?c", "/%2F%zz": "/%2F%zz", "/\xc3\xa4?\xc3\xa4": "/%C3%A4?%C3%A4", "/a%2Fb\"<>^`{|}": "/a%2Fb%22%3C%3E%5E%60%7B%7C%7D",
		"/?\"{}|\xff": "/?\"{}|%FF", "/[a]": "/[a]",
	} {
		if got := CanonicalTarget(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for b := range 256 {
		c := byte(b)
		if want := c > ' ' && c != 0x7f && c != '#' && c != '\\'; IsTarget([]byte{'/', c}) != want {
			t.Errorf("%q in a target: want %v", c, want)
		}
		if c == '%' || !IsTarget([]byte{'/', c}) {
			continue
		}
		for _, text := range []string{"/a%2Fb" + string([]byte{c}), "/?a" + string([]byte{c})} {
			sent := CanonicalTarget(text)
			if u, err := url.ParseRequestURI(sent); err != nil || u.RequestURI() != sent {
				t.Errorf("%q is sent on as %q, which net/url reads as another: %v", text, sent, err)
			}
			if again := CanonicalTarget(sent); again != sent {
				t.Errorf("%q becomes %q the second time", sent, again)
			}
		}
	}
}

func TestCutLine(t *testing.T) {
	for text, want := range map[string]struct {
		line, rest string
		ok         bool
	}{
		"a\r\nb\r\n": {"a", "b\r\n", true},
		"\r\n":       {"", "", true},
		"a\nb\r\n":   {"", "a\nb\r\n", false},
		"a\rb\r\nc":  {"a\rb", "c", false},
		"\n":         {"", "\n", false},
		"a\r":        {"", "a\r", false},
		"":           {"", "", false},
	} {
		line, rest, ok := CutLine(text)
		if line != want.line || rest != want.rest || ok != want.ok {
			t.Errorf("%q: %q %q %v", text, line, rest, ok)
		}
		if bytes, _, okBytes := CutLine([]byte(text)); string(bytes) != line || okBytes != ok {
			t.Errorf("%q as bytes: %q %v", text, bytes, okBytes)
		}
	}
	text := []byte("Host: example.com\r\n")
	if n := testing.AllocsPerRun(100, func() { CutLine(text); IsToken(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
