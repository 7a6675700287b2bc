package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/raced"
)

// TestPageIsUpToDate: docs/costs.md has the table that the simulation prints, in which no limit is
// exceeded.
func TestPageIsUpToDate(t *testing.T) {
	raced.Skip(t)
	var b bytes.Buffer
	if err := table(&b); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../costs.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), b.String()) {
		t.Errorf("the page has not this table:\n%s", b.String())
	}
}

// TestUtilisation: where what is estimated too high fits into the burst, at least 95 % of what an
// oracle admits is admitted, and nothing over the bound. Counting afterwards exceeds it.
func TestUtilisation(t *testing.T) {
	raced.Skip(t)
	for _, load := range loads {
		for _, latency := range latencies {
			all := arrivals(load, latency)
			oracle := simulate(all, knowing{}).admitted
			for _, e := range estimates {
				o := simulate(all, &estimating{factor: e})
				inFlight := perMinute * min(load, 1) * float64(latency) / float64(time.Minute)
				if fits := inFlight*(e-1) < 0.7*burst; fits && float64(o.admitted) < 0.95*float64(oracle) || o.broken > 0 || e >= 1 && o.over > 0 {
					t.Errorf("load %g, latency %v, estimates x%g: %s", load, latency, e, o.against(oracle))
				}
			}
			if o := simulate(all, counting{}); load > 1 && o.over < meanCost {
				t.Errorf("load %g, latency %v, counted afterwards: %s: the test cannot see what is over", load, latency, o.against(oracle))
			}
		}
	}
}
