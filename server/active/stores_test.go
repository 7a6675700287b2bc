package active

import (
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestDeadlineOverLeases: a round trip that leases tokens may take as long as the store's deadline says. It ended after a
// lifetime, and failed requests that had more time.
func TestDeadlineOverLeases(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ lifetime, deadline, want time.Duration }{
		{0, 0, 250 * ms}, {0, 20 * ms, 250 * ms}, {0, 12 * time.Second, 12 * time.Second}, {10 * ms, 100 * ms, 100 * ms}, {time.Second, 100 * ms, time.Second},
	} {
		got := leaseOptions(policy.Store{Deadline: c.deadline, Lease: policy.Lease{On: true, Lifetime: c.lifetime}})
		if got.Timeout != c.want {
			t.Errorf("a lifetime of %v and a deadline of %v: %v, want %v", c.lifetime, c.deadline, got.Timeout, c.want)
		}
	}
}
