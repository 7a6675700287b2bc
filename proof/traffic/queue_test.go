package traffic

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// TestQueueSpacesArrivals keeps a leaky bucket's queue full and reads the upstream's log: one
// arrival for each slot, none before it.
func TestQueueSpacesArrivals(t *testing.T) {
	const (
		slot     = 50 * time.Millisecond
		places   = 11 // ten in the queue, and the slot itself
		duration = 5 * time.Second
	)
	up := startNginx(t, t.TempDir(), servers.HTTP(upstream))
	g := startWeir(t, t.TempDir(), `
limits: { all: { leaky_bucket: { rate: 20/s, queue: 10 } } }
upstreams: { up: { url: "http://`+up.Addr+`" } }
routes: [{ match: /, upstream: up, limits: [all] }]
`)
	began := time.Now()
	l := wrk(t, 3*places, duration, "http://"+g.Gateway+"/")
	poll(t, "nobody waits any more", func() bool { return g.metrics(t)[`weir_limit_waiting{limit="all"}`] == 0 })
	stop(t, g.Process) // all released requests have arrived
	at, _ := arrivals(t, up.AccessLog)

	// Slot i begins i slots after the first decision, which was after the test began. The log
	// truncates its times to 1 ms. So no arrival can be before its slot, however late others were,
	// and no slack is needed.
	late := time.Duration(0)
	for i, ms := range at {
		due := time.Duration(i) * slot
		if since := time.Duration(ms-began.UnixMilli()) * time.Millisecond; since < due-time.Millisecond {
			t.Errorf("arrival %d came %v after the beginning: its slot is at %v", i, since, due)
		}
		late = max(late, time.Duration(ms-at[0])*time.Millisecond-due)
	}
	// The queue was full all the time, so every slot is used, and most arrivals are as far apart as
	// the slots.
	if least := int((duration - late) / slot); len(at) < least {
		t.Errorf("%d arrivals within %v: there were %d slots", len(at), duration, least)
	}
	var gaps []int64
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	slices.Sort(gaps)
	if median := time.Duration(gaps[len(gaps)/2]) * time.Millisecond; median < slot-slot/5 || median > slot+slot/5 {
		t.Errorf("arrivals are %v apart, at the median: the slots are %v", median, slot)
	}
	t.Logf("%d arrivals, %d to %d ms apart (median %d); the latest was %v behind its slot; %d were refused meanwhile",
		len(at), gaps[0], gaps[len(gaps)-1], gaps[len(gaps)/2], late, l.statuses["429"])
	if l.errors != 0 || l.statuses["200"]+l.statuses["429"] != l.requests || l.statuses["429"] == 0 {
		t.Errorf("wrk: %+v", l)
	}
	if most := (places+1)*slot + late; l.slowest > most+time.Second {
		t.Errorf("somebody waited %v for an answer: the queue is %v long", l.slowest, most)
	}
}

// TestQueueOfCurls: of six requests at once one goes, three wait for their slots, and two are
// refused at once.
func TestQueueOfCurls(t *testing.T) {
	const slot = 500 * time.Millisecond
	up := startNginx(t, t.TempDir(), servers.HTTP(upstream))
	g := startWeir(t, t.TempDir(), `
limits: { all: { key: query.line, leaky_bucket: { rate: 2/s, queue: 3 } } }
upstreams: { up: { url: "http://`+up.Addr+`" } }
routes: [{ match: /, upstream: up, limits: [all] }]
`)
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), program(t, "curl"), "-s", "-Z", "--parallel-immediate", "-o", "/dev/null",
		"-w", "%{http_code} %{time_total}\n", "http://"+g.Gateway+"/?line=a&n=[1-6]").Output()
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	refused := 0
	for line := range strings.Lines(string(out)) {
		var status int
		var seconds float64
		if _, err := fmt.Sscan(line, &status, &seconds); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		switch wait := time.Duration(seconds * float64(time.Second)); {
		case status == 200:
			waits = append(waits, wait)
		case status == 429 && wait < slot:
			refused++
		default:
			t.Errorf("status %d after %v", status, wait)
		}
	}
	slices.Sort(waits)
	if len(waits) != 4 || refused != 2 {
		t.Fatalf("%d went through and %d were refused: %s", len(waits), refused, out)
	}
	var at []int64
	poll(t, "all four are in the upstream's log, which it writes after it has answered", func() bool {
		at, _ = arrivals(t, up.AccessLog)
		return len(at) == 4
	})
	for i := range at {
		due := time.Duration(i) * slot
		since := time.Duration(at[i]-began.UnixMilli()) * time.Millisecond
		if since < due-time.Millisecond || since > due+4*slot {
			t.Errorf("arrival %d came after %v: its slot is at %v", i, since, due)
		}
	}
	t.Logf("answers after %v", waits)
	if m := g.metrics(t); m[`weir_limit_requests_total{limit="all",outcome="delayed"}`] != 3 || m[`weir_limit_requests_total{limit="all",outcome="allowed"}`] != 1 ||
		m[`weir_limit_requests_total{limit="all",outcome="limited"}`] != 2 || m[`weir_gateway_requests_total{outcome="delayed"}`] != 3 {
		t.Errorf("%v", m)
	}
}
