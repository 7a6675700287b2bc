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
	servers.Poll(t, "nobody waits any more", func() bool { return g.Samples(t)[`weir_limit_waiting{limit="all"}`] == 0 })
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
	// The queue was full, so every slot is used, and most arrivals are as far apart as the slots. Where the machine
	// stood still for as long as half of the queue, the queue may have run empty.
	var gaps []int64
	still := time.Duration(0)
	for i := 1; i < len(at); i++ {
		gap := at[i] - at[i-1]
		gaps = append(gaps, gap)
		if d := time.Duration(gap) * time.Millisecond; d > places/2*slot {
			still += d
		}
	}
	if least := int((duration - late - still) / slot); len(at) < least {
		t.Errorf("%d arrivals within %v: there were %d slots", len(at), duration, least)
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
// refused at once. That is judged in up to 10 attempts: in some, the machine may stand still for longer
// than a slot, and later requests find places that have become free.
func TestQueueOfCurls(t *testing.T) {
	up := startNginx(t, t.TempDir(), servers.HTTP(upstream))
	g := startWeir(t, t.TempDir(), `
limits: { all: { key: query.line, leaky_bucket: { rate: 2/s, queue: 3 } } }
upstreams: { up: { url: "http://`+up.Addr+`" } }
routes: [{ match: /, upstream: up, limits: [all] }]
`)
	counted := map[string]float64{}
	arrived := 0
	for attempt := 1; ; attempt++ {
		err := g.sixCurls(t, up, counted, &arrived, attempt)
		if err == nil {
			return
		}
		if attempt == 10 {
			t.Fatal(err)
		}
		t.Log(err)
	}
}

// sixCurls sends six requests at once to a queue of their own, and says what was not as it should be. It
// adds what it saw to the counters and the arrivals of earlier attempts, with which the gateway agrees
// always.
func (g *gateway) sixCurls(t *testing.T, up *servers.Server, counted map[string]float64, arrived *int, attempt int) error {
	t.Helper()
	const slot = 500 * time.Millisecond
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), program(t, "curl"), "-s", "-Z", "--parallel-immediate", "-o", "/dev/null",
		"-w", "%{http_code} %{time_total}\n", fmt.Sprintf("http://%s/?line=%d&n=[1-6]", g.Gateway, attempt)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	refused, late := 0, time.Duration(0)
	for line := range strings.Lines(string(out)) {
		var status int
		var seconds float64
		if _, err := fmt.Sscan(line, &status, &seconds); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		switch wait := time.Duration(seconds * float64(time.Second)); status {
		case 200:
			waits = append(waits, wait)
		case 429:
			refused, late = refused+1, max(late, wait)
		default:
			t.Fatalf("status %d after %v", status, wait)
		}
	}
	before := *arrived
	*arrived += len(waits)
	var at []int64
	servers.Poll(t, "all are in the upstream's log, which it writes after it has answered", func() bool {
		at, _ = arrivals(t, up.AccessLog)
		return len(at) == *arrived
	})
	at = at[before:]
	var m map[string]float64
	var allowed float64
	limited := func(outcome string) float64 { return m[`weir_limit_requests_total{limit="all",outcome="`+outcome+`"}`] }
	servers.Poll(t, "the counters agree with what the clients saw", func() bool {
		m = g.Samples(t)
		allowed = limited("allowed") - counted["allowed"]
		delayed := limited("delayed") - counted["delayed"]
		return allowed+delayed == float64(len(waits)) && limited("limited")-counted["limited"] == float64(refused) &&
			m[`weir_gateway_requests_total{outcome="delayed"}`] == limited("delayed")
	})
	for _, name := range []string{"allowed", "delayed", "limited"} {
		counted[name] = limited(name)
	}
	for i := range at {
		due := time.Duration(i) * slot
		if since := time.Duration(at[i]-began.UnixMilli()) * time.Millisecond; since < due-time.Millisecond {
			t.Fatalf("arrival %d came after %v: its slot is at %v", i, since, due)
		} else if since > due+4*slot {
			return fmt.Errorf("arrival %d came after %v: its slot is at %v", i, since, due)
		}
	}
	if len(waits) != 4 || refused != 2 || allowed != 1 || late >= slot {
		return fmt.Errorf("%d went through, %v of them without a delay, and %d were refused after up to %v: %s", len(waits), allowed, refused, late, out)
	}
	slices.Sort(waits)
	t.Logf("answers after %v", waits)
	return nil
}
