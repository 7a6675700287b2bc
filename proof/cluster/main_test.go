package cluster

import (
	"os"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command.
var binary string

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &binary)) }
