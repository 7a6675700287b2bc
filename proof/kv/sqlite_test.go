package kv

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/load"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirkv"
)

// TestProcesses: processes that charge one key in a file admit exactly what its limit allows, together.
func TestProcesses(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
	const burst = 2000
	f := load.Start(t, 4, load.Task{URL: url, Burst: burst, Calls: burst / 10})
	f.Wait(t)
	if n, charged := f.Admitted(), f.Charged(t, url); n != burst || f.Unknown() > 0 || charged != burst {
		t.Errorf("%d admitted, %d without a decision, %d charged, want %d", n, f.Unknown(), charged, burst)
	}
}

// TestKilledProcesses: processes that charge a file are killed in the middle of it, one after the other, and
// others start. Nothing that was admitted is lost, and no lock is left behind.
func TestKilledProcesses(t *testing.T) {
	for _, keys := range []int{1, 10_000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			url := "sqlite:" + filepath.Join(t.TempDir(), "limits.db")
			f := load.Start(t, 3, load.Task{URL: url, Keys: keys})
			random := seeds.Of(t.Name())
			for i := range 8 {
				f.More(t, *killCalls+random.Int64N(*killCalls))
				f.Kill(i)
				f.Add(t)
			}
			f.More(t, 500)
			f.Stop(t)
			n, charged := f.Admitted(), f.Charged(t, url)
			if charged < n || charged > n+f.Unknown() {
				t.Errorf("%d admitted, %d without a decision, %d charged", n, f.Unknown(), charged)
			}
		})
	}
}

// holdVariable is the environment variable that makes the test program a process which holds a file's lock.
const holdVariable = "WEIR_HOLD"

// hold begins a transaction on a file, says so, and never ends it.
func hold(path string) {
	db, err := sql.Open("sqlite", path)
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.Exec("PRAGMA busy_timeout = 60000; BEGIN IMMEDIATE")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("locked\n") // without a reader the test has ended
	select {}
}

// TestStoppedProcess: while a process is stopped within its transaction, the others get an error that says what they
// wait for, by their deadlines, and read what needs no lock. It leaves no lock behind when it is killed.
func TestStoppedProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	s := fileStore(t, path, weirkv.Options{})
	take(t, s, "k", 999)
	cmd := osexec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), holdVariable+"="+path), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
	}
	defer end()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("%q %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	charge := []weir.Charge{{Name: "x", Key: "k", Limit: bucket, Cost: 1}}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := s.Do(ctx, charge, make([]weir.Decision, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a charge meanwhile, until its deadline: %v", err)
	}
	bounded := fileStore(t, path, weirkv.Options{Timeout: 100 * time.Millisecond})
	if err := bounded.Do(t.Context(), charge, make([]weir.Decision, 1)); err == nil || !strings.Contains(err.Error(), "another process holds the lock of "+path) {
		t.Errorf("a charge meanwhile, until the bound of the store: %v", err)
	}
	if d := peek(t, s, "k"); d.Remaining != 999 {
		t.Errorf("a peek meanwhile: %+v", d)
	}
	end()
	take(t, s, "k", 998)
}

// TestFullDisk: on a disk without room a charge fails, and says so. Nothing that was admitted is lost, and it goes on
// when there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mount := func(data string, flags uintptr) error { return syscall.Mount("weir", dir, "tmpfs", flags, data) }
	if err := mount("size=1m", 0); errors.Is(err, syscall.EPERM) {
		t.Skip("only root may mount a small disk; weirsqlite's TestFull bounds the pages of the file instead")
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	s, end, err := openSQLite("sqlite:"+dir+"/limits.db", weirkv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer end() //nolint:errcheck // it is closed before the disk goes
	charge := func(key int) error {
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		defer cancel()
		return s.Do(ctx, []weir.Charge{{Name: "x", Key: fmt.Sprint(key), Limit: bucket, Cost: 1}}, make([]weir.Decision, 1))
	}
	made := 0
	for err = charge(0); err == nil && made < 100_000; err = charge(made) {
		made++
	}
	if err == nil || !strings.Contains(err.Error(), "the disk is full: make room, or move the file to another disk") {
		t.Fatalf("after %d keys: %v", made, err)
	}
	kept := func() {
		t.Helper()
		for key := range made {
			if d := peek(t, s, fmt.Sprint(key)); d.Remaining != 999 {
				t.Fatalf("key %d of %d: %+v", key, made, d)
			}
		}
	}
	kept()
	if err := mount("size=16m", syscall.MS_REMOUNT); err != nil {
		t.Fatal(err)
	}
	take(t, s, fmt.Sprint(made), 999)
	kept()
	t.Logf("%d keys on a disk of 1 MB", made)
}

// bucket gives nothing back during a test.
var bucket = weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1000}

// fileStore opens a file until the test ends.
func fileStore(t *testing.T, path string, o weirkv.Options) weir.Store {
	t.Helper()
	s, end, err := openSQLite("sqlite:"+path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// take charges a key, of which so much then remains.
func take(t *testing.T, s weir.Store, key string, remaining int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	out := make([]weir.Decision, 1)
	if err := s.Do(ctx, []weir.Charge{{Name: "x", Key: key, Limit: bucket, Cost: 1}}, out); err != nil || !out[0].Allowed || out[0].Remaining != remaining {
		t.Errorf("a charge of %s: %+v, want %d: %v", key, out[0], remaining, err)
	}
}

func peek(t *testing.T, s weir.Store, key string) weir.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	out := make([]weir.Decision, 1)
	if err := s.Do(ctx, []weir.Charge{{Name: "x", Key: key, Limit: bucket, Op: weir.OpPeek}}, out); err != nil {
		t.Errorf("a peek of %s: %v", key, err)
	}
	return out[0]
}
