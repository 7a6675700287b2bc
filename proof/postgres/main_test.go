package postgres

import (
	"os"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m, &binary)) }
