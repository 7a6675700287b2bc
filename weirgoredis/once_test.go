package weirgoredis_test

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

	"github.com/redis/go-redis/v9"

	"github.com/weirflow/weir/weirgoredis"
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
			io.WriteString(c, "-ERR unknown command\r\n")
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

// clients returns clients that a Store accepts. By default they would repeat failed commands: 3
// times, here without a delay.
func clients(t *testing.T, addr string) map[string]redis.UniversalClient {
	single := redis.NewClient(&redis.Options{Addr: addr, MinRetryBackoff: -1, ContextTimeoutEnabled: true})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, MaxRetries: 3, MinRetryBackoff: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { single.Close(); cluster.Close() })
	return map[string]redis.UniversalClient{"single": single, "cluster": cluster}
}

var call = weirredis.Call{Script: &weirredis.Script{Source: "return 1", SHA: strings.Repeat("a", 40)}, Keys: []string{"{k}"}, Args: []string{"x"}}

// TestOnce: a script whose reply is lost, or that the server refuses for now, is not sent again.
func TestOnce(t *testing.T) {
	for failure, answer := range map[string]func(int, net.Conn) bool{
		"the connection is closed": func(int, net.Conn) bool { return false },
		"no answer":                func(int, net.Conn) bool { return true },
		"LOADING":                  func(_ int, c net.Conn) bool { io.WriteString(c, "-LOADING for now\r\n"); return true },
		"TRYAGAIN":                 func(_ int, c net.Conn) bool { io.WriteString(c, "-TRYAGAIN later\r\n"); return true },
		"half an answer":           func(_ int, c net.Conn) bool { io.WriteString(c, "$5\r\nab"); return false },
	} {
		for kind := range clients(t, "127.0.0.1:1") {
			for _, how := range []string{"one", "several"} {
				t.Run(fmt.Sprintf("%s, %s, %s", failure, kind, how), func(t *testing.T) {
					s := serve(t, answer)
					e, err := weirgoredis.Evaler(clients(t, s.Addr().String())[kind])
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					defer cancel()
					want := 1
					if how == "one" {
						if text, err := e.Eval(ctx, call); err == nil {
							t.Errorf("no error, but %q", text)
						}
					} else {
						want = 2
						replies := make([]weirredis.Reply, 2)
						if e.EvalAll(ctx, []weirredis.Call{call, call}, replies); replies[0].Err == nil || replies[1].Err == nil {
							t.Errorf("%+v", replies)
						}
					}
					if n := s.scripts(); n < 1 || n > want {
						t.Errorf("%d scripts were sent, want %d at most", n, want)
					}
				})
			}
		}
	}
}

// TestPlainCommandsAreSentAgain shows that TestOnce can fail: go-redis sends one of its own
// commands four times.
func TestPlainCommandsAreSentAgain(t *testing.T) {
	s := serve(t, func(int, net.Conn) bool { return false })
	client := clients(t, s.Addr().String())["single"]
	if err := client.EvalSha(t.Context(), call.Script.SHA, call.Keys, "x").Err(); err == nil || s.scripts() != 4 {
		t.Errorf("%v: sent %d times", err, s.scripts())
	}
}

// TestRepliesComeThrough: the server's replies and errors come through unchanged.
func TestRepliesComeThrough(t *testing.T) {
	s := serve(t, func(n int, c net.Conn) bool {
		io.WriteString(c, map[bool]string{true: "-NOSCRIPT No matching script.\r\n", false: "$3\r\nyes\r\n"}[n == 1])
		return true
	})
	e, err := weirgoredis.Evaler(clients(t, s.Addr().String())["single"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Eval(t.Context(), call); err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		t.Errorf("%v", err)
	}
	send := call
	send.Send = true
	if text, err := e.Eval(t.Context(), send); text != "yes" || err != nil || s.got[1] != "EVAL" {
		t.Errorf("%q, %v, %v", text, err, s.got)
	}
	replies := make([]weirredis.Reply, 2)
	if e.EvalAll(t.Context(), []weirredis.Call{call, send}, replies); replies[0].Text != "yes" || replies[1].Text != "yes" {
		t.Errorf("%+v", replies)
	}
}

// TestMovedIsFollowed: if a node responds with MOVED, the script is sent to the node that it names.
func TestMovedIsFollowed(t *testing.T) {
	there := serve(t, func(_ int, c net.Conn) bool { io.WriteString(c, "$3\r\nyes\r\n"); return true })
	for _, word := range []string{"MOVED", "ASK"} {
		here := serve(t, func(_ int, c net.Conn) bool { fmt.Fprintf(c, "-%s 7629 %s\r\n", word, there.Addr()); return true })
		e, err := weirgoredis.Evaler(clients(t, here.Addr().String())["cluster"])
		if err != nil {
			t.Fatal(err)
		}
		before := there.scripts()
		if text, err := e.Eval(t.Context(), call); text != "yes" || err != nil {
			t.Errorf("%s: %q, %v", word, text, err)
		}
		replies := make([]weirredis.Reply, 1)
		if e.EvalAll(t.Context(), []weirredis.Call{call}, replies); replies[0].Text != "yes" {
			t.Errorf("%s: %+v", word, replies)
		}
		if n := there.scripts() - before; n != 2 {
			t.Errorf("%s: %d scripts arrived", word, n)
		}
	}
}

// TestRefused: New refuses clients that would repeat scripts.
func TestRefused(t *testing.T) {
	slow := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer slow.Close()
	defer ring.Close()
	for want, client := range map[string]redis.UniversalClient{
		"ContextTimeoutEnabled: true": slow,
		"Ring":                        ring,
		"is not known":                struct{ redis.UniversalClient }{slow},
	} {
		if _, err := weirgoredis.New(client, weirredis.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
