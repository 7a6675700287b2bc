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
	requests int            // answered
	statuses map[string]int // of the answers
	errors   int            // connections that failed, and answers that never came
	slowest  time.Duration  // answer
}

// wrk sends requests as fast as they are answered.
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
