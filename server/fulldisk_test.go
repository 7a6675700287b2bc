package server

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAFullDiskUnderTheAccessLog: /dev/full is a full disk. Requests are served, each lost line is
// counted, and the server's log says so once.
func TestAFullDiskUnderTheAccessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write(t, path, `
listen: { gateway: "127.0.0.1:0", admin: "127.0.0.1:0" }
access_log: { file: /dev/full }
routes: [{ match: /, respond: { status: 200 } }]
`)
	r := serve(t, Options{Path: path, Watch: time.Hour})
	requests := 0
	lost := func() bool {
		_, metrics := fetch(t, "http://"+r.Admin+"/metrics")
		return strings.Contains(metrics, fmt.Sprintf("weir_access_log_lost_total{reason=\"failed\"} %d\n", requests))
	}
	for range 2 { // two writes
		for range 20 {
			if status, _ := fetch(t, "http://"+r.Gateway+"/"); status != 200 {
				t.Errorf("%d", status)
			}
			requests++
		}
		until(t, "the lines are counted as lost", lost)
	}
	said := func() int { return strings.Count(r.log.String(), "access log: lines are lost") }
	until(t, "the log says so", func() bool { return said() > 0 })
	r.end(t)
	if n := said(); n != 1 || !strings.Contains(r.log.String(), "no space left on device") {
		t.Errorf("said %d times", n)
	}
}

// TestAPolicyFileThatIsAPipe: it is refused at the start, without waiting for a writer.
func TestAPolicyFileThatIsAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Serve(t.Context(), Options{Path: path, Log: (&running{log: new(logBuffer)}).logger()})
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v", err)
	}
}
