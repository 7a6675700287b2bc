package handover

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestInvalidSocketEnvironment: an invalid environment is an error, and is not passed on to programs that
// this one starts.
func TestInvalidSocketEnvironment(t *testing.T) {
	for name, variables := range map[string]map[string]string{
		"no JSON":          {listenersVariable: "x"},
		"no file":          {listenersVariable: `[{"name":"a","address":"b","fd":9999}]`},
		"standard input":   {listenersVariable: `[{"name":"a","address":"b","fd":0}]`},
		"no pipe":          {readyVariable: "x"},
		"standard output":  {readyVariable: "1"},
		"no number":        {lineVariable: strconv.Itoa(os.Getppid()) + ":x"},
		"no connection":    {lineVariable: strconv.Itoa(os.Getppid()) + ":9999"},
		"systemd, no file": {"LISTEN_PID": strconv.Itoa(os.Getpid()), "LISTEN_FDS": "-1"},
		"systemd, many":    {"LISTEN_PID": strconv.Itoa(os.Getpid()), "LISTEN_FDS": "1000000"},
	} {
		for k, v := range variables {
			t.Setenv(k, v)
		}
		if _, err := Inherit(); err == nil || !strings.HasPrefix(err.Error(), "handover: ") {
			t.Errorf("%s: %v", name, err)
		}
		for k := range variables {
			if k == "LISTEN_PID" || k == "LISTEN_FDS" {
				os.Unsetenv(k)
			} else if v, there := os.LookupEnv(k); there {
				t.Errorf("%s: %s=%s is left", name, k, v)
			}
		}
	}
	// What is for another process is ignored.
	t.Setenv(lineVariable, "1:3")
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "3")
	if s, err := Inherit(); err != nil || len(s.Left()) != 0 || s.HasLine() {
		t.Errorf("%v, %v", s, err)
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		listens, address string
		same             bool
	}{
		{"127.0.0.1:0", "127.0.0.1:PORT", true}, {"127.0.0.1:0", "localhost:PORT", true}, {"127.0.0.1:0", "127.0.0.1:1", false}, {"127.0.0.1:0", "127.0.0.2:PORT", false},
		{"[::]:0", ":PORT", true}, {"[::]:0", "0.0.0.0:PORT", true}, {"[::]:0", "[::]:PORT", true}, {"[::]:0", "127.0.0.1:PORT", false}, {"127.0.0.1:0", ":PORT", false},
	} {
		l, err := net.Listen("tcp", c.listens)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if same := listensOn(l, strings.ReplaceAll(c.address, "PORT", port)); same != c.same {
			t.Errorf("%s on %s: %v", c.address, l.Addr(), same)
		}
		l.Close()
	}
}

// TestStartThatFails: a missing program, one that ends, and one that never gets ready. The socket
// is unchanged: it can be closed during an Accept.
func TestStartThatFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sockets := []Socket{{Name: "a", Address: "b", Listener: l}}
	for want, p := range map[string]Program{
		"no such file":              {Path: "/nowhere"},
		"ended before it was ready": {Path: "/bin/false"},
		"was not ready in time":     {Path: "/bin/sleep", Args: []string{"1000"}},
		"ready: without an error":   {Path: "/bin/true"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if strings.Contains(want, "in time") {
			cancel()
		}
		own, other, err := NewLine()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Start(ctx, p, sockets, other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", p.Path, err)
		}
		if _, err := own.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the other end of the connection is still open: %v", p.Path, err)
		}
		own.Close()
		cancel()
	}
	accepted := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				accepted <- err
				return
			}
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	select {
	case <-accepted:
	case <-time.After(30 * time.Second):
		t.Error("the socket blocks")
	}
}

// TestStartThatFailsSaysWhy: a program that has closed all that it inherited, and is about to say why it failed, is
// not killed before it has said so. It was: an operator read "signal: killed", and nothing else.
func TestStartThatFailsSaysWhy(t *testing.T) {
	own, other, err := NewLine()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	const program = `eval "exec $WEIR_READY_FD>&-"; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 3`
	_, err = Start(t.Context(), Program{Path: "/bin/sh", Args: []string{"-c", program}}, nil, other)
	if err == nil || !strings.Contains(err.Error(), "ended before it was ready: exit status 3") {
		t.Error(err)
	}
}

// TestThisProgram: a symbolic link is resolved only when the program is started again.
func TestThisProgram(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "weir")
	if err := os.Symlink("/bin/true", link); err != nil {
		t.Fatal(err)
	}
	before := os.Args
	defer func() { os.Args = before }()
	os.Args = []string{link, "serve"}
	if p, err := ThisProgram(); err != nil || p.Path != link || len(p.Args) != 1 || p.Args[0] != "serve" {
		t.Errorf("%+v, %v", p, err)
	}
	t.Chdir(dir)
	os.Args = []string{"./weir"}
	if p, err := ThisProgram(); err != nil || !filepath.IsAbs(p.Path) || filepath.Base(p.Path) != "weir" {
		t.Errorf("%+v, %v", p, err)
	}
	os.Args = []string{"-a name of its own"}
	if p, err := ThisProgram(); err != nil || !filepath.IsAbs(p.Path) {
		t.Errorf("%+v, %v", p, err)
	}
}
