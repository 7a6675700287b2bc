package traffic

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// load is what wrk counted.
type load struct {
	requests int            // with a response
	statuses map[string]int // of the responses
	errors   int            // failed connections, and missing responses
	slowest  time.Duration  // longest latency
}

// wrk sends requests, the next one on each connection when the response has come. A late response is no
// error: the machine may stand still.
func wrk(t *testing.T, connections int, d time.Duration, url string) load {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "wrk"), "-t", "1", "-c", strconv.Itoa(connections), "-d", d.String(),
		"--timeout", fmt.Sprintf("%.0fs", servers.Patience.Seconds()), "-s", "testdata/count.lua", url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	l := load{statuses: map[string]int{}}
	for line := range strings.Lines(string(out)) {
		var name string
		var n int
		if _, err := fmt.Sscanf(line, "count %s %d", &name, &n); err != nil {
			continue
		}
		switch status, isStatus := strings.CutPrefix(name, "status-"); {
		case isStatus:
			l.statuses[status] = n
		case name == "requests":
			l.requests = n
		case name == "errors":
			l.errors = n
		case name == "slowest-us":
			l.slowest = time.Duration(n) * time.Microsecond
		}
	}
	if l.requests == 0 {
		t.Fatalf("%v counted nothing:\n%s", cmd, out)
	}
	return l
}

// stoodStill returns the time in which tokens were lost although requests are sent all the time, because
// the machine stood still: what gaps between arrivals, in milliseconds, are longer than the time in which
// the bucket becomes full. A request in flight waits as long, so a gap counts up to the longest latency.
func (l load) stoodStill(at []int64, full time.Duration) (lost time.Duration) {
	for i := 1; i < len(at); i++ {
		gap := time.Duration(at[i]-at[i-1]) * time.Millisecond
		lost += max(0, min(gap-full, l.slowest))
	}
	return lost
}
