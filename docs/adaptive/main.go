// Adaptive simulates a service under overload behind each algorithm of package adaptive, in virtual
// time. It prints the table of docs/adaptive.md and draws its pictures:
//
//	go run ./docs/adaptive
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/overload"
)

func main() {
	dir := filepath.Join("docs", "adaptive")
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := write(os.Stdout, dir); err != nil {
		fmt.Fprintln(os.Stderr, "adaptive:", err)
		os.Exit(1)
	}
}

func write(to io.Writer, dir string) error {
	all := scenarios()
	fmt.Fprint(to, "| scenario | algorithm | served | p99 | limit |\n|---|---|---|---|---|\n")
	for _, s := range all {
		runs, err := s.run()
		if err != nil {
			return err
		}
		for _, r := range runs {
			fmt.Fprintln(to, r.row(s))
		}
		if err := os.WriteFile(filepath.Join(dir, s.file), s.draw(runs), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The service: 50 workers, and a time with a heavy tail that a request takes.
const (
	sec     = time.Second
	ms      = time.Millisecond
	workers = 50
	mean    = 100 * ms
	perSec  = 500.0 // what the workers can do
	length  = 60 * sec
	settled = 5 * sec // from then on, the table counts
)

// A scenario is a service whose load or capacity changes, and its picture.
type scenario struct {
	file, name, title string
	overload.Scenario
}

func scenarios() []scenario {
	plain := overload.Service{Workers: workers, Rate: 3 * perSec}
	with := func(change func(d time.Duration, s *overload.Service)) func(time.Duration) overload.Service {
		return func(d time.Duration) overload.Service {
			s := plain
			change(d, &s)
			return s
		}
	}
	between := func(d, from, until time.Duration) bool { return d >= from && d < until }
	all := []scenario{
		{file: "step.svg", name: "step", title: "Three times the load; half the workers from 20 s, and twice as many from 40 s"},
		{file: "ramp.svg", name: "ramp", title: "A load that rises from nothing to three times the capacity"},
		{file: "slow.svg", name: "slow upstream", title: "Three times the load; each request takes three times as long from 20 s to 40 s"},
		{file: "pause.svg", name: "pause", title: "Three times the load; nothing is served for 1 s, twice"},
		{file: "herd.svg", name: "herd", title: "Half the load, and ten times the load for 2 s, twice"},
		{file: "retries.svg", name: "retries", title: "90 % of the load, with clients that try again; nothing is served for 2 s"},
	}
	changes := []func(d time.Duration, s *overload.Service){
		func(d time.Duration, s *overload.Service) {
			switch {
			case d >= 40*sec:
				s.Workers = 2 * workers
			case d >= 20*sec:
				s.Workers = workers / 2
			}
		},
		func(d time.Duration, s *overload.Service) { s.Rate = 3 * perSec * d.Seconds() / length.Seconds() },
		func(d time.Duration, s *overload.Service) {
			if between(d, 20*sec, 40*sec) {
				s.Slowness = 3
			}
		},
		func(d time.Duration, s *overload.Service) {
			s.Paused = between(d, 20*sec, 21*sec) || between(d, 40*sec, 41*sec)
		},
		func(d time.Duration, s *overload.Service) {
			s.Rate = perSec / 2
			if between(d, 20*sec, 22*sec) || between(d, 40*sec, 42*sec) {
				s.Rate = 10 * perSec
			}
		},
		func(d time.Duration, s *overload.Service) {
			s.Rate = 0.9 * perSec
			s.Paused = between(d, 20*sec, 22*sec)
		},
	}
	for i := range all {
		all[i].Scenario = overload.Scenario{
			Name: all[i].name, For: length, At: with(changes[i]), Work: overload.HeavyTail(mean), Abandon: 2 * sec, Seed: 1,
		}
	}
	last := &all[len(all)-1]
	last.Abandon, last.Retries, last.Pause = sec, 3, 200*ms
	return all
}

// A run is what happened behind one algorithm.
type run struct {
	name, class string
	limited     bool
	bins        []overload.Bin
}

func (s scenario) run() (all []run, err error) {
	for _, a := range []struct {
		name, class string
		algorithm   adaptive.Algorithm
	}{
		{"no limit", "none", nil},
		{"AIMD", "aimd", adaptive.AIMD{}},
		{"Vegas", "vegas", adaptive.Vegas{}},
		{"Gradient2", "gradient", adaptive.Gradient2{}},
		{"Knee", "knee", adaptive.Knee{}},
	} {
		bins, err := s.behind(a.algorithm)
		if err != nil {
			return nil, err
		}
		all = append(all, run{a.name, a.class, a.algorithm != nil, bins})
	}
	return all, nil
}

// behind simulates the scenario behind an algorithm, or without a limit.
func (s scenario) behind(a adaptive.Algorithm) ([]overload.Bin, error) {
	sim := overload.New(s.Scenario)
	if a == nil {
		return sim.Run(overload.Limiter{
			Limit: func() int64 { return 0 },
			Enter: func() (func(weir.Outcome), bool) { return func(weir.Outcome) {}, true },
		}), nil
	}
	l, err := adaptive.New(adaptive.Options{Algorithm: a, Clock: sim.Now, Draw: func() float64 { return 0.5 }})
	if err != nil {
		return nil, err
	}
	return sim.Run(overload.Limiter{Limit: l.Limit, Enter: func() (func(weir.Outcome), bool) {
		h, ok := l.TryEnter()
		return h.Done, ok
	}}), nil
}

// possible is how many requests could be served from a time on, of those that were sent.
func (s scenario) possible() float64 {
	could, backlog := 0.0, 0.0
	for d := time.Duration(0); d < length; d += overload.BinWidth {
		now := s.At(d)
		can := float64(now.Workers) / mean.Seconds() / max(now.Slowness, 1) * overload.BinWidth.Seconds()
		if now.Paused {
			can = 0
		}
		// what comes may wait for a second at most, as clients do not wait for long
		backlog = min(backlog, can*10) + now.Rate*overload.BinWidth.Seconds()
		done := min(backlog, can)
		backlog -= done
		if d >= settled {
			could += done
		}
	}
	return could
}

// served returns the share of what is possible that was served, and how long it took at most, but
// for one in a hundred.
func (r run) served(s scenario) (share float64, p99 time.Duration) {
	b := overload.Between(r.bins, settled, length)
	return float64(b.Good) / s.possible(), b.P99
}

// row is the run's line of the table.
func (r run) row(s scenario) string {
	b := overload.Between(r.bins, settled, length)
	share, p99 := r.served(s)
	took := fmt.Sprintf("%.2f s", p99.Seconds())
	if b.Good == 0 {
		took = "-"
	}
	limit := "-"
	if r.limited {
		limit = fmt.Sprintf("%d to %d", b.Lowest, b.Highest)
	}
	return fmt.Sprintf("| %s | %s | %.0f %% | %s | %s |", s.name, r.name, 100*share, took, limit)
}
