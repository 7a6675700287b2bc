package kv

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/load"
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
