package cluster

import (
	"os"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// binary is the weir command.
var binary string

func TestMain(m *testing.M) {
	if config := os.Getenv(natsVariable); config != "" {
		os.Exit(serveNATS(config))
	}
	os.Exit(servers.Main(m, &binary))
}
