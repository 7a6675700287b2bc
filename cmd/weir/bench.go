package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores"
)

// benchOptions are what weir bench measures, and for how long.
type benchOptions struct {
	Rounds int
	Round  time.Duration
	Keys   int
	Store  string // the URL of a store; "" measures none
}

// benchReport is the result of weir bench, which docs/bench.md describes.
type benchReport struct {
	Machine  machine    `json:"machine"`
	Limiters []benchRow `json:"limiters"`
	Keyed    *benchKeys `json:"keyed,omitempty"`
	Store    *benchCall `json:"store,omitempty"`
}

// machine is what a figure is valid for.
type machine struct {
	CPU     string `json:"cpu,omitempty"`
	Threads int    `json:"threads"` // GOMAXPROCS
	System  string `json:"system"`
	Go      string `json:"go"`
	Load    string `json:"load,omitempty"` // the average of the last minute, before the measurement
}

func benchCommand() *cobra.Command {
	o := benchOptions{Rounds: 15, Round: 20 * time.Millisecond, Keys: 1_000_000}
	var asJSON bool
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast this machine decides",
		Long: `Bench measures how long a decision takes on this machine: by one limiter of each algorithm, by a table of many keys,
and with --store by a store such as Redis. A figure is the median of --rounds rounds. It is valid for this machine at
this hour: measure while nothing else runs. The first lines say which machine it is, and how busy it was before.

With --store, bench charges keys of the limit weir-bench there, by at most some 100,000 calls. They expire within a minute.`,
		Example: `  weir bench
  weir bench --keys 0 --store redis://127.0.0.1:6379/0`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return &usageError{err}
			}
			report, err := measureAll(cmd.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(report)
			}
			return report.write(cmd.OutOrStdout())
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often each line is measured")
	c.Flags().DurationVar(&o.Round, "round", o.Round, "how long each time")
	c.Flags().IntVar(&o.Keys, "keys", o.Keys, "how many keys the table has; 0 measures none")
	c.Flags().StringVar(&o.Store, "store", "", "the URL of a store, as in policy files: it is measured, too")
	c.Flags().BoolVar(&asJSON, "json", false, "JSON")
	return c
}

// Bounds of the options: a table of keys takes some 24 bytes for each.
const (
	mostRounds    = 10_000
	mostRound     = time.Minute
	mostBenchKeys = 100_000_000
)

func (o benchOptions) validate() error {
	switch {
	case o.Rounds < 1 || o.Rounds > mostRounds:
		return fmt.Errorf("--rounds %d: write 1 to %d", o.Rounds, mostRounds)
	case o.Round < time.Millisecond || o.Round > mostRound:
		return fmt.Errorf("--round %v: write 1ms to %v", o.Round, mostRound)
	case o.Keys < 0 || o.Keys > mostBenchKeys:
		return fmt.Errorf("--keys %d: write 0 to %d", o.Keys, mostBenchKeys)
	case o.Store != "":
		if wrong := stores.Check(policy.Store{Name: "bench", URL: o.Store}); len(wrong) > 0 {
			return fmt.Errorf("--store: %s: %s", wrong[0].Message, wrong[0].Fix)
		}
	}
	return nil
}

// measureAll measures what the options say.
func measureAll(ctx context.Context, o benchOptions) (*benchReport, error) {
	report := &benchReport{Machine: thisMachine()}
	var err error
	if report.Limiters, err = measureLimiters(ctx, o); err != nil {
		return nil, err
	}
	if o.Keys > 0 {
		if report.Keyed, err = measureKeyed(ctx, o); err != nil {
			return nil, err
		}
	}
	if o.Store != "" {
		if report.Store, err = measureStore(ctx, o); err != nil {
			return nil, err
		}
	}
	return report, nil
}

func thisMachine() machine {
	m := machine{Threads: runtime.GOMAXPROCS(0), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(text), " ")
	}
	return m
}

// write prints a report as tables.
func (b *benchReport) write(out io.Writer) error {
	var text strings.Builder
	m := b.Machine
	if m.CPU != "" {
		fmt.Fprintf(&text, "machine  %s, %d threads, %s, %s\n", m.CPU, m.Threads, m.System, m.Go)
	} else {
		fmt.Fprintf(&text, "machine  %d threads, %s, %s\n", m.Threads, m.System, m.Go)
	}
	if m.Load != "" {
		fmt.Fprintf(&text, "load     %s in the minute before\n", m.Load)
	}
	fmt.Fprintf(&text, "\n%-36s %14s %16s\n", "one limiter", "ns a decision", "decisions/s, all")
	for _, r := range b.Limiters {
		fmt.Fprintf(&text, "%-36s %14.1f %16s\n", r.Name, r.Alone, thousands(1e9/r.Together))
	}
	if k := b.Keyed; k != nil {
		fmt.Fprintf(&text, "\n%-36s %14s %16s\n", "one of "+thousands(float64(k.Keys))+" keys", "ns a decision", "decisions/s, all")
		fmt.Fprintf(&text, "%-36s %14.1f %16s\n", "TokenBucket, keys at random", k.Alone, thousands(1e9/k.Together))
		if k.Bytes > 0 {
			fmt.Fprintf(&text, "%.0f bytes of memory for each key\n", k.Bytes)
		}
	}
	if s := b.Store; s != nil {
		fmt.Fprintf(&text, "\n%-36s %14s %14s %16s\n", "store", "p50", "p99", "decisions/s")
		for _, r := range s.Rows {
			fmt.Fprintf(&text, "%-36s %14s %14s %16s\n", r.Name, shortDuration(r.P50), shortDuration(r.P99), thousands(r.PerSecond))
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// shortDuration is a duration with three digits.
func shortDuration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// thousands is a number with commas.
func thousands(n float64) string {
	digits := fmt.Sprintf("%.0f", n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// median is the middle of some figures; it sorts them.
func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
