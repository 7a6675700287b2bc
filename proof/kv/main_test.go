package kv

import (
	"os"
	"testing"

	"github.com/weirflow/weir/proof/load"
	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command.
var binary string

func TestMain(m *testing.M) {
	if path := os.Getenv(holdVariable); path != "" {
		hold(path)
	}
	load.Main(func() int { return servers.Main(m, &binary) })
}
