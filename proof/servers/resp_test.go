package servers_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// replies starts a server that reads a command and then writes a given text, and sends it one
// command.
func replies(t *testing.T, reply string) (any, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const command = "*2\r\n$3\r\nGET\r\n$4\r\na\r\n\x00\r\n"
	said := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			said <- err.Error()
			return
		}
		defer conn.Close()
		b := make([]byte, len(command))
		_, _ = io.ReadFull(conn, b)
		said <- string(b)
		_, _ = io.WriteString(conn, reply)
	}()
	c, err := servers.DialRedis(within(t, 30*time.Second), l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v, err := c.Do(within(t, 30*time.Second), "GET", "a\r\n\x00")
	if got := <-said; got != command {
		t.Errorf("it sent %q", got)
	}
	return v, err
}

func TestReplies(t *testing.T) {
	for _, x := range []struct {
		text string
		want any
	}{
		{"+OK\r\n", "OK"},
		{"+\r\n", ""},
		{":-9223372036854775808\r\n", int64(-1 << 63)},
		{"$-1\r\n", nil},
		{"$0\r\n\r\n", ""},
		{"$5\r\na\r\n\x00b\r\n", "a\r\n\x00b"},
		{"*-1\r\n", nil},
		{"*0\r\n", []any{}},
		{"*4\r\n:1\r\n$-1\r\n*1\r\n+x\r\n-ERR no\r\n", []any{int64(1), nil, []any{"x"}, servers.RedisError("ERR no")}},
	} {
		if got, err := replies(t, x.text); err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%q: %#v, %v", x.text, got, err)
		}
	}
	_, err := replies(t, "-WRONGTYPE Operation against another\r\n")
	if e, ok := errors.AsType[servers.RedisError](err); !ok || e.Code() != "WRONGTYPE" {
		t.Error(err)
	}
}

func TestRepliesThatAreWrongAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "unexpected EOF",
		"+OK":                                  "unexpected EOF",
		"+OK\n":                                "a line",
		"\r\n":                                 "a line",
		"%1\r\n":                               "not RESP2",
		":x\r\n":                               "invalid syntax",
		"$-2\r\n":                              "length",
		"$2\r\nabc\r\n":                        "followed by",
		"$9\r\nabc\r\n":                        "unexpected EOF",
		"$999999999999\r\n":                    "longer than",
		"*999999999999\r\n":                    "longer than",
		"*2\r\n+x\r\n":                         "unexpected EOF",
		strings.Repeat("*1\r\n", 99):           "arrays in arrays",
		"+" + strings.Repeat("x", 1<<17):       "a line of a reply is longer",
		"*3\r\n+x\r\n$300000000\r\nx\r\n+\r\n": "longer than",
	} {
		if v, err := replies(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, %v", text, v, err)
		}
	}
}

func TestAContextEndsAnExchange(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and writes nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := servers.DialRedis(within(t, 30*time.Second), l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Do(within(t, 10*time.Millisecond), "AUTH", "secret")
	if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if _, err := c.Do(t.Context(), "PING"); err == nil {
		t.Error("the connection is still used")
	}
	if _, err := c.Do(t.Context()); err == nil {
		t.Error("there was no command")
	}
}
