package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/sim"
	"github.com/weirflow/weir/weirplot"
)

// replayFlags are the flags of weir replay.
type replayFlags struct {
	config, compare, suggest, decisions, format string
	html, svg, png                              string
	sweeps                                      []string
	asJSON                                      bool
	o                                           sim.Options
}

func replayCommand() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay FILE LOG...",
		Short: "Run access logs through the limits of a policy file, in virtual time",
		Long: `Replay runs access logs through the limits of a policy in virtual time, as fast as it can read them, and reports
which clients would have been limited, and by which limit. It reads the logs of nginx, Apache, Caddy, Envoy, Istio,
HAProxy, AWS's Application Load Balancer and Cloudflare, JSON lines (also those of Envoy AI Gateway and LiteLLM), and
any format whose fields --format names; plain, or compressed with gzip or zstd; - is standard input. Several logs are
merged by time. The client's address is client.ip.

With --sweep, it compares values for the parameters of a limit, all in one pass: which share of the requests and of
the clients each combination would have limited. With --suggest, it prints a policy with a limit that 99 % of the
clients would never have noticed, and why; it needs no FILE. With --compare A B, it says which requests and clients
two policies treat differently. --html writes the report as a page with plots.

FILE is the policy file; with --config FILE, all arguments are logs. Replay exits with 1 if no line could be read.`,
		Example: "  weir replay policy.yaml access.log access.log.1.gz\n  zcat *.gz | weir replay policy.yaml --json -\n  weir replay policy.yaml --sweep 'rate=1/s..100/s burst=1..200' access.log\n" +
			"  weir replay --suggest access.log > policy.yaml\n  weir replay --suggest=99.9 access.log\n  weir replay --compare today.yaml tomorrow.yaml access.log",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	c.Flags().StringVar(&f.config, "config", "", "the policy file, in place of the first argument")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print the report as JSON")
	c.Flags().StringVar(&f.decisions, "decisions", "", "write one line per request to this file: line number, allow, deny or delay, and the limit that decided")
	c.Flags().StringArrayVar(&f.sweeps, "sweep", nil, "vary a limit: PARAMETER=FROM..TO in steps of 1, 2, 5, 10 ..., or PARAMETER=A,B,C; also several, and limit=NAME")
	c.Flags().StringVar(&f.suggest, "suggest", "", "suggest limits that this share of the clients, in percent, would never notice")
	c.Flags().Lookup("suggest").NoOptDefVal = "99,99.9"
	c.Flags().StringVar(&f.compare, "compare", "", "compare this policy with FILE")
	c.Flags().StringVar(&f.html, "html", "", "write the report with plots to this file, as one HTML page")
	c.Flags().StringVar(&f.svg, "svg", "", "write each plot to this directory, as SVG")
	c.Flags().StringVar(&f.png, "png", "", "write each plot to this directory, as PNG")
	c.Flags().StringVar(&f.format, "format", "auto", "how lines are read: auto, common, combined, nginx, json, caddy, cloudflare, haproxy, envoy, istio, alb, or the fields of a line as in nginx's log_format")
	c.Flags().StringVar(&f.o.EstimateField, "estimate-field", "", "the field of JSON lines with the estimated cost; default: estimated_cost")
	c.Flags().StringVar(&f.o.CostField, "cost-field", "", "the field of JSON lines with the true cost; default: actual_cost")
	return c
}

// run checks the flags, and does what they ask for.
func (f *replayFlags) run(cmd *cobra.Command, args []string) (err error) {
	var modes []string
	for _, m := range []struct {
		name string
		on   bool
	}{{"--sweep", len(f.sweeps) > 0}, {"--suggest", f.suggest != ""}, {"--compare", f.compare != ""}, {"--decisions", f.decisions != ""}, {"--html", f.html != ""}, {"--svg", f.svg != ""}, {"--png", f.png != ""}} {
		if m.on && (len(modes) == 0 || !slices.Contains([]string{"--decisions", "--html", "--svg", "--png"}, modes[0])) {
			modes = append(modes, m.name)
		}
	}
	switch {
	case len(modes) > 1 && modes[0] == "--sweep" && slices.Contains([]string{"--html", "--svg", "--png"}, modes[1]):
	case len(modes) > 1 && slices.Contains([]string{"--html", "--svg", "--png"}, modes[1]):
		return &usageError{fmt.Errorf("%s with %s: plots are drawn of a replay and of --sweep; leave one of them out", modes[1], modes[0])}
	case len(modes) > 1 && modes[1] == "--decisions":
		return &usageError{fmt.Errorf("--decisions with %s: there is more than one decision for a request, or none; leave one of them out", modes[0])}
	case len(modes) > 1:
		return &usageError{fmt.Errorf("%s with %s: run replay twice, with one of them each", modes[0], modes[1])}
	}
	if f.o.Format, err = sim.NewFormat(f.format); err != nil {
		return &usageError{fmt.Errorf("--format: %w", err)}
	}
	logs := args
	if f.config == "" && (f.suggest == "" || isPolicyName(args[0])) {
		f.config, logs = args[0], args[1:]
	}
	if len(logs) == 0 {
		return &usageError{errors.New("the policy or the log is missing: write weir replay FILE LOG..., with at least one log")}
	}
	if f.suggest != "" && isShares(logs[0]) {
		return &usageError{fmt.Errorf("there is no log %s: write --suggest=%s for a share of the clients", logs[0], logs[0])}
	}
	if f.config != "" {
		if f.o.Policy, err = f.load(cmd, f.config); err != nil {
			return err
		}
	}
	switch {
	case len(f.sweeps) > 0:
		return f.sweep(cmd, logs)
	case f.suggest != "":
		return f.suggestLimits(cmd, logs)
	case f.compare != "":
		return f.comparePolicies(cmd, logs)
	}
	return f.replay(cmd, logs)
}

// isPolicyName reports whether an argument is a policy file rather than a log, where either may stand.
func isPolicyName(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// isShares reports whether an argument is no log, but what was meant for --suggest.
func isShares(name string) bool {
	for part := range strings.SplitSeq(name, ",") {
		if _, err := strconv.ParseFloat(part, 64); err != nil {
			return false
		}
	}
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// load reads a policy.
func (f *replayFlags) load(cmd *cobra.Command, name string) (policy.Policy, error) {
	file, err := loadPolicy(cmd.Context(), name, cmd.ErrOrStderr())
	if err != nil {
		return policy.Policy{}, err
	}
	noteSkippedRooms(cmd.ErrOrStderr(), &file.Policy)
	return file.Policy, nil
}

// withLogs opens the logs, and calls do while it shows the progress.
func (f *replayFlags) withLogs(cmd *cobra.Command, logs []string, do func() error) error {
	var read atomic.Int64
	total, closeAll, err := openLogs(cmd.Context(), logs, cmd.InOrStdin(), &f.o, &read)
	defer closeAll()
	if err != nil {
		return err
	}
	bar := newProgressBar(cmd.ErrOrStderr(), total, &read)
	f.o.Progress = bar.show
	defer bar.clear()
	return do()
}

func (f *replayFlags) replay(cmd *cobra.Command, logs []string) (err error) {
	f.o.Profiles = f.html != "" || f.svg != "" || f.png != ""
	if err := f.checkOutputs(append(slices.Clone(logs), f.config)); err != nil {
		return err
	}
	var report *sim.Report
	err = f.withLogs(cmd, logs, func() (err error) {
		if f.decisions != "" { // what was in the file is lost only if the logs are there
			out, createErr := os.Create(f.decisions)
			if createErr != nil {
				return fileError(createErr)
			}
			defer func() { err = errors.Join(err, out.Close()) }()
			f.o.Decisions = out
		}
		report, err = sim.Replay(cmd.Context(), f.o)
		return err
	})
	if report == nil {
		return err
	}
	drawErr := f.draw(
		func(w io.Writer) error { return weirplot.WritePage(w, report) },
		func() ([]*weirplot.Plot, error) { return weirplot.Plots(report) })
	return errors.Join(drawErr, endReplay(cmd, report, &report.Reading, report.Missing, f.asJSON, err))
}

// sweep compares combinations of parameters.
func (f *replayFlags) sweep(cmd *cobra.Command, logs []string) error {
	grid, err := sim.NewGrid(f.o.Policy, f.sweeps...)
	if err != nil {
		return &usageError{fmt.Errorf("--sweep: %w", err)}
	}
	if err := f.checkOutputs(append(slices.Clone(logs), f.config)); err != nil {
		return err
	}
	var report *sim.SweepReport
	err = f.withLogs(cmd, logs, func() (err error) {
		report, err = sim.Sweep(cmd.Context(), f.o, grid)
		return err
	})
	if report == nil {
		return err
	}
	drawErr := f.draw(
		func(w io.Writer) error { return weirplot.WriteSweepPage(w, report) },
		func() ([]*weirplot.Plot, error) { return weirplot.SweepPlots(report) })
	return errors.Join(drawErr, endReplay(cmd, report, &report.Reading, report.Missing, f.asJSON, err))
}

// suggestLimits suggests limits.
func (f *replayFlags) suggestLimits(cmd *cobra.Command, logs []string) error {
	percents, err := sim.ParsePercents(f.suggest)
	if err != nil {
		return &usageError{fmt.Errorf("--suggest: %w", err)}
	}
	var report *sim.Suggestion
	err = f.withLogs(cmd, logs, func() (err error) {
		report, err = sim.Suggest(cmd.Context(), f.o, percents)
		return err
	})
	if report == nil {
		return err
	}
	return endReplay(cmd, report, &report.Reading, nil, f.asJSON, err)
}

// comparePolicies compares the policy of --compare (A) with FILE (B).
func (f *replayFlags) comparePolicies(cmd *cobra.Command, logs []string) error {
	other := f.o.Policy
	var err error
	if f.o.Policy, err = f.load(cmd, f.compare); err != nil {
		return err
	}
	var report *sim.Comparison
	err = f.withLogs(cmd, logs, func() (err error) {
		report, err = sim.Compare(cmd.Context(), f.o, other)
		return err
	})
	if report == nil {
		return err
	}
	return endReplay(cmd, report, &report.Reading, report.Missing, f.asJSON, err)
}

// textReport is a report of package sim.
type textReport interface{ WriteText(w io.Writer) error }

// endReplay prints what a replay found; err is that of reading the logs.
func endReplay(cmd *cobra.Command, report textReport, read *sim.Reading, missing []policy.MissingPart, asJSON bool, err error) error {
	warnAboutLog(cmd, read, missing)
	if err == nil && read.Requests == 0 && read.Unparsed > 0 {
		return errNoLine // a report of zeros would look like one of clients that no limit concerns
	}
	return errors.Join(printReport(cmd, report, asJSON), err)
}

var errNoLine = errors.New("no line could be read: is this an access log? --format names formats, and takes the fields of a line, like '$remote_addr [$time_local] \"$request\" $status'")

// checkOutput checks the name of a file to be written: none that replay reads is overwritten.
func checkOutput(flag, name string, inputs []string) error {
	if name == "-" {
		return &usageError{fmt.Errorf("%s - would mix the %s with the report on standard output: name a file", flag, strings.TrimPrefix(flag, "--"))}
	}
	if info, err := os.Stat(name); err == nil {
		for _, input := range inputs {
			if in, err := os.Stat(input); err == nil && os.SameFile(info, in) {
				return &usageError{fmt.Errorf("%s %s: replay reads it as %s and would overwrite it: name another file", flag, name, input)}
			}
		}
	}
	return nil
}

// warnAboutLog prints the lines that could not be read, and the parts of keys that were never there, to stderr.
func warnAboutLog(cmd *cobra.Command, read *sim.Reading, missing []policy.MissingPart) {
	several := len(read.Formats) > 1
	if unparsed := read.Unparsed; unparsed > 0 {
		lines := "lines"
		if unparsed == 1 {
			lines = "line"
		}
		cmd.PrintErrf("%d %s could not be read; the first of them:\n", unparsed, lines)
		for _, b := range read.Samples {
			where := ""
			if several {
				where = b.Input + ", "
			}
			cmd.PrintErrf("  %sline %d: %s: %q\n", where, b.Line, b.Why, b.Text)
		}
	}
	for _, m := range missing {
		cmd.PrintErrf("warning: no request had %s, a part of the key of the limit %s: its on_missing applied to all of them\n", m.Part, m.Limit)
	}
}

// printReport prints a report to stdout.
func printReport(cmd *cobra.Command, report textReport, asJSON bool) error {
	if !asJSON {
		return report.WriteText(cmd.OutOrStdout())
	}
	return printJSON(cmd.OutOrStdout(), report)
}
