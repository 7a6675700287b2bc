package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// adminPage is run by a test of its own, as its commands speak to a running server.
const adminPage = "admin.md"

// TestAdminDocs runs what docs/admin.md shows, against a server with the policy that it shows: only addresses are replaced by free ones, and
// times and tags are any.
func TestAdminDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/" + adminPage)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("docs/admin.md is shown with curl: apt install curl")
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up\n") }))
	defer up.Close()
	dir := t.TempDir()
	free := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:0", "127.0.0.1:9090", "127.0.0.1:0", "http://127.0.0.1:9000", up.URL)
	blocks := fence.FindAllStringSubmatch(string(text), -1)
	all := map[string]string{"token": strings.Repeat("0123456789abcdef", 4)}
	for _, block := range blocks {
		if name := named.FindStringSubmatch(block[1]); name != nil {
			all[name[1]] = free.Replace(block[1])
		}
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	gateway, admin := served(t, "served.yaml")
	addresses := strings.NewReplacer("127.0.0.1:8080", gateway, "127.0.0.1:9090", admin)
	ran := 0
	for _, block := range blocks {
		for _, s := range shownIn(block[1]) {
			ran++
			var out string
			if args, ours := strings.CutPrefix(s.args, "weir "); ours {
				_, stdout, stderr := weir(t, "", append(strings.Fields(args), "--admin", "http://"+admin)...)
				out = stdout + stderr
			} else {
				got, err := exec.CommandContext(t.Context(), "sh", "-c", addresses.Replace(s.args)).CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v", s.args, err)
				}
				out = strings.ReplaceAll(string(got), "\r\n", "\n")
			}
			if got, want := changing.ReplaceAllString(out, "*"), changing.ReplaceAllString(s.want, "*"); !matches(got, want) {
				t.Errorf("$ %s\ngot:\n%s\nthe page shows:\n%s", s.args, got, want)
			}
		}
	}
	if ran < 8 {
		t.Errorf("only %d commands were found", ran)
	}
}

// changing is what differs from run to run: times, tags, and seconds that went by.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|Date: [^\n]*|[0-9a-f]{32}|Retry-After: 3[56]\d\d`)

// shownIn are the commands of a block, and what each prints.
func shownIn(block string) (all []session) {
	for line := range strings.Lines(block) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, session{page: adminPage, args: strings.TrimSpace(command)})
		} else if len(all) > 0 {
			all[len(all)-1].want += line
		}
	}
	return all
}

// served runs weir serve in this process until the test ends, and returns where it listens.
func served(t *testing.T, config string) (gateway, admin string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	log, ended := &lines{added: make(chan struct{}, 1)}, make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"serve", "--config", config}, strings.NewReader(""), io.Discard, log)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-ended; code != 0 {
			t.Errorf("weir serve ended with %d: %s", code, log)
		}
	})
	timeout := time.After(30 * time.Second)
	for {
		for line := range strings.Lines(log.String()) {
			var l struct {
				Msg    string
				Listen struct{ Gateway, Admin []string }
			}
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "serving" {
				return l.Listen.Gateway[0], l.Listen.Admin[0]
			}
		}
		select {
		case <-log.added:
		case code := <-ended:
			ended <- code
			t.Fatalf("weir serve: %s", log)
		case <-timeout:
			t.Fatalf("weir serve does not listen: %s", log)
		}
	}
}

// lines is a log that is read while it is written.
type lines struct {
	mu    sync.Mutex
	b     bytes.Buffer
	added chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.added <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
