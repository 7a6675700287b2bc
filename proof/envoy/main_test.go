package envoy

import (
	"os"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// weir is the path of the weir command, which TestMain builds.
var weir string

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &weir)) }
