package proof

import (
	"flag"
	"os"
	"testing"
	_ "time/tzdata"
)

// TestMain keeps rapid from writing files beside the tests: a failure prints its seed, and the shrunk run. Flags override what it sets.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.checks": checks} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
