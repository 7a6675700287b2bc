package regular

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOpenNeverBlocks: whatever a path names, it is read, or is an error at once.
func TestOpenNeverBlocks(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{"pipe", "file", "nothing"} {
		if err := os.Symlink(name, at("to-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		at("pipe"): ErrIrregular, at("to-pipe"): ErrIrregular, at("socket"): ErrIrregular, dir: ErrIrregular,
		"/dev/null": ErrIrregular, "/dev/tty": ErrIrregular, at("nothing"): fs.ErrNotExist, at("to-nothing"): fs.ErrNotExist,
	} {
		if _, err := Read(path, 10); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	for _, name := range []string{"file", "to-file"} {
		if data, err := Read(at(name), 4); err != nil || string(data) != "text" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := Read(at("file"), 3); err == nil || !strings.Contains(err.Error(), "larger than 3 bytes") {
		t.Error(err)
	}
}

// TestReadsThatWaitEnd: /proc/kmsg counts as a regular file, and once held a plan of the policy, and
// a goroutine, for as long as the kernel said nothing. A pipe stands for it: as root, a test would
// take lines from the kernel's log.
func TestReadsThatWaitEnd(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	bound(r, 0)
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	f, err := os.Open("regular.go")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bound(f, 0)
	if _, err := f.Read(make([]byte, 1)); err != nil {
		t.Errorf("a file on a disk: %v", err)
	}
}
