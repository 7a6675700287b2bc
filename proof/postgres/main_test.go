package postgres

import (
	"testing"

	"github.com/weirflow/weir/proof/load"
	"github.com/weirflow/weir/proof/servers"
)

func TestMain(m *testing.M) { load.Main(func() int { return servers.Main(m, &binary) }) }
