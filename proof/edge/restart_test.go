package edge

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// successor is the process that a gateway said it has started. The test ends it.
func (g *gateway) successor(t *testing.T) int {
	t.Helper()
	pid := 0
	poll(t, "the new process serves", func() bool {
		for line := range strings.Lines(g.Output()) {
			var l struct {
				Msg string
				Pid int
			}
			if json.Unmarshal([]byte(line), &l) == nil && strings.HasPrefix(l.Msg, "restarted") {
				pid = l.Pid
			}
		}
		return pid != 0
	})
	t.Cleanup(func() {
		if syscall.Kill(pid, 0) == nil {
			syscall.Kill(pid, syscall.SIGTERM)
			poll(t, "the new process ends", func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
		}
	})
	return pid
}

// zombie reports whether a process has ended and nobody has asked how.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// clients send requests to a gateway until they are told to stop: some over connections that they keep, some over one for each. They return
// how many were answered, and what went wrong.
func clients(t *testing.T, urls []string, each int) (stop func() (answered int, wrong []string)) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	n, failures := 0, []string{}
	for _, url := range urls {
		for i := range each {
			transport := &http.Transport{DisableKeepAlives: i%2 == 1, TLSClientConfig: insecure(), ForceAttemptHTTP2: i%4 == 0}
			wg.Go(func() {
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport, Timeout: patience}
				for {
					select {
					case <-done:
						return
					default:
					}
					// A POST is never sent again by the transport: one that is lost is seen.
					resp, err := client.Post(url, "text/plain", strings.NewReader("x"))
					status := 0
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						status = resp.StatusCode
					}
					mu.Lock()
					if err != nil || status != 200 {
						failures = append(failures, fmt.Sprintf("%s: %d, %v", url, status, err))
					} else {
						n++
					}
					mu.Unlock()
				}
			})
		}
	}
	return func() (int, []string) {
		close(done)
		wg.Wait()
		return n, failures
	}
}

// TestRestartUnderLoad replaces the process three times, and reloads it in between, while clients ask over plain and TLS: none of their
// requests is lost.
func TestRestartUnderLoad(t *testing.T) {
	up := newRawUpstream(t)
	dir := t.TempDir()
	selfSigned(t, dir)
	port, secure, admin := freePort(t), freePort(t), freePort(t)
	listen := fmt.Sprintf("  gateway:\n    - 127.0.0.1:%s\n    - { address: \"127.0.0.1:%s\", tls: { certificates: [{ cert: a.crt, key: a.key }] } }\n", port, secure)
	g := startWeir(t, dir, listen, up.addr, routes)
	// The admin address is a free port that each process would choose anew: here it is one.
	text, err := os.ReadFile(g.policy())
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	replace(t, g.policy(), strings.Replace(string(text), "admin: 127.0.0.1:0", "admin: 127.0.0.1:"+admin, 1))
	g = restartable(t, dir)
	stop := clients(t, []string{"http://127.0.0.1:" + port + "/", "https://127.0.0.1:" + secure + "/"}, 4)
	pid := g.Pid()
	for i := range 3 {
		if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		before := pid
		if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		poll(t, fmt.Sprintf("process %d serves", i+2), func() bool {
			pid = readPid(g.Output(), i)
			return pid != 0
		})
		poll(t, "the old process ends", func() bool { return zombie(before) })
		if resp, err := http.Get("http://127.0.0.1:" + admin + "/readyz"); err != nil || resp.StatusCode != 200 {
			t.Errorf("the new process is not ready: %v", err)
		} else {
			resp.Body.Close()
		}
	}
	answered, wrong := stop()
	t.Logf("%d requests over 3 restarts and 3 reloads", answered)
	if len(wrong) > 0 || answered == 0 {
		t.Errorf("%d requests were answered, and %d were not: %s", answered, len(wrong), wrong[:min(len(wrong), 5)])
	}
	syscall.Kill(pid, syscall.SIGTERM)
	poll(t, "the last process ends", func() bool { return zombie(pid) })
	if strings.Contains(g.Output(), "DATA RACE") || strings.Contains(g.Output(), "panic") {
		t.Error(g.Output())
	}
}

// readPid is the number of the i-th process that was started, which is in the log.
func readPid(log string, i int) int {
	for line := range strings.Lines(log) {
		var l struct {
			Msg string
			Pid int
		}
		if json.Unmarshal([]byte(line), &l) == nil && strings.HasPrefix(l.Msg, "restarted") {
			if i == 0 {
				return l.Pid
			}
			i--
		}
	}
	return 0
}

// TestRestartThatFails: a new process that does not come up leaves the old one as it was.
func TestRestartThatFails(t *testing.T) {
	up := newRawUpstream(t)
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up.addr, routes)
	good, err := os.ReadFile(g.policy())
	if err != nil {
		t.Fatal(err)
	}
	replace(t, g.policy(), "listen: [")
	if err := g.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	poll(t, "it is told", func() bool { return strings.Contains(g.Output(), "not restarted: this process goes on") })
	for range 3 { // connections that were there, and new ones
		if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
			t.Errorf("%v", got)
		}
	}
	// And then one that does.
	replace(t, g.policy(), string(good))
	if err := g.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	g.successor(t)
	if got := statuses(send(t, g.Gateway, last)); len(got) != 1 || got[0] != "200" {
		t.Errorf("%v", got)
	}
	poll(t, "the old process ends", func() bool {
		select {
		case <-g.Ended():
			return true
		default:
			return false
		}
	})
}

// TestRestartLetsRequestsEnd: what is in the middle of an answer when the process is replaced gets the rest of it from the old one.
func TestRestartLetsRequestsEnd(t *testing.T) {
	release := make(chan struct{})
	up := httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
			<-release
		}
		io.WriteString(w, "rest")
	})
	g := startWeir(t, t.TempDir(), "  gateway: 127.0.0.1:0\n", up, routes)
	conn, err := net.Dial("tcp", g.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	g.successor(t)
	if got := send(t, g.Gateway, last); !strings.Contains(got, "rest") {
		t.Errorf("another request: %q", got)
	}
	close(release)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "first rest" {
		t.Errorf("%q, %v", body, err)
	}
}

// TestSocketActivation starts weir as systemd does: with a socket that is open already, and another to tell that it serves.
func TestSocketActivation(t *testing.T) {
	up := newRawUpstream(t)
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	replace(t, filepath.Join(dir, "policy.yaml"), fmt.Sprintf("listen: { gateway: \"%s\" }\nupstreams: { up: { url: \"http://%s\" } }\n%s", l.Addr(), up.addr, routes))
	// The shell knows the number of the process that it becomes.
	cmd := exec.Command("sh", "-c", "LISTEN_PID=$$ exec \"$0\" serve --config policy.yaml", binary)
	cmd.Dir, cmd.ExtraFiles = dir, []*os.File{f}
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1", "NOTIFY_SOCKET="+filepath.Join(dir, "notify"))
	cmd.Stderr = os.Stderr
	if testing.Verbose() {
		cmd.Stdout = os.Stdout
	} else {
		cmd.Stderr = nil
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	notify.SetReadDeadline(time.Now().Add(patience))
	told := make([]byte, 100)
	n, err := notify.Read(told)
	if err != nil || string(told[:n]) != fmt.Sprintf("READY=1\nMAINPID=%d", cmd.Process.Pid) {
		t.Fatalf("%q, %v", told[:n], err)
	}
	if got := statuses(send(t, l.Addr().String(), last)); len(got) != 1 || got[0] != "200" {
		t.Errorf("%v", got)
	}
}
