package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestBallastTakesNoMemory: where a part of the heap had been in use before, the ballast was cleared, and
// took 64 MiB. It runs in a process of its own, whose heap other tests have not used.
func TestBallastTakesNoMemory(t *testing.T) {
	const fresh = "WEIR_TEST_FRESH"
	if os.Getenv(fresh) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), fresh+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	garbage := make([][]byte, 256)
	for i := range garbage {
		garbage[i] = make([]byte, 32<<10)
		garbage[i][0] = 1
	}
	runtime.KeepAlive(garbage)
	clear(garbage)
	runtime.GC()
	before := resident(t)
	ballast := newBallast()
	if grown := resident(t) - before; grown > 24<<20 {
		t.Errorf("the ballast takes %d MiB", grown>>20)
	}
	runtime.KeepAlive(ballast)
}

// resident is how many bytes of the process are in memory.
func resident(t *testing.T) (bytes int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var all int
	if _, err := fmt.Sscan(string(text), &all, &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes * os.Getpagesize()
}
