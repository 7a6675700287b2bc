// Package observe tests what operators see of a running server with the programs that they use: weir top in
// a terminal (tmux), and metrics and rules with Prometheus.
package observe

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/weirflow/weir/proof/servers"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "weir-observe-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if binary, err = servers.BuildWeir(context.Background(), dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

const observed = `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
limits:
  per-user: { key: header.user, token_bucket: { rate: 1/h, burst: 1 } }
  trial: { key: header.user, token_bucket: { rate: 1/h, burst: 1 }, shadow: true }
routes:
  - { match: /, limits: [per-user, trial], respond: { status: 204 } }
`

// start starts a server, and returns it with a function that sends it a request of a user.
func start(t *testing.T, policy string) (w *servers.Weir, visit func(user string) int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "observed.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := servers.StartWeir(t.Context(), binary, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	return w, func(user string) int {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.Gateway, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User", user)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
}

// program returns the path of a program, or ends the test.
func program(t *testing.T, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("the test needs %s: apt install %s", name, install)
	}
	return path
}

// terminal is a program in a terminal of tmux.
type terminal struct {
	t      *testing.T
	socket string
}

// run runs a command in a new terminal of 100 by 30 characters.
func run(t *testing.T, command ...string) *terminal {
	t.Helper()
	program(t, "tmux", "tmux")
	x := &terminal{t, filepath.Join(t.TempDir(), "tmux")}
	x.tmux(append([]string{"new-session", "-d", "-s", "weir", "-x", "100", "-y", "30"}, command...)...)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", x.socket, "kill-server").Run() }) // it may have ended
	return x
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), "tmux", append([]string{"-f", "/dev/null", "-S", x.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// until waits until the screen has all texts.
func (x *terminal) until(texts ...string) (screen string) {
	x.t.Helper()
	servers.Poll(x.t, fmt.Sprintf("the screen shows %q", texts), func() bool {
		screen = x.tmux("capture-pane", "-p", "-t", "weir")
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
	return screen
}

func (x *terminal) press(keys ...string) {
	x.tmux(append([]string{"send-keys", "-t", "weir"}, keys...)...)
}

// TestTop drives weir top: it shows limits and masked keys, sorts and filters, bans a key once it is shown,
// and hostile names do nothing to the terminal.
func TestTop(t *testing.T) {
	w, visit := start(t, observed)
	for range 20 {
		visit("mallory")
	}
	for range 5 {
		visit("ann")
		visit("evil\xe2\x80\xaename")
		visit("long" + strings.Repeat("x", 30<<10))
	}
	x := run(t, binary, "top", "--admin", "http://"+w.Admin)
	screen := x.until("weir top", "per-user", "(trial)", "MOST REFUSED BY per-user", "m***") // masked
	if strings.Contains(screen, "mallory") {
		t.Errorf("a key is shown unasked:\n%s", screen)
	}
	x.press("s")
	x.until("sorted by admitted/s")
	x.press("b")
	x.until("choose a key first")
	x.press("Tab", "b")
	x.until("show keys first")
	x.press("i")
	screen = x.until("mallory", `evil\u202ename`)
	if strings.ContainsFunc(screen, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("the screen has characters that nobody sees: %q", screen)
	}
	x.press("/", "mall", "Enter", "Down", "b")
	x.until("ban for 1h: mallory at per-user? y or n")
	x.press("n")
	x.until("nothing was changed")
	x.press("b")
	x.until("y or n")
	x.press("y")
	x.until("banned until")
	if code := visit("mallory"); code != http.StatusTooManyRequests {
		t.Errorf("a banned user gets %d", code)
	}
	x.press("l")
	x.until("lift: mallory")
	x.press("y")
	x.until("lifted")
	x.press("q")
	servers.Poll(t, "weir top has ended", func() bool {
		return exec.CommandContext(t.Context(), "tmux", "-S", x.socket, "has-session", "-t", "weir").Run() != nil
	})
}
