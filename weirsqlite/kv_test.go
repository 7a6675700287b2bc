package weirsqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirtest"
)

// patience is how long a call may take on a machine that stands still.
const patience = time.Minute

var perHour = weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1000}

// open opens a store until the test ends.
func open(t *testing.T, path string, o weirkv.Options) *Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	s, err := Open("sqlite:"+path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// take charges 1 to a key.
func take(t *testing.T, s *Store, key string) (weir.Decision, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := make([]weir.Decision, 1)
	err := s.Do(ctx, []weir.Charge{{Name: "l", Key: key, Limit: perHour, Cost: 1}}, out)
	return out[0], err
}

// remain takes, and fails the test unless so much remains.
func remain(t *testing.T, s *Store, key string, want int64) {
	t.Helper()
	if d, err := take(t, s, key); err != nil || d.Remaining != want {
		t.Errorf("%s: %+v %v, want %d to remain", key, d, err, want)
	}
}

// TestConforms compares the store in a file with the reference model.
func TestConforms(t *testing.T) {
	raced.Skip(t)
	path := filepath.Join(t.TempDir(), "limits.db")
	n := 0
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 4, Steps: 40, Tick: time.Microsecond, Limits: weirtest.StoredLimits(), Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		n++
		// a machine may stand still while the clock of the limits does: keys have to outlive that
		s := open(t, path, weirkv.Options{Prefix: fmt.Sprintf("t%d/", n), Clock: c.Now, Skew: math.MaxInt64, Grace: time.Hour})
		return weirtest.Stored(s, l), nil
	}})
}

// TestStores: stores that have one file open, and keys of any kind, admit exactly what the limits allow.
func TestStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	var admitted [3]atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		s := open(t, path, weirkv.Options{})
		for range 8 {
			wg.Go(func() {
				for i := range 3 * 50 {
					d, err := take(t, s, fmt.Sprint("\xff\x00'", i%3))
					if err != nil {
						t.Error(err)
						return
					}
					if d.Allowed {
						admitted[i%3].Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range admitted {
		if n := admitted[i].Load(); n != 1000 {
			t.Errorf("key %d: %d admitted, want 1000", i, n)
		}
	}
}

// TestFile: the file is for its owner alone, and is used again by a process that starts later.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a?b#c%20.db")
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	s := open(t, escaped, weirkv.Options{})
	remain(t, s, "k", 999)
	for _, end := range []string{"", "-wal", "-shm"} {
		if info, err := os.Lstat(path + end); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path+end, info, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := take(t, s, "k"); !errors.Is(err, weirkv.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	remain(t, open(t, escaped, weirkv.Options{}), "k", 998)
	durable := open(t, escaped+"?durable=true", weirkv.Options{})
	remain(t, durable, "k", 997)
	remain(t, open(t, escaped, weirkv.Options{Prefix: "other:"}), "k", 999)
}

// TestUnusable: a file that cannot be used is an error that says why, and is left as it was. When it can be
// used, it is.
func TestUnusable(t *testing.T) {
	other := func(statements string) func(path string) error {
		return func(path string) error {
			db, err := sql.Open("sqlite", path)
			if err == nil {
				_, err = db.Exec(statements)
				err = errors.Join(err, db.Close())
			}
			return err
		}
	}
	text := []byte(strings.Repeat("not a database\n", 100))
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"text":             {func(path string) error { return os.WriteFile(path, text, 0o600) }, "no SQLite database"},
		"another program":  {other("CREATE TABLE users (name TEXT)"), "database of another program"},
		"another id":       {other("PRAGMA application_id=7"), "database of another program"},
		"a later version":  {other(fmt.Sprintf("PRAGMA application_id=%d; PRAGMA user_version=2", application)), "has format 2"},
		"a directory":      {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"a link":           {func(path string) error { return os.Symlink("elsewhere", path) }, "is a symbolic link"},
		"a link of a log":  {func(path string) error { return os.Symlink("elsewhere", path+"-wal") }, "somebody else has made it"},
		"others may write": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o606)) }, "chmod 600"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.db")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(path) // of a directory or a link there is none
			s := open(t, path, weirkv.Options{Timeout: 200 * time.Millisecond})
			if _, err := take(t, s, "k"); err == nil || !strings.Contains(err.Error(), c.want) || s.Connected() {
				t.Fatalf("%v, want %s", err, c.want)
			}
			if after, _ := os.ReadFile(path); name != "a link of a log" && string(after) != string(before) {
				t.Error("the file was changed")
			}
			if err := errors.Join(os.RemoveAll(path), os.RemoveAll(path+"-wal")); err != nil {
				t.Fatal(err)
			}
			if d := untilTaken(t, s); d.Remaining != 999 {
				t.Errorf("%+v", d)
			}
		})
	}
	s := open(t, filepath.Join(t.TempDir(), "missing", "limits.db"), weirkv.Options{Timeout: 200 * time.Millisecond})
	if _, err := take(t, s, "k"); err == nil || !strings.Contains(err.Error(), "install -d -m 700") {
		t.Errorf("without a directory: %v", err)
	}
}

// untilTaken takes until the store can be used.
func untilTaken(t *testing.T, s *Store) weir.Decision {
	t.Helper()
	for until := time.Now().Add(patience); ; {
		d, err := take(t, s, "k")
		if err == nil {
			return d
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// TestReplaced: a file that is removed or replaced while it is open is not used any more: processes that start
// later would have other counts.
func TestReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	a := open(t, path, weirkv.Options{})
	remain(t, a, "k", 999)
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + end); err != nil {
			t.Fatal(err)
		}
	}
	remain(t, open(t, path, weirkv.Options{}), "k", 999)
	remain(t, a, "k", 998)
}

// TestLocked: while another process has the lock of the file, a call ends with its deadline and charges nothing.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	s := open(t, path, weirkv.Options{Prefix: "a:"})
	remain(t, s, "k", 999)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	short := open(t, path, weirkv.Options{Prefix: "a:", Timeout: 50 * time.Millisecond})
	if _, err := take(t, short, "k"); err == nil || !strings.Contains(err.Error(), "another process holds the lock") {
		t.Errorf("within the store's own bound: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	charge := []weir.Charge{{Name: "l", Key: "k", Limit: perHour, Cost: 1}}
	if err := s.Do(ctx, charge, make([]weir.Decision, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("within the caller's deadline: %v", err)
	}
	charge[0].Op, charge[0].Key = weir.OpPeek, "other"
	if out := make([]weir.Decision, 1); s.Do(t.Context(), charge, out) != nil || out[0].Remaining != 1000 {
		t.Errorf("a read waits for a write: %+v", out)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	remain(t, s, "k", 998)
}

// TestFull: without room on the disk a call fails and says so; where there is room, nothing is missing.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	kv := NewKV(Config{Path: path, pages: 3})
	inner, err := weirkv.New(kv, weirkv.Options{Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	full := &Store{inner, kv}
	defer full.Close()
	remain(t, full, "k", 999)
	made := 0
	for ; err == nil && made < 1000; made++ {
		_, err = take(t, full, fmt.Sprint(made))
	}
	if err == nil || !strings.Contains(err.Error(), "the disk is full: make room") {
		t.Fatalf("%d keys: %v", made, err)
	}
	remain(t, full, "k", 998)
	s := open(t, path, weirkv.Options{})
	remain(t, s, "k", 997)
	remain(t, s, "new", 999)
	remain(t, s, fmt.Sprint(made-1), 999)
}

// TestSweep: rows that have expired are removed, all others stay.
func TestSweep(t *testing.T) {
	k := NewKV(Config{Path: filepath.Join(t.TempDir(), "limits.db")})
	defer k.Close()
	const rows = 2 * sweepRows
	var wg sync.WaitGroup
	for i := range rows {
		wg.Go(func() {
			ttl := time.Hour
			if i%2 == 0 {
				ttl = 2 * time.Hour
			}
			if _, swapped, err := k.CompareAndSwap(t.Context(), fmt.Sprint(i), 0, []byte("x"), ttl); !swapped || err != nil {
				t.Error(swapped, err)
			}
		})
	}
	wg.Wait()
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {90 * time.Minute, rows / 2}, {90 * time.Minute, 0}, {3 * time.Hour, rows / 2}} {
		removed, last := 0, ""
		for steps := 0; steps == 0 || last != ""; steps++ {
			n, next, err := k.sweepFrom(t.Context(), last, time.Now().Add(c.after))
			if err != nil || steps > 3 {
				t.Fatal(steps, err)
			}
			removed, last = removed+n, next
		}
		if removed != c.want {
			t.Errorf("%v: %d removed, want %d", c.after, removed, c.want)
		}
	}
}

// TestExpired: a key that has expired is not there, and a process that remembers it cannot write over its
// successor.
func TestExpired(t *testing.T) {
	k := NewKV(Config{Path: filepath.Join(t.TempDir(), "limits.db")})
	defer k.Close()
	swap := func(revision uint64, ttl time.Duration, want bool) uint64 {
		t.Helper()
		next, swapped, err := k.CompareAndSwap(t.Context(), "k", revision, []byte("x"), ttl)
		if err != nil || swapped != want {
			t.Fatalf("%v %v, want %v", swapped, err, want)
		}
		return next
	}
	first := swap(0, -time.Nanosecond, true)
	if item, err := k.Get(t.Context(), "k"); err != nil || item.Revision != 0 {
		t.Errorf("%+v %v", item, err)
	}
	swap(first, time.Hour, false)
	second := swap(0, math.MaxInt64, true)
	swap(first, time.Hour, false)
	swap(second, time.Hour, true)
}
