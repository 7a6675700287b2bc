package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/sim"
)

func entry() *Entry {
	return &Entry{
		Time: time.Date(2026, 11, 21, 12, 0, 1, 250e6, time.FixedZone("", 3600)), Duration: 1500 * time.Microsecond, Client: netip.MustParseAddr("192.0.2.1"),
		Method: "GET", Target: "/a?b=c", Protocol: "HTTP/1.1", Host: "shop.test", Referer: "http://r/", Agent: "curl/8", TLS: "1.3",
		Status: 200, Bytes: 42, Decision: "delay", Limit: "per-ip", Delay: 100 * time.Millisecond, Upstream: "shop", UpstreamTime: time.Millisecond,
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		append func([]byte, *Entry) []byte
		want   string
	}{
		{appendCommon, `192.0.2.1 - - [21/Nov/2026:12:00:01 +0100] "GET /a?b=c HTTP/1.1" 200 42`},
		{appendCombined, `192.0.2.1 - - [21/Nov/2026:12:00:01 +0100] "GET /a?b=c HTTP/1.1" 200 42 "http://r/" "curl/8"`},
		{appendJSON, `{"time":"2026-11-21T11:00:01.250000Z","client":"192.0.2.1","method":"GET","host":"shop.test","uri":"/a?b=c","protocol":"HTTP/1.1","tls":"1.3","status":200,` +
			`"bytes":42,"duration":0.001500,"decision":"delay","limit":"per-ip","delay":0.100000,"upstream":"shop","upstream_time":0.001000,` +
			`"http_referer":"http://r/","http_user_agent":"curl/8"}`},
	} {
		if got := string(c.append(nil, entry())); got != c.want+"\n" {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	e := &Entry{Time: entry().Time, User: "a b", Method: "GET", Target: "/", Protocol: "HTTP/1.0"}
	if got, want := string(appendCombined(nil, e)), `- - a\x20b [21/Nov/2026:12:00:01 +0100] "GET / HTTP/1.0" 499 0 "-" "-"`+"\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestClientsCannotForgeLines: whatever a client sends stays within its field, and the replay
// reads one request from each line.
func TestClientsCannotForgeLines(t *testing.T) {
	evil := "x\" 200 1\r\n6.6.6.6 - - [01/Jan/2020:00:00:00 +0000] \"GET /evil HTTP/1.1\" 200 1 \x1b[2J\x00\xff\xc3\xa4 \u2028 \\"
	e := entry()
	e.Agent, e.Referer, e.Host, e.User, e.Target = evil, evil, evil, evil, "/a?"+strings.ReplaceAll(evil, " ", "+")
	for name, f := range map[string]func([]byte, *Entry) []byte{"common": appendCommon, "combined": appendCombined, "json": appendJSON} {
		line := string(f(nil, e))
		if strings.Count(line, "\n") != 1 || strings.ContainsAny(line[:len(line)-1], "\r\x1b\x00") {
			t.Errorf("%s: %q", name, line)
		}
		if name != "json" && strings.Count(strings.ReplaceAll(line, `\x22`, ""), `"`) != map[string]int{"common": 2, "combined": 6}[name] {
			t.Errorf("%s: %q", name, line)
		}
		read, err := sim.ParseLine(strings.TrimSuffix(line, "\n"))
		if err != nil || read.Client != "192.0.2.1" || read.Method != "GET" || !strings.HasPrefix(read.Target, "/a?x") {
			t.Errorf("%s: %+v, %v", name, read, err)
		}
	}
	var o map[string]any
	if err := json.Unmarshal(appendJSON(nil, e), &o); err != nil || o["http_user_agent"] != strings.ToValidUTF8(evil, "\ufffd") {
		t.Errorf("%q, %v", o["http_user_agent"], err)
	}
}

// FuzzFormats: every request is one line, which the replay can read, and JSON lines are valid.
func FuzzFormats(f *testing.F) {
	f.Add("GET", "/a?b", "HTTP/1.1", "curl \"x\"\n", "a\\")
	f.Fuzz(func(t *testing.T, method, target, protocol, agent, user string) {
		e := entry()
		e.Method, e.Target, e.Protocol, e.Agent, e.User = method, target, protocol, agent, user
		for _, f := range []func([]byte, *Entry) []byte{appendCommon, appendCombined, appendJSON} {
			line := f(nil, e)
			if bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' {
				t.Fatalf("%q", line)
			}
		}
		if line := appendJSON(nil, e); !json.Valid(line) {
			t.Fatalf("%q", line)
		}
		// Values that net/http lets through: a token, and a target without spaces.
		if method != "GET" || target == "" || target[0] != '/' || strings.ContainsAny(target+protocol, " #") {
			return
		}
		read, err := sim.ParseLine(string(bytes.TrimSpace(appendCombined(nil, e))))
		if err != nil || read.Client != "192.0.2.1" || read.Time != e.Time.Truncate(time.Second).UnixNano() {
			t.Fatalf("%+v, %v", read, err)
		}
	})
}

// buffer is a log file in memory that can be read while it is written, and can block writes.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	gate chan struct{}
	err  error
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.gate != nil {
		<-b.gate
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	return b.text.Write(p)
}

func (b *buffer) lines() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Count(b.text.Bytes(), []byte("\n"))
}

func TestLinesComeByThemselvesAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &buffer{}
		l, err := Open(Options{File: "stdout", Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		l.Write(entry())
		if out.lines() != 0 {
			t.Error("it was written at once: each line would be a call")
		}
		<-time.After(flush)
		synctest.Wait()
		if out.lines() != 1 {
			t.Errorf("%d lines", out.lines())
		}
		for range 5000 {
			l.Write(entry())
		}
		l.Close()
		l.Close()
		if out.lines() != 5001 {
			t.Errorf("%d lines", out.lines())
		}
		if err := l.Reopen(); err != nil {
			t.Error(err)
		}
	})
}

// TestADiskThatBlocks: no request waits for a disk that blocks, memory has a bound, and lost lines
// are counted.
func TestADiskThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &buffer{gate: make(chan struct{})}
		l, err := Open(Options{File: "stderr", Format: "json", Stderr: out})
		if err != nil {
			t.Fatal(err)
		}
		size := len(appendJSON(nil, entry()))
		lines := 3 * maxQueue / size
		for range lines {
			l.Write(entry())
		}
		if len(l.queue) > maxQueue+size {
			t.Errorf("%d bytes wait", len(l.queue))
		}
		dropped, _ := l.Lost()
		if dropped == 0 {
			t.Error("nothing was dropped")
		}
		close(out.gate)
		l.Close()
		if got := out.lines() + int(dropped); got != lines {
			t.Errorf("%d lines were written or dropped, of %d", got, lines)
		}
	})
}

// disk is a full disk with room for so many bytes: a write returns how much fitted, and an error.
type disk struct {
	mu   sync.Mutex
	room int
	text bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(p), d.room)
	d.room -= n
	d.text.Write(p[:n])
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (d *disk) grow(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room += n
}

// TestAFullDisk: on a disk that is full now and then, each lost line is counted, and no written
// line is damaged. The server's log says it once a minute at most, and not for each line or write.
func TestAFullDisk(t *testing.T) {
	random := seeds.Of(t.Name())
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			d, said := &disk{}, &buffer{}
			l, err := Open(Options{File: "stdout", Stdout: d, Format: "json", Log: slog.New(slog.NewTextHandler(said, nil))})
			if err != nil {
				t.Fatal(err)
			}
			began, lines := time.Now(), 0
			line := appendJSON(nil, entry())
			for range 400 {
				if random.IntN(3) == 0 {
					d.grow(random.IntN(5 * len(line)))
				}
				for range random.IntN(4) {
					l.Write(entry())
					lines++
				}
				<-time.After(flush)
				synctest.Wait()
			}
			d.grow(lines * len(line))
			l.Write(entry())
			l.Close()
			synctest.Wait()
			whole, torn := 0, 0
			for each := range bytes.Lines(d.text.Bytes()) {
				if bytes.Equal(each, line) {
					whole++
				} else if torn++; !bytes.HasPrefix(line, bytes.TrimSuffix(each, []byte("\n"))) {
					t.Fatalf("a line is damaged: %s", each)
				}
			}
			_, failed := l.Lost()
			if whole+int(failed) != lines+1 || failed == 0 {
				t.Errorf("%d lines: %d were written, and %d counted as lost", lines+1, whole, failed)
			}
			minutes := int(time.Since(began)/time.Minute) + 1
			if n := bytes.Count(said.text.Bytes(), []byte("lines are lost")); n == 0 || n > minutes {
				t.Errorf("said %d times in %d minutes", n, minutes)
			}
			if !strings.Contains(said.text.String(), "no space left on device") || !strings.Contains(said.text.String(), "written again") {
				t.Errorf("%s", said.text.String())
			}
		})
	}
}

// TestALongOutageIsLogged: also if the previous one had just ended.
func TestALongOutageIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &buffer{}
		var l losses
		o := Options{Log: slog.New(slog.NewTextHandler(said, nil))}
		for range 2 {
			for range 10_000 {
				l.fail(o, 1, syscall.ENOSPC)
			}
			synctest.Wait()
			l.recover(o)
			synctest.Wait()
		}
		if n := said.lines(); n != 2 {
			t.Errorf("said %d times, once for the beginning and once for the end", n)
		}
		for range 130 {
			l.fail(o, 1, syscall.ENOSPC)
			<-time.After(time.Second)
		}
		synctest.Wait()
		if n := said.lines(); n != 3 {
			t.Errorf("said %d times; the second outage is in its third minute", n)
		}
	})
}

// TestBlockedWritesAndPipes: Close and Reopen wait at most two seconds for a write that does not end, and
// a named pipe without a reader is an error of Open.
func TestBlockedWritesAndPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{File: path}); !errors.Is(err, syscall.ENXIO) {
		t.Errorf("nobody reads: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		out := &buffer{gate: make(chan struct{})}
		l, err := Open(Options{File: "stdout", Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		l.Write(entry())
		<-time.After(flush)
		for name, do := range map[string]func() error{"reopen": l.Reopen, "close": l.Close} {
			began := time.Now()
			if err := do(); err != errStands || time.Since(began) != patience {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
		close(out.gate)
		<-l.ended
	})
}

// TestReopen does what logrotate does: it moves the file away and then calls Reopen.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	l, err := Open(Options{File: path, Format: "common"})
	if err != nil {
		t.Fatal(err)
	}
	l.Write(entry())
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Write(entry())
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Write(entry())
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil {
		t.Error("a directory was opened")
	}
	l.Write(entry())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if old, err := os.ReadFile(path + ".1"); err != nil || bytes.Count(old, []byte("\n")) != 2 {
		t.Errorf("%q, %v", old, err)
	}
	for _, bad := range []Options{{File: path}, {File: filepath.Join(dir, "no", "x")}, {File: "stdout", Format: "xml", Stdout: io.Discard}} {
		if _, err := Open(bad); err == nil || !strings.HasPrefix(err.Error(), "access_log: ") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
