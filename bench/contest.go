package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A contest measures its subjects in turn, for many rounds in one process, so that disturbances of
// the machine affect all of them. In each round every subject runs once, and is compared with the
// references of the same round.
type contest struct {
	title    string
	notes    []string
	procs    int      // how many goroutines at once
	against  []string // the references: subjects with which all others are compared
	subjects []subject

	// rivals are references of single subjects, by the names of both. The target is that each rival
	// is slower than its subject. With beat, the subject may take at most that share of the time of
	// its fastest rival. They have one column, for the fastest.
	rivals map[string][]string
	beat   float64
	facts  []fact

	// large says that the heap is so large that the garbage is collected once per round, not before
	// each subject.
	large bool
}

// fastestPeer is the fastest of a subject's rivals.
const fastestPeer = "the fastest peer"

// A fact is a column that was not measured in rounds, by subject. A subject without a value has an
// empty cell.
type fact struct {
	column column
	of     map[string]float64
}

// A subject is one thing to measure.
type subject struct {
	name    string
	fresh   func() loop // returns the loop for one measurement, on a fresh state if that matters
	answers answers
	targets []target
}

// answers says which decisions a subject must make for its figure to be valid.
type answers uint8

const (
	either answers = iota
	allYes
	allNo
)

// check returns an error for a reading with other decisions.
func (a answers) check(r reading) error {
	switch {
	case a == allYes && r.yes != r.ops:
		return fmt.Errorf("%d of %d calls were refused, and the limit should admit all", r.ops-r.yes, r.ops)
	case a == allNo && r.yes != 0:
		return fmt.Errorf("%d of %d calls were admitted, and the limit should refuse nearly all", r.yes, r.ops)
	}
	return nil
}

// A target is what a subject should reach: at most a multiple of a reference, or, without a
// reference, at most a number of allocations.
type target struct {
	against string
	atMost  float64
}

// An outcome is the result for one subject, with one number for each round.
type outcome struct {
	perOp  []float64            // ns
	ratios map[string][]float64 // by reference
	ops    int
	allocs uint64
}

// allocsPerOp is taken over all rounds, so that the runtime's own few allocations do not show.
func (o outcome) allocsPerOp() float64 { return float64(o.allocs) / float64(o.ops) }

// run measures for a number of rounds. In each, every subject runs for about the duration round.
func (c contest) run(rounds int, round time.Duration) ([]outcome, error) {
	counts := make([]int, len(c.subjects))
	for i, s := range c.subjects {
		counts[i] = calibrate(round, func(n int) time.Duration { return c.timed(s, n).took })
	}
	outcomes := make([]outcome, len(c.subjects))
	for r := range rounds {
		if c.large {
			runtime.GC()
		}
		for _, i := range turns(r, len(c.subjects)) {
			s, o := c.subjects[i], &outcomes[i]
			found := c.timed(s, counts[i])
			if err := s.answers.check(found); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", c.title, s.name, err)
			}
			o.perOp = append(o.perOp, found.perOp())
			o.ops += found.ops
			o.allocs += found.allocs
		}
	}
	return outcomes, c.compare(outcomes)
}

// timed is one measurement of a subject.
func (c contest) timed(s subject, n int) reading {
	l := s.fresh()
	if !c.large {
		runtime.GC()
	}
	return timed(l, n, c.procs)
}

// compare computes the ratios, round by round.
func (c contest) compare(outcomes []outcome) error {
	for i := range outcomes {
		o := &outcomes[i]
		o.ratios = map[string][]float64{}
		for _, name := range slices.Concat(c.against, c.rivals[c.subjects[i].name]) {
			ref := slices.IndexFunc(c.subjects, func(s subject) bool { return s.name == name })
			if ref < 0 {
				return fmt.Errorf("%s: there is no subject %q to compare with", c.title, name)
			}
			for r, ns := range o.perOp {
				o.ratios[name] = append(o.ratios[name], ns/outcomes[ref].perOp[r])
			}
		}
	}
	return nil
}

// turns returns the order of n subjects in a round. Every other round runs in reverse order, and
// every two rounds begin with another subject, so that no subject always comes first, or always
// follows the same one.
func turns(round, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (round/2 + i) % n
	}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// table returns the outcomes as a table.
func (c contest) table(outcomes []outcome) table {
	t := table{Title: c.title, Notes: c.notes, Columns: []column{{"ns/op", 1}, {"p10", 1}, {"p90", 1}}}
	for _, name := range c.against {
		t.Columns = append(t.Columns, column{"/ " + name, 2})
	}
	if c.rivals != nil {
		t.Columns = append(t.Columns, column{"/ peer", 2})
	}
	t.Columns = append(t.Columns, column{"allocs/op", 2})
	for _, f := range c.facts {
		t.Columns = append(t.Columns, f.column)
	}
	for i, s := range c.subjects {
		o := outcomes[i]
		r := row{Name: s.name, Values: []float64{median(o.perOp), percentile(o.perOp, 0.1), percentile(o.perOp, 0.9)}}
		for _, name := range c.against {
			r.Values = append(r.Values, median(o.ratios[name]))
		}
		targets := s.targets
		if c.rivals != nil {
			fastest := math.NaN() // NaN without a peer
			targets = slices.Clone(targets)
			for _, name := range c.rivals[s.name] {
				if m := median(o.ratios[name]); !(fastest >= m) {
					fastest = m
					o.ratios[fastestPeer] = o.ratios[name]
				}
				if c.beat == 0 {
					targets = append(targets, target{name, 1})
				}
			}
			if c.beat > 0 && !math.IsNaN(fastest) {
				targets = append(targets, target{fastestPeer, c.beat})
			}
			r.Values = append(r.Values, fastest)
		}
		r.Values = append(r.Values, o.allocsPerOp())
		for _, f := range c.facts {
			r.Values = append(r.Values, values(f.of).get(s.name))
		}
		r.Target, r.Missed = o.verdict(targets)
		t.Rows = append(t.Rows, r)
	}
	return t
}

// verdict says for each target whether it was reached. Allocations count as printed, to two
// decimals, so that the runtime's own few do not count.
func (o outcome) verdict(targets []target) (text string, missed bool) {
	var parts []string
	for _, t := range targets {
		found, what := math.Round(o.allocsPerOp()*100)/100, "allocs"
		if t.against != "" {
			found, what = median(o.ratios[t.against]), t.against
		}
		word := "MISSED" // also if there is nothing to compare with
		if found <= t.atMost {
			word = "ok"
		}
		missed = missed || word != "ok"
		parts = append(parts, fmt.Sprintf("<= %.4g %s %s", t.atMost, what, word))
	}
	return strings.Join(parts, ", "), missed
}
