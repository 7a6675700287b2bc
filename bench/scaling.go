package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// scaling measures how costs grow with cores, keys, the size of a batch, callers and connections. Each table has
// a row for each number, and is drawn by the report.
func scaling(r *report) error {
	for _, part := range []func(*report) error{scaleCores, scaleKeys, scaleBatches, scaleCallers, scaleConnections} {
		if err := part(r); err != nil {
			return err
		}
	}
	return nil
}

// A sweep is a table with a row for each number of something.
type sweep struct {
	table
	decimals int
}

func newSweep(title, of, unit string, decimals int) *sweep {
	return &sweep{table{Title: title, Notes: []string{"a row for each number of " + of + "; " + unit}, Of: of, Unit: unit}, decimals}
}

// add adds a row: the figures of the subjects at one number.
func (s *sweep) add(n int, names []string, figures []float64) {
	r := row{Name: strconv.Itoa(n), Values: make([]float64, len(s.Columns))}
	for i := range r.Values {
		r.Values[i] = math.NaN()
	}
	for i, name := range names {
		at := slices.IndexFunc(s.Columns, func(c column) bool { return c.Name == name })
		if at < 0 {
			at = len(s.Columns)
			s.Columns = append(s.Columns, column{name, s.decimals})
			r.Values = append(r.Values, 0)
			for j := range s.Rows {
				s.Rows[j].Values = append(s.Rows[j].Values, math.NaN())
			}
		}
		r.Values[at] = figures[i]
	}
	s.Rows = append(s.Rows, r)
}

// contest adds the medians of a contest, without its references.
func (s *sweep) contest(r *report, n int, c contest, but ...string) error {
	outcomes, err := c.run(r.rounds, r.round)
	if err != nil {
		return err
	}
	var names []string
	var figures []float64
	for i, subject := range c.subjects {
		if !slices.Contains(but, subject.name) {
			names, figures = append(names, subject.name), append(figures, median(outcomes[i].perOp))
		}
	}
	s.add(n, names, figures)
	return nil
}

// scaleCores measures one limiter that all cores use.
func scaleCores(r *report) error {
	s := newSweep("one limiter, admitted", "goroutines at once", "ns/op", 1)
	for n := 1; ; n = min(2*n, runtime.GOMAXPROCS(0)) {
		if err := s.contest(r, n, takeContest(true, n)); err != nil {
			return err
		}
		if n == runtime.GOMAXPROCS(0) {
			r.add(s.table)
			return nil
		}
	}
}

// scaleKeys measures tables of more and more keys, each used as often as the others.
func scaleKeys(r *report) error {
	s := newSweep("one of many keys, at random", "keys", "ns/op", 1)
	for n := fewestKeys; ; n = min(10*n, r.keys) {
		tables, err := newStable(n)
		if err != nil {
			return err
		}
		err = s.contest(r, n, tables.contest(&keySource{keys: n}, 1), keyAlone)
		if tables.close(); err != nil {
			return err
		}
		if n >= r.keys {
			r.add(s.table)
			return nil
		}
	}
}

// scaleBatches measures batches of more and more keys.
func scaleBatches(r *report) error {
	t, err := newBatchTable(r.keys)
	if err != nil {
		return err
	}
	defer func() { _ = t.limiter.Close() }() // it has nothing to fail with
	s := newSweep(fmt.Sprintf("%d keys at random, many at once", r.keys), "keys in a batch", "ns for each key", 1)
	for _, n := range []int{1, 4, 16, 64, 256} {
		if err := s.contest(r, n, t.contest(n, 1), keyAlone); err != nil {
			return err
		}
	}
	r.add(s.table)
	return nil
}

// scaleCallers measures one key in Redis with more and more callers.
func scaleCallers(r *report) error {
	w, err := openRedis()
	if err != nil {
		return err
	}
	defer w.close() //nolint:errcheck // it is stopped either way
	names, calls, err := w.subjects()
	if err != nil {
		return err
	}
	s := newSweep("one key in Redis", "callers", "decisions/s", 0)
	for _, n := range []int{1, 4, 16, 64, 256} {
		rates := make([][]float64, len(calls))
		for round := range r.rounds {
			for _, i := range turns(round, len(calls)) {
				rate, _, err := drive(calls[i], n, 1, 10*r.round)
				if err != nil {
					return fmt.Errorf("%s: %w", names[i], err)
				}
				rates[i] = append(rates[i], rate)
			}
		}
		s.add(n, names, each(rates, median))
	}
	r.add(s.table)
	return nil
}

// scaleConnections measures refusals by the gateway and by nginx over more and more connections.
func scaleConnections(r *report) error {
	site, err := newSite()
	if err != nil {
		return err
	}
	defer site.close()
	traffic := traffics()[1]
	p, err := site.pair(traffic)
	if err != nil {
		return err
	}
	defer p.stop() //nolint:errcheck // the measurement is over
	s := newSweep("refused through a proxy", "connections", "requests/s", 0)
	both := []proxy{p.nginx, p.weir}
	for _, n := range []int{1, 16, 64, 256, 1024} {
		rates := make([][]float64, len(both))
		for round := range r.repeats() {
			for _, i := range turns(round, len(both)) {
				v, err := runWrk(site.wrk, "http://"+both[i].addr+"/items/7", n, max(int(50*r.round/time.Second), 1))
				if err != nil {
					return err
				}
				rates[i] = append(rates[i], v["rate"])
			}
		}
		s.add(n, []string{both[0].name, both[1].name}, each(rates, median))
	}
	r.add(s.table)
	return nil
}

// each applies a function to each list.
func each(lists [][]float64, f func([]float64) float64) []float64 {
	figures := make([]float64, len(lists))
	for i, list := range lists {
		figures[i] = f(list)
	}
	return figures
}
