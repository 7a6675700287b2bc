package weirredis

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/redis/named.lua")

// TestNamedScript: the file that clients in other languages load is the script that is used here.
// After a change of a script, run
//
//	go test ./weirredis -run TestNamedScript -update
func TestNamedScript(t *testing.T) {
	const file = "../docs/redis/named.lua"
	if *update {
		if err := os.WriteFile(file, []byte(NamedScript().Source), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != NamedScript().Source {
		t.Errorf("%s is not the script that is used here: go test ./weirredis -run TestNamedScript -update (%v)", file, err)
	}
}
