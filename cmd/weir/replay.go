package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weirflow/weir/sim"
)

func replayCommand() *cobra.Command {
	var config, decisions string
	var asJSON bool
	var o sim.Options
	c := &cobra.Command{
		Use:   "replay FILE LOG...",
		Short: "Run access logs through the limits of a policy file, in virtual time",
		Long: `Replay runs access logs through the limits of a policy in virtual time, as fast as it can read them, and reports
which clients would have been limited, and by which limit. It reads the Common and Combined Log Formats and JSON
lines (also those of Envoy AI Gateway and LiteLLM), plain or gzipped; - is standard input. Several logs are merged
by time. The first field of a line is client.ip.

FILE is the policy file; with --config FILE, all arguments are logs. Replay exits with 1 if no line could be read.`,
		Example: "  weir replay policy.yaml access.log access.log.1.gz\n  zcat *.gz | weir replay policy.yaml --json -",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			logs := args
			if config == "" {
				if config, logs = args[0], args[1:]; len(logs) == 0 {
					return &usageError{errors.New("the policy or the log is missing: write weir replay FILE LOG..., with at least one log")}
				}
			}
			return replay(cmd, o, config, decisions, asJSON, logs)
		},
	}
	c.Flags().StringVar(&config, "config", "", "the policy file, in place of the first argument")
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	c.Flags().StringVar(&decisions, "decisions", "", "write one line per request to this file: line number, allow, deny or delay, and the limit that decided")
	c.Flags().StringVar(&o.EstimateField, "estimate-field", "", "the field of JSON lines with the estimated cost; default: estimated_cost")
	c.Flags().StringVar(&o.CostField, "cost-field", "", "the field of JSON lines with the true cost; default: actual_cost")
	return c
}

func replay(cmd *cobra.Command, o sim.Options, config, decisions string, asJSON bool, logs []string) (err error) {
	file, err := loadPolicy(config, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	noteSkippedRooms(cmd.ErrOrStderr(), &file.Policy)
	o.Policy = file.Policy
	var read atomic.Int64
	total, closeAll, err := openLogs(logs, cmd.InOrStdin(), &o, &read)
	defer closeAll()
	if err != nil {
		return err
	}
	if decisions != "" {
		out, createErr := createDecisions(decisions, append(logs, config))
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		o.Decisions = out
	}
	bar := newProgressBar(cmd.ErrOrStderr(), total, &read)
	o.Progress = bar.show
	report, err := sim.Replay(cmd.Context(), o)
	bar.clear()
	if report == nil {
		return err
	}
	err = errors.Join(printReport(cmd, report, asJSON), err)
	if err == nil && report.Requests == 0 && report.Unparsed > 0 {
		return errors.New("no line could be read: is this an access log in the Common or Combined Log Format, or JSON lines?")
	}
	return err
}

// createDecisions creates the file for the decisions. It refuses to overwrite a file that replay
// reads.
func createDecisions(name string, inputs []string) (*os.File, error) {
	if name == "-" {
		return nil, &usageError{errors.New("--decisions - would mix the decisions with the report on standard output: name a file")}
	}
	if info, err := os.Stat(name); err == nil {
		for _, input := range inputs {
			if in, err := os.Stat(input); err == nil && os.SameFile(info, in) {
				return nil, &usageError{fmt.Errorf("--decisions %s: replay reads it as %s and would overwrite it: name another file", name, input)}
			}
		}
	}
	out, err := os.Create(name)
	if err != nil {
		return nil, fileError(err)
	}
	return out, nil
}

// openLogs opens all logs before it reads any, so that a wrong name is reported at once.
func openLogs(names []string, stdin io.Reader, o *sim.Options, read *atomic.Int64) (total int64, closeAll func(), err error) {
	var files []*os.File
	closeAll = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for i, name := range names {
		r := stdin
		if name == "-" {
			total = -1
			if i != len(names)-1 && slices.Contains(names[i+1:], "-") {
				return total, closeAll, &usageError{errors.New("- is standard input, which can be read only once: write it once")}
			}
		} else {
			f, err := os.Open(name)
			if err != nil {
				return total, closeAll, fileError(err)
			}
			files = append(files, f)
			info, err := f.Stat()
			switch {
			case err != nil:
				return total, closeAll, fileError(err)
			case info.IsDir():
				return total, closeAll, &usageError{fmt.Errorf("%s is a directory: name its files", name)}
			case total >= 0:
				total += info.Size()
			}
			r = f
		}
		o.Inputs = append(o.Inputs, sim.Input{Name: name, R: &countingReader{r, read}})
	}
	return total, closeAll, nil
}

// countingReader counts the bytes read so far, for the progress bar.
type countingReader struct {
	io.Reader
	n *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// printReport prints the counts to stdout, and the lines that could not be read to stderr.
func printReport(cmd *cobra.Command, report *sim.Report, asJSON bool) error {
	if report.Unparsed > 0 {
		lines := "lines"
		if report.Unparsed == 1 {
			lines = "line"
		}
		cmd.PrintErrf("%d %s could not be read; the first of them:\n", report.Unparsed, lines)
		for _, b := range report.Samples {
			cmd.PrintErrf("  line %d: %s: %q\n", b.Line, b.Why, b.Text)
		}
	}
	for _, m := range report.Missing {
		cmd.PrintErrf("warning: no request had %s, a part of the key of the limit %s: its on_missing applied to all of them\n", m.Part, m.Limit)
	}
	if !asJSON {
		return report.WriteText(cmd.OutOrStdout())
	}
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
	return err
}

// progressBar shows the progress of a replay on a terminal.
type progressBar struct {
	w     io.Writer // nil without a terminal
	total int64     // bytes; below 0: unknown
	read  *atomic.Int64
	last  time.Time
}

const barWidth = 40

func newProgressBar(w io.Writer, total int64, read *atomic.Int64) *progressBar {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		w = nil
	}
	return &progressBar{w: w, total: total, read: read}
}

// show updates the bar with how many requests were read and decided. Reading fills its first half.
func (b *progressBar) show(requests, decided int64) {
	if b.w == nil || time.Since(b.last) < 100*time.Millisecond {
		return
	}
	b.last = time.Now()
	if b.total < 0 && decided == 0 {
		fmt.Fprintf(b.w, "\r\x1b[K%d requests read", requests)
		return
	}
	done := 0.5
	switch {
	case decided > 0:
		done += 0.5 * float64(decided) / float64(max(requests, 1))
	case b.total > 0:
		done = 0.5 * float64(b.read.Load()) / float64(b.total)
	}
	filled := min(int(done*barWidth), barWidth)
	fmt.Fprintf(b.w, "\r\x1b[K[%s%s] %3.0f %%  %d requests", strings.Repeat("=", filled), strings.Repeat(" ", barWidth-filled), 100*done, requests)
}

// clear removes the bar.
func (b *progressBar) clear() {
	if b.w != nil {
		fmt.Fprint(b.w, "\r\x1b[K")
	}
}
