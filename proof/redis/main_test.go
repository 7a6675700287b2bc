package redis

import (
	"flag"
	"os"
	"testing"
	"time"
)

// faultsFor is how long each row of the table of faults lasts.
var faultsFor = flag.Duration("faults", 4*time.Second, "how long each fault of TestFaults lasts")

// TestMain is where a worker of TestFaults begins: it is this program, in a process of its own.
func TestMain(m *testing.M) {
	if task := os.Getenv(workerTask); task != "" {
		os.Exit(work(task))
	}
	os.Exit(m.Run())
}
