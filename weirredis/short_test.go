package weirredis

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestShortProtocol: which script carries charges out.
func TestShortProtocol(t *testing.T) {
	s := open(t, Options{})
	bucket := weir.Charge{Name: "bucket", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 5}, Cost: 1}
	window := weir.Charge{Name: "window", Limit: weir.FixedWindow{Limit: 5, Window: time.Minute}, Cost: 1}
	first, calendar := window, window
	first.Limit = weir.FixedWindow{Limit: 5, Window: time.Minute, Align: "first"}
	calendar.Limit = weir.FixedWindow{Limit: 5, Align: "day:UTC"}
	peek, large, kept, grouped, reserved := window, window, window, window, window
	peek.Op, large.Cost, kept.Keep, grouped.Group, reserved.Op = weir.OpPeek, 6, true, 1, weir.OpReserve
	for name, c := range map[string]struct {
		batch []weir.Charge
		want  protocol
	}{
		"bucket": {[]weir.Charge{bucket, bucket}, protocolShort}, "window": {[]weir.Charge{window, peek, first}, protocolFixed}, "both": {[]weir.Charge{bucket, window}, protocolCharges},
		"calendar": {[]weir.Charge{window, calendar}, protocolCharges}, "more than the limit": {[]weir.Charge{large}, protocolCharges},
		"kept": {[]weir.Charge{kept}, protocolCharges}, "in a group": {[]weir.Charge{grouped}, protocolCharges}, "reserved": {[]weir.Charge{reserved}, protocolCharges},
	} {
		all, _, err := s.requests(c.batch)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(all) != 1 || all[0].protocol != c.want {
			t.Errorf("%s: %+v; want the protocol %v", name, all, c.want)
		}
	}
}
