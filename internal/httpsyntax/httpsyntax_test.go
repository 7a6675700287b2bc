package httpsyntax

import (
	"strings"
	"testing"
)

func TestTokensAndHosts(t *testing.T) {
	for b := range 256 {
		c := byte(b)
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		delimiter := strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 // of RFC 9110
		if want := c > ' ' && c < 0x7f && !delimiter; IsToken([]byte{c}) != want || IsToken(string([]byte{c})) != want || IsTokenByte(c) != want {
			t.Errorf("%q as a token: want %v", c, want)
		}
		if want := letter || strings.IndexByte("-._:[]%~", c) >= 0; IsHost([]byte{'a', c}) != want {
			t.Errorf("%q in a host: want %v", c, want)
		}
	}
	if IsToken("") || !IsHost("") {
		t.Error("an empty token, or no host, is read wrong")
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
