package traffic

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// load is what wrk counted.
type load struct {
	requests int            // with a response
	statuses map[string]int // of the responses
	errors   int            // failed connections, and missing responses
	slowest  time.Duration  // longest latency
}

// wrk sends requests, the next one on each connection when the response has come.
func wrk(t *testing.T, connections int, d time.Duration, url string) load {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "wrk"), "-t", "1", "-c", strconv.Itoa(connections), "-d", d.String(),
		"-s", "testdata/count.lua", url)
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
