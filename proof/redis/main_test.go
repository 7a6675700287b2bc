package redis

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// faultsFor is how long each row of the table of faults lasts.
var faultsFor = flag.Duration("faults", 2500*time.Millisecond, "how long each fault of TestFaults lasts")

// leasesFor is how long each row of the table of leases lasts.
var leasesFor = flag.Duration("leases", time.Second, "how long each row of TestLeases lasts")

// TestMain also starts the workers of TestFaults and the nodes of TestLeases: they are this
// program, in processes of their own.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerTask); text != "" {
		os.Exit(work[task](text))
	}
	if text := os.Getenv(leaseNode); text != "" {
		os.Exit(work[nodeTask](text))
	}
	if err := flag.Set("rapid.seed", seeds.Text()); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

// run gives the time package a directory in which tests can put time zones. The package reads the
// variable once, and a zone each time it is loaded. The processes of TestKilledHolders need none,
// and could not remove it when they are killed.
func run(m *testing.M) int {
	if os.Getenv(holderEnv) == "" {
		dir, err := os.MkdirTemp("", "zones")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Setenv("ZONEINFO", dir); err != nil {
			panic(err)
		}
	}
	return m.Run()
}
