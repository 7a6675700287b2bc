package proof

import (
	"flag"
	"os"
	"testing"
	_ "time/tzdata"
)

// TestMain keeps rapid from writing files beside the tests: a failure prints its seed, and the shrunk run. A flag overrides it.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
