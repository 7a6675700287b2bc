package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// parse returns what a reader makes of a stream: each command in quotes, and how it ends.
func parse(source io.Reader, b Bounds) string {
	r := NewReader(source, b)
	var out strings.Builder
	for {
		args, err := r.Next()
		switch {
		case err == nil:
			for _, a := range args {
				fmt.Fprintf(&out, "%q ", a)
			}
			out.WriteString("| ")
		case errors.Is(err, ErrIncomplete):
			if err := r.Fill(); err != nil {
				return out.String() + fmt.Sprint(r.Buffered())
			}
		default:
			return out.String() + err.Error()
		}
	}
}

var bounds = Bounds{Bytes: 1000, Args: 10}

// TestReader: commands in both forms, and what Redis says of those that are none, whole and byte by
// byte.
func TestReader(t *testing.T) {
	for text, want := range map[string]string{
		"*1\r\n$4\r\nPING\r\n":                     `"PING" | 0`,
		"*2\r\n$4\r\nECHO\r\n$5\r\na\r\nb\x00\r\n": `"ECHO" "a\r\nb\x00" | 0`,
		"*0\r\n*-1\r\n\r\n  \r\nPING\r\n":          `"PING" | 0`,
		"PING\nPING x\r\n":                         `"PING" | "PING" "x" | 0`,
		`set "a b\x41\n" 'c\'d' e"f"` + "\n":       `"set" "a bA\n" "c'd" "ef" | 0`,
		"get \"x\n":                                "Protocol error: unbalanced quotes in request",
		"get \"x\"y\n":                             "Protocol error: unbalanced quotes in request",
		"*1\r\n$4\r\nPIN":                          "11",
		"*1\r\n:4\r\n":                             "Protocol error: expected '$', got ':'",
		"*a\r\n":                                   "Protocol error: invalid multibulk length",
		"*11\r\n":                                  "Protocol error: invalid multibulk length",
		"*99999999999999999999\r\n":                "Protocol error: invalid multibulk length",
		"*1\r\n$-1\r\n":                            "Protocol error: invalid bulk length",
		"*1\r\n$1001\r\n":                          "Protocol error: invalid bulk length",
		"*1\r\n$1\r\nab\r\n":                       "Protocol error: expected CRLF after a bulk string",
		strings.Repeat("x", 2000):                  "Protocol error: too big inline request",
		strings.Repeat("x", 2000) + "\n":           "Protocol error: too big inline request",
		"*2\r\n$600\r\n" + strings.Repeat("x", 600) + "\r\n$600\r\n" + strings.Repeat("x", 600) + "\r\n": "Protocol error: invalid bulk length",
	} {
		for name, source := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
			if got := parse(source, bounds); got != want {
				t.Errorf("%q, %s:\n%s, want\n%s", text, name, got, want)
			}
		}
	}
}

// FuzzReader: a stream means the same however it is cut, commands stay within the bounds, and the
// memory too.
func FuzzReader(f *testing.F) {
	f.Add([]byte("*2\r\n$4\r\nECHO\r\n$1\r\nx\r\nPING\r\n"), uint8(3))
	f.Add([]byte("set \"a\\x00b\" 'c'\n*1\r\n$"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		whole, cut := parse(bytes.NewReader(data), bounds), parse(&steps{data, int(step) + 1}, bounds)
		if whole != cut {
			t.Errorf("%q: whole %s\ncut %s", data, whole, cut)
		}
		r := NewReader(bytes.NewReader(data), bounds)
		for {
			args, err := r.Next()
			if errors.Is(err, ErrIncomplete) {
				err = r.Fill()
			}
			if err != nil {
				break
			}
			size := 0
			for _, a := range args {
				size += len(a)
			}
			if len(args) > bounds.Args || size > bounds.Bytes || len(r.buf) > 2*usualBuffer {
				t.Fatalf("%d arguments, %d bytes, a buffer of %d", len(args), size, len(r.buf))
			}
		}
	})
}

// steps reads some bytes at a time.
type steps struct {
	data []byte
	n    int
}

func (s *steps) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.n)], s.data)
	s.data = s.data[n:]
	return n, nil
}

func TestParseInt(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-1": -1, "+7": 7, "007": 7, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63} {
		if n, ok := ParseInt([]byte(text)); !ok || n != want {
			t.Errorf("%s: %d %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "-", "+", "1.5", " 1", "1 ", "0x1", "9223372036854775808", "-9223372036854775809", "99999999999999999999", "١"} {
		if n, ok := ParseInt([]byte(text)); ok {
			t.Errorf("%q: %d", text, n)
		}
	}
}
