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

	"github.com/weirflow/weir/proof/servers"
)

// A daemon is weir under addresses that stay the same when the process is replaced. Its log goes to
// a file, because its successors write there, too.
type daemon struct {
	dir, gateway, secure, admin string
	pids                        []int // of all processes so far
}

// startDaemon serves a policy on an address without TLS and one with it.
func startDaemon(t *testing.T, upstream string) *daemon {
	t.Helper()
	d := newDaemon(t)
	selfSigned(t, d.dir)
	d.start(t, fmt.Sprintf(`listen:
  gateway: [%s, { address: %q, tls: { certificates: [{ cert: a.crt, key: a.key }] } }]
  admin: %s
upstreams: { up: { url: "http://%s" } }
`, d.gateway, d.secure, d.admin, upstream)+routes)
	return d
}

func newDaemon(t *testing.T) *daemon {
	return &daemon{dir: t.TempDir(), gateway: "127.0.0.1:" + freePort(t), secure: "127.0.0.1:" + freePort(t), admin: "127.0.0.1:" + freePort(t)}
}

// start starts the first process with a policy.
func (d *daemon) start(t *testing.T, policy string) {
	t.Helper()
	servers.Replace(t, d.policy(), policy)
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, "serve", "--config", d.policy())
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.pids = []int{cmd.Process.Pid}
	t.Cleanup(func() {
		for _, pid := range d.pids {
			syscall.Kill(pid, syscall.SIGTERM)
		}
		for _, pid := range d.pids {
			servers.Poll(t, "a process ends", func() bool { return ended(pid) })
		}
		cmd.Wait()
		if log := d.log(t); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic") {
			t.Error(log)
		}
	})
	servers.Poll(t, "it serves", d.ready)
}

func (d *daemon) policy() string { return filepath.Join(d.dir, "policy.yaml") }

func (d *daemon) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (d *daemon) ready() bool {
	resp, err := http.Get("http://" + d.admin + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (d *daemon) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(d.pids[len(d.pids)-1], s); err != nil {
		t.Fatal(err)
	}
}

// restart replaces the process.
func (d *daemon) restart(t *testing.T) {
	t.Helper()
	d.signal(t, syscall.SIGUSR2)
	servers.Poll(t, "a new process serves", func() bool {
		pid := 0
		n := 0
		for line := range strings.Lines(d.log(t)) {
			var l struct {
				Msg string
				Pid int
			}
			if json.Unmarshal([]byte(line), &l) == nil && strings.HasPrefix(l.Msg, "restarted") {
				pid, n = l.Pid, n+1
			}
		}
		if n == len(d.pids) {
			d.pids = append(d.pids, pid)
			return true
		}
		return false
	})
}

// ended reports whether a process has ended, also if no parent has waited for it.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// clients send requests to a gateway until they are stopped: some over connections that they keep,
// some over a new one for each. so returns how many have succeeded and failed so far, and stop
// returns the errors of each.
func clients(urls []string, each int) (so func() int, stop func() (answered int, wrong []string)) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	n, failures := 0, []string{}
	for _, url := range urls {
		for i := range each {
			transport := &http.Transport{DisableKeepAlives: i%2 == 1, TLSClientConfig: insecure(), ForceAttemptHTTP2: i%4 == 0}
			wg.Go(func() {
				defer transport.CloseIdleConnections()
				client := &http.Client{Transport: transport, Timeout: servers.Patience}
				for {
					select {
					case <-done:
						return
					default:
					}
					// The transport never sends a POST again, so one that is lost shows.
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
	so = func() int {
		mu.Lock()
		defer mu.Unlock()
		return n + len(failures)
	}
	return so, func() (int, []string) {
		close(done)
		wg.Wait()
		return n, failures
	}
}

// TestRestartUnderLoad replaces the process three times, and reloads it in between, while clients
// send requests with TLS and without: none is lost.
func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	up := newRawUpstream(t)
	d := startDaemon(t, up.addr)
	so, stop := clients([]string{"http://" + d.gateway + "/", "https://" + d.secure + "/"}, 4)
	for i := range 3 {
		before := so()
		servers.Poll(t, "the clients are at it", func() bool { return so() >= before+300 })
		d.signal(t, syscall.SIGHUP)
		d.restart(t)
		servers.Poll(t, "the process before ends", func() bool { return ended(d.pids[i]) })
		if !d.ready() {
			t.Error("the new process is not ready")
		}
	}
	answered, wrong := stop()
	t.Logf("%d requests over 3 restarts and 3 reloads", answered)
	if len(wrong) > 0 || answered == 0 {
		t.Errorf("%d requests were answered, and %d were not: %s", answered, len(wrong), wrong[:min(len(wrong), 5)])
	}
}

// TestRestartThatFails: if a new process does not start, the old one goes on.
func TestRestartThatFails(t *testing.T) {
	t.Parallel()
	up := newRawUpstream(t)
	d := startDaemon(t, up.addr)
	good, err := os.ReadFile(d.policy())
	if err != nil {
		t.Fatal(err)
	}
	servers.Replace(t, d.policy(), "listen: [")
	d.signal(t, syscall.SIGUSR2)
	servers.Poll(t, "the log says so", func() bool { return strings.Contains(d.log(t), "not restarted: this process continues") })
	serves := func() {
		t.Helper()
		if got := statuses(send(t, d.gateway, last)); len(got) != 1 || got[0] != "200" || !d.ready() {
			t.Errorf("%v", got)
		}
	}
	for range 3 {
		serves()
	}
	servers.Replace(t, d.policy(), string(good)) // and then one that starts
	d.restart(t)
	serves()
	servers.Poll(t, "the old process ends", func() bool { return ended(d.pids[0]) })
	serves()
}

// TestRestartLetsRequestsEnd: a response that has begun when the process is replaced is completed
// by the old one.
func TestRestartLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	d := startDaemon(t, httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
			<-release
		}
		io.WriteString(w, "rest")
	}))
	conn, err := net.Dial("tcp", d.gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * servers.Patience))
	io.WriteString(conn, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.restart(t)
	if got := send(t, d.gateway, last); !strings.Contains(got, "rest") {
		t.Errorf("another request: %q", got)
	}
	close(release)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "first rest" {
		t.Errorf("%q, %v", body, err)
	}
	servers.Poll(t, "the old process ends", func() bool { return ended(d.pids[0]) })
}

// upgraded opens a WebSocket, which the test closes.
func (d *daemon) upgraded(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", d.gateway)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * servers.Patience))
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	r := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	return conn, r
}

// TestRestartLeavesWebSockets: an upgraded connection goes on in the old process, beside the new
// one.
func TestRestartLeavesWebSockets(t *testing.T) {
	t.Parallel()
	up := newRawUpstream(t)
	d := startDaemon(t, up.addr)
	conn, r := d.upgraded(t)
	d.restart(t)
	deadline := time.After(7 * time.Second) // longer than a restart waits for idle clients
	for over := false; !over; {
		io.WriteString(conn, "echo\n")
		if line, err := r.ReadString('\n'); err != nil || line != "echo\n" {
			t.Fatalf("%q, %v", line, err)
		}
		select {
		case <-deadline:
			over = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	conn.Close()
	servers.Poll(t, "the old process ends", func() bool { return ended(d.pids[0]) })
}

// TestStopAfterRestart: a process that was replaced ends soon when it is asked to stop, and does not wait for a
// WebSocket until the end of its grace.
func TestStopAfterRestart(t *testing.T) {
	t.Parallel()
	up := newRawUpstream(t)
	d := startDaemon(t, up.addr)
	d.upgraded(t)
	d.restart(t)
	began := time.Now()
	if err := syscall.Kill(d.pids[0], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the old process ends", func() bool { return ended(d.pids[0]) })
	if took := time.Since(began); took > 20*time.Second { // the grace is 30 s
		t.Errorf("it ended after %v", took)
	}
	if got := statuses(send(t, d.gateway, last)); len(got) != 1 || got[0] != "200" {
		t.Errorf("the new process: %v", got)
	}
}

// TestSocketActivation starts weir as systemd does: with an open socket, and another for the
// notification that it is ready.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
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
	servers.Replace(t, filepath.Join(dir, "policy.yaml"), fmt.Sprintf("listen: { gateway: \"%s\" }\nupstreams: { up: { url: \"http://%s\" } }\n%s", l.Addr(), up.addr, routes))
	// The shell knows the process number, because exec keeps it.
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
	notify.SetReadDeadline(time.Now().Add(servers.Patience))
	message := make([]byte, 100)
	n, err := notify.Read(message)
	if err != nil || string(message[:n]) != fmt.Sprintf("READY=1\nMAINPID=%d", cmd.Process.Pid) {
		t.Fatalf("%q, %v", message[:n], err)
	}
	if got := statuses(send(t, l.Addr().String(), last)); len(got) != 1 || got[0] != "200" {
		t.Errorf("%v", got)
	}
}
