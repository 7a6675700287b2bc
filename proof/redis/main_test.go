package redis

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
)

// faultsFor is how long each row of the table of faults lasts.
var faultsFor = flag.Duration("faults", 2500*time.Millisecond, "how long each fault of TestFaults lasts")

// leasesFor is how long each row of the table of leases lasts.
var leasesFor = flag.Duration("leases", time.Second, "how long each row of TestLeases lasts")

// TestMain also starts the workers of TestFaults, and the nodes of TestLeases and TestCostsOfNodes: they
// are this program, in processes of their own.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerTask); text != "" {
		os.Exit(work[task](text))
	}
	if text := os.Getenv(leaseNode); text != "" {
		os.Exit(work[nodeTask](text))
	}
	if text := os.Getenv(costNodeTask); text != "" {
		os.Exit(work[costTask](text))
	}
	if err := flag.Set("rapid.seed", seeds.Text()); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

// command builds the weir command, the first time that a test needs it. It returns its
// path.
var command = sync.OnceValues(func() (path string, err error) {
	return servers.BuildWeir(context.Background(), commandFolder)
})

// commandFolder is removed after all tests.
var commandFolder string

// weirCommand returns the path of the weir command.
func weirCommand(t *testing.T) string {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// run gives the time package a directory in which tests can put time zones, and the weir command a
// folder. The package reads the
// variable once, and a zone each time it is loaded. The processes of TestKilledHolders need none,
// and could not remove it when they are killed.
func run(m *testing.M) int {
	if os.Getenv(holderEnv) == "" {
		dir, err := os.MkdirTemp("", "redis")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		zones := filepath.Join(dir, "zones")
		if err := os.Mkdir(zones, 0o700); err != nil {
			panic(err)
		}
		if err := os.Setenv("ZONEINFO", zones); err != nil {
			panic(err)
		}
		commandFolder = dir
	}
	return m.Run()
}
