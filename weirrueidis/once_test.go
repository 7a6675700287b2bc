package weirrueidis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/weirredis"
)

// server speaks the part of the Redis protocol that a client needs at its start, and responds to
// scripts as the test says.
type server struct {
	net.Listener
	mu     sync.Mutex
	got    []string                     // the names of the scripts that were called, in capitals
	answer func(n int, c net.Conn) bool // called for the n-th script; false closes the connection
}

func serve(t *testing.T, answer func(n int, c net.Conn) bool) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, answer: answer}
	var conns sync.WaitGroup
	t.Cleanup(func() { l.Close(); conns.Wait() })
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { s.talk(c) })
		}
	})
	return s
}

func (s *server) talk(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		args, err := read(r)
		if err != nil {
			return
		}
		switch name := strings.ToUpper(args[0]); name {
		case "EVAL", "EVALSHA":
			s.mu.Lock()
			s.got = append(s.got, name)
			n := len(s.got)
			s.mu.Unlock()
			if !s.answer(n, c) {
				return
			}
		case "HELLO":
			io.WriteString(c, "-ERR unknown command 'HELLO'\r\n")
		case "CLUSTER": // one node has all slots
			host, port, _ := net.SplitHostPort(s.Addr().String())
			fmt.Fprintf(c, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
		case "COMMAND":
			io.WriteString(c, "*0\r\n")
		default:
			io.WriteString(c, "+OK\r\n")
		}
	}
}

// read reads a command.
func read(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	args := make([]string, n)
	for i := range args {
		if line, err = r.ReadString('\n'); err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		text := make([]byte, size+2)
		if _, err = io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	return args, err
}

func (s *server) scripts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

var call = weirredis.Call{Script: &weirredis.Script{Source: "return 1", SHA: strings.Repeat("a", 40)}, Keys: []string{"{k}"}, Args: []string{"x"}}

// linked returns a client of a server.
func linked(t *testing.T, url string) *link {
	t.Helper()
	a, err := weirredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o, err := clientOption(a)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(a, o)
	l.start()
	t.Cleanup(l.close)
	return l
}

// TestOnce: a script whose reply is lost, or that the server refuses for now, is not sent again.
func TestOnce(t *testing.T) {
	for failure, answer := range map[string]func(int, net.Conn) bool{
		"the connection is closed": func(int, net.Conn) bool { return false },
		"no answer":                func(int, net.Conn) bool { return true },
		"LOADING":                  func(_ int, c net.Conn) bool { io.WriteString(c, "-LOADING for now\r\n"); return true },
		"TRYAGAIN":                 func(_ int, c net.Conn) bool { io.WriteString(c, "-TRYAGAIN later\r\n"); return true },
		"half an answer":           func(_ int, c net.Conn) bool { io.WriteString(c, "$5\r\nab"); return false },
	} {
		for _, scheme := range []string{"redis", "redis+cluster"} {
			for _, n := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s, %s, %d", failure, scheme, n), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					s := serve(t, func(n int, c net.Conn) bool { // and after that there is time to send it again
						time.AfterFunc(200*time.Millisecond, cancel)
						return answer(n, c)
					})
					l := linked(t, scheme+"://"+s.Addr().String())
					if n == 1 {
						if text, err := l.Eval(ctx, call); err == nil {
							t.Errorf("no error, but %q", text)
						}
					} else {
						replies := make([]weirredis.Reply, 2)
						if l.EvalAll(ctx, []weirredis.Call{call, call}, replies); replies[0].Err == nil || replies[1].Err == nil {
							t.Errorf("%+v", replies)
						}
					}
					if sent := s.scripts(); sent < 1 || sent > n {
						t.Errorf("%d scripts were sent, want %d at most", sent, n)
					}
				})
			}
		}
	}
}

// TestMovedIsFollowed: if a node of a cluster responds with MOVED, the script is sent to the node
// that it names. Without a cluster URL that is an error, which says what to write.
func TestMovedIsFollowed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	there := serve(t, func(_ int, c net.Conn) bool { io.WriteString(c, "$3\r\nyes\r\n"); return true })
	for _, word := range []string{"MOVED", "ASK"} {
		here := serve(t, func(_ int, c net.Conn) bool { fmt.Fprintf(c, "-%s 7629 %s\r\n", word, there.Addr()); return true })
		l := linked(t, "redis+cluster://"+here.Addr().String())
		before := there.scripts()
		if text, err := l.Eval(ctx, call); text != "yes" || err != nil {
			t.Errorf("%s: %q, %v", word, text, err)
		}
		if n := there.scripts() - before; n != 1 {
			t.Errorf("%s: %d scripts arrived", word, n)
		}
		if word == "MOVED" {
			if _, err := linked(t, "redis://"+here.Addr().String()).Eval(ctx, call); err == nil || !strings.Contains(err.Error(), "write redis+cluster://") {
				t.Errorf("%v", err)
			}
		}
	}
}
