package redis

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// faultsFor is how long each row of the table of faults lasts.
var faultsFor = flag.Duration("faults", 4*time.Second, "how long each fault of TestFaults lasts")

// leasesFor is how long each row of the table of leases lasts.
var leasesFor = flag.Duration("leases", time.Second, "how long each row of TestLeases lasts")

// TestMain is where a worker of TestFaults and a node of TestLeases begin: they are this program, in processes of their own.
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

// run gives the time package a directory in which tests can put time zones. It reads the variable once, and each zone whenever it is loaded.
// The processes of TestKilledHolders need none, and being killed they could not remove it.
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
