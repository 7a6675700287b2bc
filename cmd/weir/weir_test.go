package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// weir runs the command in this process.
func weir(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// files writes files into a new directory and returns its path.
func files(t *testing.T, all map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const shop = `
limits:
  per-sku: { key: query.sku_id, on_missing: key, token_bucket: { rate: 6/m, burst: 1 } }
routes:
  - { match: GET /ratelimit/sku, limits: [per-sku], refused: { status: 503 } }
`

const accessLog = `10.0.0.1 - - [01/Jan/2024:00:00:00 +0000] "GET /ratelimit/sku?sku_id=1 HTTP/1.1" 200 5
10.0.0.2 - - [01/Jan/2024:00:00:01 +0000] "GET /ratelimit/sku?sku_id=1 HTTP/1.1" 200 5
rubbish
10.0.0.1 - - [01/Jan/2024:00:00:10 +0000] "GET /ratelimit/sku?sku_id=1 HTTP/1.1" 200 5
10.0.0.1 - - [01/Jan/2024:00:00:10 +0000] "GET /elsewhere HTTP/1.1" 200 5
`

func TestCheck(t *testing.T) {
	dir := files(t, map[string]string{
		"good.yaml": shop,
		"warn.yaml": shop + "  - { match: GET /ratelimit/sku }\n",
		"bad.yaml":  strings.Replace(shop, "rate: 6/m", "rate: 0/m", 1),
	})
	code, out, errs := weir(t, "", "check", dir+"/good.yaml")
	if code != 0 || out != dir+"/good.yaml: ok: 1 limit, 1 route (no listen: not for serve)\n" || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	code, out, _ = weir(t, "", "check", dir+"/warn.yaml")
	if code != 0 || !strings.Contains(out, "warn.yaml:6:14: warning: the route is never reached") {
		t.Errorf("%d %q", code, out)
	}
	code, out, errs = weir(t, "", "check", dir+"/bad.yaml")
	if code != 1 || !strings.Contains(out, `bad.yaml:3:72: error: rate "0/m": 0 lets nothing pass`) || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	code, out, _ = weir(t, "", "check", "--schema")
	if code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("%d %q", code, out)
	}
}

func TestReplay(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": shop, "log": accessLog})
	code, out, errs := weir(t, "", "replay", "--config", dir+"/p.yaml", "--json", "--decisions", dir+"/decisions", dir+"/log")
	if code != 0 || !strings.HasPrefix(out, `{"requests":4,"unparsed":1,"limits":{"per-sku":{"allowed":2,"limited":1,"delayed":0}},"first":`) {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if !strings.Contains(errs, "1 line could not be read") || !strings.Contains(errs, `line 3: no first field: want HOST IDENT USER [TIME] and a request: "rubbish"`) {
		t.Errorf("%q", errs)
	}
	decisions, err := os.ReadFile(dir + "/decisions")
	if err != nil || string(decisions) != "1\tallow\t-\n2\tdeny\tper-sku\n4\tallow\t-\n5\tallow\t-\n" {
		t.Errorf("%s, %v", decisions, err)
	}
	code, out, _ = weir(t, accessLog, "replay", "--config", dir+"/p.yaml", "-")
	if code != 0 || !strings.Contains(out, "limited   1   25.00 %") || !strings.Contains(out, "no route  1") || !strings.Contains(out, "per-sku   1\n") {
		t.Errorf("%d %q", code, out)
	}
	both, _, _ := weir(t, accessLog, "replay", "--config", dir+"/p.yaml", dir+"/log", "-")
	if both != 0 {
		t.Errorf("%d", both)
	}
	if code, out, errs := weir(t, "\x1f\x8bbroken", "replay", "--config", dir+"/p.yaml", "--json", dir+"/log", "-"); code != 1 || !strings.Contains(out, `"requests":4`) || !strings.Contains(errs, "-: the file starts like gzip") {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

func TestSweep(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": shop, "log": accessLog})
	code, out, errs := weir(t, "", "replay", dir+"/p.yaml", "--json", "--sweep", "rate=1/m,2/m", "--sweep", "burst=1..5", dir+"/log")
	if code != 0 || !strings.HasPrefix(out, `{"requests":4,"unparsed":1,"clients":`) || strings.Count(out, `"rate":"`) != 6 || !strings.Contains(errs, "1 line could not be read") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	code, out, errs = weir(t, "", "replay", dir+"/p.yaml", "--sweep", "limit=per-sku rate=1/m..2/m burst=1..5", dir+"/log")
	if code != 0 || !strings.Contains(out, "rate   burst   requests limited") || strings.Count(out, "/m ") != 6 {
		t.Errorf("%d %q %q", code, out, errs)
	}
	for _, c := range [][]string{
		{"--sweep", "size=1", "--sweep: the limit per-sku has no parameter \"size\" that can be varied: it has rate and burst"},
		{"--sweep", "burst=1,2", "--decisions", dir + "/d", "leave one of them out"},
	} {
		want := c[len(c)-1]
		if code, _, errs := weir(t, "", append([]string{"replay", dir + "/p.yaml", dir + "/log"}, c[:len(c)-1]...)...); code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%q: %d %q", c, code, errs)
		}
	}
}

func TestScripts(t *testing.T) {
	dir := files(t, map[string]string{
		"p.yaml": shop,
		"ok.weir": `
limit token_bucket rate=10/s burst=3
at 0s take alice 3 -> allow remaining=0
policy p.yaml
at 0s  GET /ratelimit/sku?sku_id=7 from=10.0.0.1 -> 200
at 9s  GET /ratelimit/sku?sku_id=7 from=10.0.0.1 -> 503 retry=1s by=per-sku
at 10s GET /ratelimit/sku?sku_id=7 from=10.0.0.1 -> 200
`,
		"bad.weir":    "limit token_bucket rate=1/s burst=1\nat 0s take a -> deny\n",
		"syntax.weir": "limit token_bucket rate=1/s brust=1\n",
		"policy.weir": "policy none.yaml\n",
	})
	if code, out, errs := weir(t, "", "test", dir+"/ok.weir"); code != 0 || out != dir+"/ok.weir: ok\n" || errs != "" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	code, out, _ := weir(t, "", "test", dir+"/bad.weir", dir+"/syntax.weir", dir+"/policy.weir", dir+"/ok.weir")
	for _, want := range []string{
		"bad.weir:2: at 0s take a -> deny\n\twant deny\n\tgot  allow remaining=0 retry=0s reset=1s limit=1 by=token_bucket\n",
		"bad.weir: FAILED: 1 mismatch", "syntax.weir:1: brust", `did you mean "burst"?`, "policy.weir:1: open", "ok.weir: ok",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %q", want, out)
		}
	}
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
}

func TestWrongUse(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": shop, "log": accessLog, "bad.yaml": "x: 1"})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"sirve"}, 2, `unknown command "sirve"`},
		{[]string{"check"}, 2, "FILE is missing: write weir check FILE"},
		{[]string{"check", "a", "b"}, 2, `"b" is one argument too many: write weir check FILE`},
		{[]string{"check", dir + "/none.yaml"}, 2, "none.yaml: no such file"},
		{[]string{"check", dir}, 2, "is a directory"},
		{[]string{"check", "--sckema"}, 2, "unknown flag: --sckema"},
		{[]string{"replay", dir + "/log"}, 2, "write weir replay FILE LOG..."},
		{[]string{"replay", "--config", dir + "/p.yaml"}, 2, "is missing: write weir "},
		{[]string{"replay", "--config", dir + "/p.yaml", dir + "/none"}, 2, "none: no such file"},
		{[]string{"replay", "--config", dir + "/p.yaml", dir}, 2, "is a directory"},
		{[]string{"replay", "--config", dir + "/p.yaml", "-", "-"}, 2, "which can be read only once"},
		{[]string{"replay", "--config", dir + "/bad.yaml", dir + "/log"}, 1, `bad.yaml:1:1: error: there is no key "x"`},
		{[]string{"replay", "--config", dir + "/p.yaml", "--decisions", dir + "/no/where", dir + "/log"}, 2, "no such file"},
		{[]string{"replay", "--config", dir + "/p.yaml", "--decisions", "-", dir + "/log"}, 2, "would mix the decisions with the report"},
		{[]string{"replay", "--config", dir + "/p.yaml", "--decisions", dir + "/../" + filepath.Base(dir) + "/log", dir + "/log"}, 2, "would overwrite it"},
		{[]string{"replay", "--config", dir + "/p.yaml", "--decisions", dir + "/p.yaml", dir + "/log"}, 2, "would overwrite it"},
		{[]string{"test"}, 2, "is missing: write weir "},
		{[]string{"test", dir + "/none.weir"}, 2, "none.weir: no such file"},
		{[]string{"serve", "x"}, 2, "x: no such file"},
		{[]string{"completion", "tcsh"}, 2, "there is no completion for tcsh, only for bash, fish, powershell and zsh"},
		{[]string{"reload", "x"}, 2, `"x" is one argument too many: write weir reload alone`},
		{[]string{"ban", "limit", "a", "b", "--for", "1h"}, 2, `"b" is one argument too many: write weir ban LIMIT [KEY] --for DURATION`},
		{[]string{"ban", "--for", "1h"}, 2, "LIMIT is missing: write weir ban LIMIT [KEY] --for DURATION"},
		{[]string{"usage", "a", "b"}, 2, `"b" is one argument too many: write weir usage KEY | --export csv|jsonl`},
		{[]string{"serve", "x", "y"}, 2, `"y" is one argument too many: write weir serve [FILE]`},
		{[]string{"serve", "--config", "x", "y"}, 2, "two policy files, x and y: name one"},
		{[]string{"chekc", "x"}, 2, `unknown command "chekc" (did you mean "weir check"?)`},
		{[]string{"version"}, 2, `unknown command "version" (did you mean "weir --version"?)`},
		{[]string{"limit", "tkae"}, 2, `(did you mean "weir limit take"?)`},
		{[]string{"serve", "--config", dir + "/none.yaml"}, 2, "none.yaml: no such file"},
		{[]string{"serve", "--config", dir + "/bad.yaml"}, 1, `bad.yaml:1:1: error: there is no key "x"`},
		{[]string{"serve", "--config", dir + "/p.yaml"}, 1, "names no address to serve on"},
		{[]string{"serve", "--grace", "soon"}, 2, "invalid argument"},
	} {
		code, out, errs := weir(t, "", c.args...)
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%v: exit %d, stdout %q, stderr %q; want %d and %q", c.args, code, out, errs, c.code, c.want)
		}
	}
	if code, out, _ := weir(t, "", []string{}...); code != 0 || !strings.Contains(out, "Usage:") {
		t.Errorf("no arguments: %d %q", code, out)
	}
	if code, out, _ := weir(t, "", "--version"); code != 0 || !regexp.MustCompile(`^weir \S+.*, go1\.\d+\S* \w+/\w+\n$`).MatchString(out) {
		t.Errorf("--version: %d %q", code, out)
	}
}

func TestReplayIsInterrupted(t *testing.T) {
	dir := files(t, map[string]string{"p.yaml": shop})
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	go func() {
		for {
			if _, err := io.WriteString(w, accessLog); err != nil {
				return
			}
		}
	}()
	cancel()
	var errs bytes.Buffer
	if code := run(ctx, []string{"replay", "--config", dir + "/p.yaml", "-"}, r, io.Discard, &errs); code != 1 || errs.String() != "weir: interrupted\n" {
		t.Errorf("%d %q", code, errs.String())
	}
	r.Close()
}

// lockedBuffer is output of a server that a test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestServe(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "up") }))
	defer up.Close()
	dir := files(t, map[string]string{"p.yaml": fmt.Sprintf(`
listen: { gateway: "127.0.0.1:0" }
limits: { l: { token_bucket: { rate: 1/h, burst: 1 } } }
upstreams: { up: { url: "%s" } }
routes: [{ match: /, upstream: up, limits: [l] }]
`, up.URL)})
	r := startWeir(t, "serve", "--config", dir+"/p.yaml")
	url := "http://" + r.until(`"gateway":\["([^"]+)"`)
	for _, want := range []int{200, 429} {
		resp, err := http.Get(url)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%v, %v", resp, err)
		}
	}
	r.stop()
}

// runningWeir is a command that runs until it is stopped.
type runningWeir struct {
	t      *testing.T
	stderr *lockedBuffer
	cancel context.CancelFunc
	ended  chan int
}

func startWeir(t *testing.T, args ...string) *runningWeir {
	ctx, cancel := context.WithCancel(t.Context())
	r := &runningWeir{t, new(lockedBuffer), cancel, make(chan int, 1)}
	go func() { r.ended <- run(ctx, args, nil, io.Discard, r.stderr) }()
	return r
}

// until waits for a match on stderr, and returns its first group.
func (r *runningWeir) until(pattern string) string {
	r.t.Helper()
	re := regexp.MustCompile(pattern + "()")
	deadline := time.After(30 * time.Second)
	for {
		if found := re.FindStringSubmatch(r.stderr.String()); found != nil {
			return found[1]
		}
		select {
		case <-deadline:
			r.t.Fatal(r.stderr.String())
		case code := <-r.ended:
			r.t.Fatal(code, r.stderr.String())
		case <-time.After(time.Millisecond):
		}
	}
}

// stop ends the command, which must exit with 0.
func (r *runningWeir) stop() {
	r.t.Helper()
	r.cancel()
	if code := <-r.ended; code != 0 {
		r.t.Errorf("%d: %s", code, r.stderr.String())
	}
}

// TestCheckCertificates: check refuses certificates with which serve would not start.
func TestCheckCertificates(t *testing.T) {
	listen := "listen: { gateway: { address: \"127.0.0.1:8443\", tls: { certificates: [{ cert: cert.pem, key: key.pem }] } } }\n"
	for name, c := range map[string]struct {
		ends time.Duration
		want string
		code int
	}{
		"good":    {time.Hour, ": ok: ", 0},
		"expired": {-time.Hour, "cert.pem expired on ", 1},
		"none":    {0, "the certificates of 127.0.0.1:8443: ", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, map[string]string{"shop.yaml": listen + "upstreams: { up: { url: http://127.0.0.1:9 } }" + strings.Replace(shop, "match:", "upstream: up, match:", 1)})
			if c.ends != 0 {
				certificate(t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), time.Now().Add(c.ends))
			}
			if code, out, errs := weir(t, "", "check", dir+"/shop.yaml"); code != c.code || !strings.Contains(out, c.want) || errs != "" {
				t.Errorf("%d\n%s\n%s", code, out, errs)
			}
		})
	}
}

// certificate writes a self-signed certificate, and its key.
func certificate(t *testing.T, certFile, keyFile string, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"shop.test"}, NotBefore: ends.Add(-24 * time.Hour), NotAfter: ends}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
