package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// A load is how often requests come, and how long they take until they are settled.
type load struct {
	comes, takes string
	each         time.Duration // the time from one request to the next
	atRandom     bool          // each is an average (a Poisson process)
	varies       bool          // 10 s is an average (exponentially distributed)
}

var loads = []load{
	{"every 300 ms", "10 s", 300 * time.Millisecond, false, false},
	{"every 100 ms", "10 s", 100 * time.Millisecond, false, false},
	{"every 300 ms on average, at random", "10 s", 300 * time.Millisecond, true, false},
	{"every 300 ms", "10 s on average, at random", 300 * time.Millisecond, false, true},
	{"every 300 ms on average, at random", "10 s on average, at random", 300 * time.Millisecond, true, true},
}

// used returns the fraction of the limit that a load uses in an hour.
func (l *load) used(s settler) float64 {
	type open struct {
		settle func(int64)
		ends   int64
	}
	span := func(average time.Duration, random bool, rnd *rand.Rand) int64 {
		if random {
			return int64(float64(average) * rnd.ExpFloat64())
		}
		return int64(average)
	}
	var running []open
	done, rnd := int64(0), rand.New(rand.NewPCG(1, 2))
	for now := int64(0); now < int64(time.Hour); now += span(l.each, l.atRandom, rnd) {
		running = slices.DeleteFunc(running, func(o open) bool {
			if o.ends <= now {
				o.settle(now)
			}
			return o.ends <= now
		})
		takes := span(10*time.Second, l.varies, rnd)
		if settle, ok := s.admit(now); ok {
			running = append(running, open{settle, now + takes})
			done += actual
		}
	}
	return float64(done) / (60 * perMinute)
}

// TestLoadsOfBothRules: docs/guarantees.md has a row for each load.
func TestLoadsOfBothRules(t *testing.T) {
	page, err := os.ReadFile("../guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loads {
		e, err := newExactly()
		if err != nil {
			t.Fatal(err)
		}
		row := fmt.Sprintf("| %s | %s | %.0f %% | %.0f %% |", l.comes, l.takes, 100*l.used(e), 100*l.used(&byState{}))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/guarantees.md lacks the row %s", row)
		}
	}
}
