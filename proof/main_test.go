package proof

import (
	"flag"
	"os"
	"testing"
	_ "time/tzdata"

	"github.com/weirflow/weir/internal/seeds"
)

// checks is the default of -rapid.checks, the number of cases per property.
const checks = "25"

// TestMain fixes the seed of rapid, and keeps it from writing files beside the tests: a failure prints the shrunk run. Flags override what
// it sets.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.seed": seeds.Text(), "rapid.checks": checks} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
