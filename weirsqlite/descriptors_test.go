package weirsqlite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// descriptors returns how many files this process has open whose paths begin with path.
func descriptors(t *testing.T, path string) (n int) {
	t.Helper()
	const all = "/proc/self/fd"
	entries, err := os.ReadDir(all)
	if err != nil {
		t.Skip("only Linux tells which files are open:", err)
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(all, e.Name()))
		if err == nil && strings.HasPrefix(to, path) { // those that others have closed meanwhile do not matter
			n++
		}
	}
	return n
}

// TestDescriptors closes sessions, as each call that fails does: while the disk is full or another process has
// the lock for an hour, none may leave the file open.
func TestDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	other, err := openSession(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		s, err := openSession(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		s.close()
	}
	// SQLite keeps a descriptor for the next session while another session of this process has a lock.
	if n := descriptors(t, path); n > 4 {
		t.Errorf("one session has %d files open, want at most 4", n)
	}
	other.close()
	if n := descriptors(t, path); n > 0 {
		t.Errorf("%d files are open after all sessions were closed", n)
	}
}
