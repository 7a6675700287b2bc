package traffic

import (
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// TestNeverOver offers far more than the limit and reads the upstream's own log: in no interval did
// more arrive than the burst and what the rate brings.
func TestNeverOver(t *testing.T) {
	const (
		rate, burst = 100, 50
		connections = 16
		duration    = 10 * time.Second
	)
	dir := t.TempDir()
	up := startNginx(t, dir, servers.HTTP(upstream))
	g := startWeir(t, dir, `
limits: { all: { token_bucket: { rate: 100/s, burst: 50 } } }
upstreams: { up: { url: "http://`+up.Addr+`" } }
routes: [{ match: /, upstream: up, limits: [all] }]
`)
	began := time.Now()
	l := wrk(t, connections, duration, "http://"+g.Gateway+"/")

	// Requests that were in flight when wrk left have to end before anything is compared. Some
	// admitted ones may have been cancelled before they reached the upstream.
	var m map[string]float64
	var at []int64
	var statuses map[string]int
	servers.Poll(t, "nothing is in flight: all counts agree, and what was allowed has arrived or was given up", func() bool {
		m = g.Samples(t)
		for _, outcome := range []string{"allowed", "limited"} {
			if m[`weir_limit_requests_total{limit="all",outcome="`+outcome+`"}`] != m[`weir_gateway_requests_total{outcome="`+outcome+`"}`] {
				return false
			}
		}
		at, statuses = arrivals(t, up.AccessLog)
		// The log is read after the counters, so one more may have arrived in between.
		allowed, arrived := m[`weir_limit_requests_total{limit="all",outcome="allowed"}`], float64(len(at))
		return arrived <= allowed && allowed <= arrived+m[`weir_gateway_requests_total{outcome="canceled"}`]
	})
	elapsed := time.Since(began)

	// In the whole time, exactly: all decisions were made while the test measured it, so no slack
	// is needed.
	if most := burst + int(rate*elapsed/time.Second); len(at) > most {
		t.Errorf("%d requests arrived within %v: at most %d may", len(at), elapsed, most)
	}
	// A request is logged between its decision and its response. So two decisions may be further
	// apart than their lines in the log: by the time that the first one took to arrive, for which
	// wrk's longest latency is an upper bound, and by 1 ms, to which the log truncates its times.
	slack := l.slowest + time.Millisecond
	worst := 0.0 // over the limit, if there were no slack
	for i := range at {
		for j := i; j < len(at); j++ {
			d := time.Duration(at[j]-at[i]) * time.Millisecond
			n := j - i + 1
			worst = max(worst, float64(n)-burst-rate*d.Seconds())
			if most := burst + int(rate*(d+slack)/time.Second); n > most {
				t.Fatalf("lines %d to %d of %s: %d requests arrived within %v, and %v of slack: at most %d may", i+1, j+1, up.AccessLog, n, d, slack, most)
			}
		}
	}
	// Nor was less than the limit admitted, because requests came all the time.
	first, last := at[0], at[len(at)-1]
	whole := time.Duration(last-first) * time.Millisecond
	still := l.stoodStill(at, burst*time.Second/rate)
	if least := burst + int(rate*(whole-still-slack)/time.Second) - 1; len(at) < least || whole < duration/2 {
		t.Errorf("%d requests arrived within %v, %v of it without the machine: at least %d are due", len(at), whole, still, least)
	}
	t.Logf("offered %d (%.0f times the rate), %d arrived within %v; slack %v; without it the log is %.1f over at worst",
		l.requests, float64(l.requests)/rate/duration.Seconds(), len(at), whole, slack, worst)

	if offered, least := l.requests, 2*int(rate*(duration-still-slack)/time.Second); offered < least {
		t.Errorf("only %d requests were offered, want at least %d: twice the limit", offered, least)
	}
	if l.errors != 0 || l.statuses["200"]+l.statuses["429"] != l.requests || len(l.statuses) != 2 || statuses["200"] < len(at)-connections {
		t.Errorf("wrk: %+v, upstream: %v", l, statuses)
	}
	// Three counts. wrk does not count what was in flight when it left: at most one request for
	// each connection.
	allowed, limited := m[`weir_limit_requests_total{limit="all",outcome="allowed"}`], m[`weir_limit_requests_total{limit="all",outcome="limited"}`]
	for _, c := range []struct {
		what       string
		a, b, more float64 // a <= b <= a + more
	}{
		{"answers of 200, allowed", float64(l.statuses["200"]), allowed, connections},
		{"answers of 429, limited", float64(l.statuses["429"]), limited, connections},
		{"all answers, all decisions", float64(l.requests), allowed + limited, connections},
		{"answers of 200, arrivals", float64(l.statuses["200"]), float64(len(at)), connections},
		{"arrivals, allowed", float64(len(at)), allowed, m[`weir_gateway_requests_total{outcome="canceled"}`]},
		{"allowed by the limit, by the gateway", allowed, m[`weir_gateway_requests_total{outcome="allowed"}`], 0},
		{"limited by the limit, by the gateway", limited, m[`weir_gateway_requests_total{outcome="limited"}`], 0},
		{"failures of the upstream", 0, m["weir_gateway_upstream_failures_total"], 0},
	} {
		if c.b < c.a || c.b > c.a+c.more {
			t.Errorf("%s: %v and %v do not agree", c.what, c.a, c.b)
		}
	}
}
