package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/vclock"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/sim"
)

// Subjects of the job replay.
const (
	replayWhole     = "whole"
	replayDecisions = "decisions" // everything, and a line for each request
	replayParse     = "parse"
	replayDecide    = "decide"
)

// The targets, in requests per second of processor time: of a log that is in order, without a line for each decision, and of the
// others. replayBoth is how many times as fast the first one is with two cores as with one.
const (
	replayOrdered = 2_500_000
	replayTarget  = 1_000_000
	replayBoth    = 1.8
)

// replayPolicy returns a policy with one limit per client. Some clients are far below it, and some
// far above.
func replayPolicy() policy.Policy {
	return policy.Policy{
		Limits: []policy.Limit{{Name: "per-client", Key: []string{"client.ip"}, Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 20}}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"per-client"}}},
	}
}

// replay measures how fast a log is replayed, on one core and on all.
func replay(r *report) error { return replayLog(r, logLines) }

func replayLog(r *report, lines int) error {
	dir, err := os.MkdirTemp("", "weir-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ordered, shuffled := filepath.Join(dir, "ordered.log"), filepath.Join(dir, "shuffled.log")
	for name, shuffle := range map[string]bool{ordered: false, shuffled: true} {
		if err := createLog(name, lines, shuffle); err != nil {
			return err
		}
	}
	crews := []int{1}
	if n := runtime.GOMAXPROCS(0); n > 1 {
		crews = append(crews, n)
	}
	alone := 0.0 // requests/s in order, with one core
	for _, procs := range crews {
		if alone, err = replayTable(r, lines, procs, alone, ordered, shuffled); err != nil {
			return err
		}
	}
	return nil
}

func createLog(name string, lines int, shuffled bool) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := writeLog(f, lines, shuffled); err != nil {
		return err
	}
	return f.Close()
}

// replayTable measures with a number of threads, and returns the requests/s of a log in order. alone is that with one; 0 if this is
// the one.
func replayTable(r *report, lines, procs int, alone float64, ordered, shuffled string) (rate float64, err error) {
	names := []string{"replay, in order", "replay, shuffled", "replay, in order, --decisions", "replay, shuffled, --decisions", "parsing alone", "deciding alone"}
	jobs := []job{
		{Subject: replayWhole, File: ordered}, {Subject: replayWhole, File: shuffled},
		{Subject: replayDecisions, File: ordered}, {Subject: replayDecisions, File: shuffled},
		{Subject: replayParse, File: ordered}, {Subject: replayDecide, File: ordered},
	}
	for i := range jobs {
		jobs[i].Kind, jobs[i].N, jobs[i].Procs = "replay", lines, procs
	}
	found, err := apart(jobs, r.repeats())
	if err != nil {
		return 0, err
	}
	t := table{
		Title: fmt.Sprintf("%d requests of %d clients through one limit, GOMAXPROCS %d", lines, logClients, procs),
		Notes: []string{
			"replay: all that weir replay does with a file: reading, sorting, parsing, deciding on the virtual clock, counting",
			"parsing alone: each line, from memory; deciding alone: what was parsed before, through the engine and its clock",
			"CPU is user and system time of the whole process while it was at work",
		},
		Columns: []column{{"requests/s", 0}, {"requests/CPU s", 0}, {"CPU ns each", 0}, {"allocs each", 2}, {"bytes each", 0}},
	}
	for i, v := range found {
		row := v.row(names[i], "rate", "perCPU", "cpu", "allocs", "bytes")
		switch s := jobs[i].Subject; {
		case i == 0 && procs == 2 && alone > 0:
			row.Target, row.Missed = atLeast(v.get("rate")/alone, replayBoth, "times one core")
		case i == 0:
			row.Target, row.Missed = atLeast(v.get("perCPU"), replayOrdered, "a CPU s")
		case s == replayWhole || s == replayDecisions:
			row.Target, row.Missed = atLeast(v.get("perCPU"), replayTarget, "a CPU s")
		}
		t.Rows = append(t.Rows, row)
	}
	r.add(t)
	return found[0].get("rate"), nil
}

// replayed does one of the subjects over a log of N lines.
func replayed(j job) (values, error) {
	switch j.Subject {
	case replayWhole, replayDecisions:
		return replayFile(j)
	case replayParse:
		return parseLog(j)
	case replayDecide:
		return decideLog(j)
	}
	return nil, fmt.Errorf("there is no %q in replay", j.Subject)
}

// replayFile replays a file as the command does, from after the policy is read until before the
// report is printed.
func replayFile(j job) (values, error) {
	f, err := os.Open(j.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := sim.Options{Policy: replayPolicy(), Inputs: []sim.Input{{Name: j.File, R: f}}}
	if j.Subject == replayDecisions {
		o.Decisions = io.Discard
	}
	return j.effort(func() error {
		report, err := sim.Replay(context.Background(), o)
		switch {
		case err != nil:
			return err
		case report.Requests != int64(j.N) || report.Allowed == 0 || report.Limited == 0:
			return fmt.Errorf("of %d lines %d were requests, %d were admitted and %d refused", j.N, report.Requests, report.Allowed, report.Limited)
		}
		return nil
	})
}

// parseLog parses the lines of a log that is in memory.
func parseLog(j job) (values, error) {
	lines, err := readLog(j.File)
	if err != nil {
		return nil, err
	}
	return j.effort(func() error {
		for _, line := range lines {
			if _, err := sim.ParseLine(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// decideLog decides about requests that are in memory.
func decideLog(j job) (values, error) {
	lines, err := readLog(j.File)
	if err != nil {
		return nil, err
	}
	times, requests := make([]int64, len(lines)), make([]policy.Request, len(lines))
	for i, line := range lines {
		e, err := sim.ParseLine(line)
		if err != nil {
			return nil, err
		}
		path, query, _ := strings.Cut(e.Target, "?")
		times[i] = e.Time
		requests[i] = policy.Request{Method: e.Method, Path: path, Query: query, Client: policy.ClientKeyOf(e.Client)}
	}
	clock := new(vclock.Clock)
	engine, err := policy.New(replayPolicy(), policy.Options{
		Clock:  clock.Now,
		Timers: func(d time.Duration, f func()) weir.Timer { return clock.AfterFunc(d, f) },
	})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	return j.effort(func() error {
		var counts [policy.Invalid + 1]int
		for i, req := range requests {
			clock.Set(times[i])
			counts[engine.Decide(req).Outcome]++
		}
		if counts[policy.Allow] == 0 || counts[policy.Deny] == 0 || counts[policy.Allow]+counts[policy.Deny] != j.N {
			return fmt.Errorf("of %d requests these were the outcomes: %v", j.N, counts)
		}
		return nil
	})
}

// readLog returns the lines of a file.
func readLog(name string) ([]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte("\n"))), "\n"), nil
}

// effort measures the time of N operations, once.
func (j job) effort(do func() error) (values, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, err := ownCPUTime()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	spent, err := ownCPUTime()
	if err != nil {
		return nil, err
	}
	spent -= cpu
	runtime.ReadMemStats(&after)
	n := float64(j.N)
	return values{
		"rate":   n / took.Seconds(),
		"perCPU": n / spent.Seconds(),
		"cpu":    float64(spent.Nanoseconds()) / n,
		"allocs": float64(after.Mallocs-before.Mallocs) / n,
		"bytes":  float64(after.TotalAlloc-before.TotalAlloc) / n,
	}, nil
}
