package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// browser is a Chromium that drive.mjs controls.
type browser struct {
	mu  sync.Mutex // for a command and its result
	in  io.Writer
	out *bufio.Reader
	end func() error
}

// startBrowser starts one until the test ends.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	node, err := servers.Program("node", "nodejs")
	if err != nil {
		t.Fatal(err)
	}
	chromium, err := servers.Program("chromium", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		t.Fatalf("playwright-core is not installed: make needs, or npm ci --ignore-scripts in proof/browser (%v)", err)
	}
	cmd := exec.Command(node, "drive.mjs")
	cmd.Env = append(os.Environ(), "CHROMIUM="+chromium, fmt.Sprint("PATIENCE=", servers.Patience.Milliseconds()))
	cmd.WaitDelay = 10 * time.Second
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // then it closes the browser, and ends
		end := time.AfterFunc(servers.Patience, func() { cmd.Process.Kill() })
		defer end.Stop()
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Error(err)
		}
		err := cmd.Wait()
		if err != nil {
			t.Errorf("the browser did not end well: %v", err)
		}
		if said.Len() > 0 {
			t.Logf("the browser's driver: %s", said.String())
		}
	})
	return &browser{in: in, out: bufio.NewReader(out), end: cmd.Process.Kill}
}

// do sends a command, and reads its result.
func (b *browser) do(command map[string]any, result any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	line, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		return err
	}
	late := time.AfterFunc(3*servers.Patience, func() { b.end() }) // drive.mjs says earlier what takes too long
	defer late.Stop()
	text, err := b.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the browser has ended: %w", err)
	}
	var answer struct {
		Result json.RawMessage
		Error  string
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

// page is what one visitor has open.
type page struct {
	t    *testing.T
	b    *browser
	name string
}

// cookie is one as Playwright has it.
type cookie struct {
	Name     string  `json:"name"`
	Value    string  `json:"value"`
	Domain   string  `json:"domain"`
	Path     string  `json:"path"`
	HTTPOnly bool    `json:"httpOnly"`
	SameSite string  `json:"sameSite"`
	Expires  float64 `json:"expires"`
}

// open has a new visitor, with options of Playwright, open an address, and returns the status of
// the response.
func (b *browser) open(t *testing.T, name, url string, options map[string]any, cookies ...cookie) (*page, int) {
	t.Helper()
	p := &page{t, b, name}
	command := map[string]any{"do": "open", "page": name, "url": url, "options": options}
	if len(cookies) > 0 {
		command["cookies"] = cookies
	}
	var answer struct{ Status int }
	if err := b.do(command, &answer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p, answer.Status
}

func (p *page) must(command map[string]any, result any) {
	p.t.Helper()
	command["page"] = p.name
	if err := p.b.do(command, result); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

func (p *page) close() {
	if err := p.b.do(map[string]any{"do": "close", "page": p.name}, nil); err != nil {
		p.t.Error(err)
	}
}

// eval runs a script in the page.
func (p *page) eval(script string, result any) {
	p.t.Helper()
	p.must(map[string]any{"do": "run", "script": script}, result)
}

// until waits for a script to return something true.
func (p *page) until(script string) {
	p.t.Helper()
	p.must(map[string]any{"do": "until", "script": script, "timeout": servers.Patience.Milliseconds()}, nil)
}

// press types a text where the focus is, and then presses keys.
func (p *page) press(text string, keys ...string) {
	p.t.Helper()
	p.must(map[string]any{"do": "press", "text": text, "keys": keys}, nil)
}

// text returns the text of an element.
func (p *page) text(selector string) (text string) {
	p.t.Helper()
	p.must(map[string]any{"do": "text", "selector": selector}, &text)
	return text
}

// cookies returns the visitor's cookies.
func (p *page) cookies() (all []cookie) {
	p.t.Helper()
	p.must(map[string]any{"do": "cookies"}, &all)
	return all
}

// shot takes a picture, if WEIR_SHOTS names a directory for them.
func (p *page) shot(name string) {
	p.t.Helper()
	if dir := os.Getenv("WEIR_SHOTS"); dir != "" {
		p.must(map[string]any{"do": "shot", "path": dir + "/" + name + ".png"}, nil)
	}
}
