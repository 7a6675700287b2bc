package main

import (
	"os"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

var binary string

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		main()
	}
	os.Exit(servers.Main(m, &binary))
}

// TestOverload: a database pool gets three times what it can do. Behind adaptive: {} it serves a good part of
// that, and the important requests before the others. The bounds are far below what a quiet
// machine shows. One that stands still for seconds spoils a measurement, so there are several.
func TestOverload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	for range 5 {
		m, err := measure(kinds[3], t.TempDir(), binary, "{}", 4*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", m)
		if m.over.rate >= m.most/10 && m.over.refused > 0 && m.mixed.important >= m.mixed.served {
			return
		}
	}
	t.Error("in none of five measurements was a tenth of the capacity served, something refused, and the important requests served first")
}

// TestSummary: what was due in a phase counts, when it was due.
func TestSummary(t *testing.T) {
	const step = 10 * time.Millisecond
	all := make([]result, 200)
	for i := range all {
		all[i] = result{due: time.Duration(i) * step, took: time.Duration(i) * time.Millisecond, status: 200, important: i%2 == 0}
		switch {
		case i%4 == 1:
			all[i].status = 503
		case i%8 == 0:
			all[i].status = 0
		}
	}
	s := summaryOf(all, time.Second, 2*time.Second)
	want := summary{rate: 63, p50: 150 * time.Millisecond, p99: 199 * time.Millisecond, served: 0.63, refused: 0.25, gaveUp: 0.12, important: 0.76, importantCount: 50}
	if s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
}

// TestRecovery: the last quarter of a second that was not well.
func TestRecovery(t *testing.T) {
	var all []result
	for due := time.Duration(0); due < 4*time.Second; due += 10 * time.Millisecond {
		r := result{due: due, took: 10 * time.Millisecond, status: 200}
		switch {
		case due < 1100*time.Millisecond:
			r.status = 503
		case due < 1650*time.Millisecond:
			r.took = 50 * time.Millisecond
		}
		all = append(all, r)
	}
	if d := recovery(all, 4*time.Second, 20*time.Millisecond); d != 1750*time.Millisecond {
		t.Errorf("recovered after %v", d)
	}
	if d := recovery(all[160:], 4*time.Second, 20*time.Millisecond); d != 1500*time.Millisecond {
		t.Errorf("a phase without requests in its first part: %v", d)
	}
}
