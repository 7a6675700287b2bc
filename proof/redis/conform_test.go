package redis

import (
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirtest"
)

// TestConform holds the scripts to the reference model.
func TestConform(t *testing.T) {
	w := &world{client: connect(t, start(t, servers.RedisOptions{}).Addr)}
	weirtest.Conform(t, weirtest.Subject{Tick: time.Microsecond, Latest: 1 << 52, Open: w.open, Limits: slices.Concat(weirtest.Limits()[:2], weirtest.Limits()[7:8])})
}
