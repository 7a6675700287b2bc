package edge

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// TestSIGTERMEndsABlockedProcess: if nothing reads the log of a process any more, its next line
// blocks. SIGTERM ends it nevertheless.
func TestSIGTERMEndsABlockedProcess(t *testing.T) {
	admin := "127.0.0.1:" + freePort(t)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	servers.Replace(t, path, fmt.Sprintf("listen: { gateway: \"127.0.0.1:0\", admin: %q }\nroutes: [{ match: /, respond: { status: 200 } }]\n", admin))
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	defer writer.Close()
	fill(t, writer)
	cmd := exec.Command(binary, "serve", "--grace", "1s", path)
	cmd.Stderr = writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer cmd.Process.Kill()
	servers.Poll(t, "it serves", func() bool {
		resp, err := http.Get("http://" + admin + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
			t.Errorf("it ended with %v, want exit code 1: it was not in order", err)
		}
	case <-time.After(time.Minute):
		t.Error("it runs a minute after SIGTERM, with a grace of a second")
	}
}

// fill fills a pipe, so that a write of the process at its end blocks.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	if err := w.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write(make([]byte, 8<<20)); n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d, %v", n, err)
	}
}
