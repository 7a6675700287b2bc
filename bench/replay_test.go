package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/sim"
)

// TestLog: the log is the same each time, in order or shuffled, and few clients send most of it.
func TestLog(t *testing.T) {
	const lines = 5000
	logs := map[bool][]string{}
	for _, shuffled := range []bool{false, true} {
		var once, again bytes.Buffer
		if err := writeLog(&once, lines, shuffled); err != nil {
			t.Fatal(err)
		}
		if err := writeLog(&again, lines, shuffled); err != nil || once.String() != again.String() {
			t.Errorf("another log, %v", err)
		}
		logs[shuffled] = strings.Split(strings.TrimSuffix(once.String(), "\n"), "\n")
	}
	clients := map[string]int{}
	var last int64
	for _, line := range logs[false] {
		e, err := sim.ParseLine(line)
		if err != nil || e.Time < last {
			t.Fatalf("%s: %v", line, err)
		}
		last = e.Time
		clients[e.Client]++
	}
	counts := slices.Sorted(func(yield func(int) bool) {
		for _, n := range clients {
			if !yield(n) {
				return
			}
		}
	})
	if most := counts[len(counts)-1]; len(counts) < 100 || most < lines/50 || most > lines/2 {
		t.Errorf("%d clients, of whom one has %d of %d lines", len(counts), most, lines)
	}
	if slices.Equal(logs[false], logs[true]) {
		t.Error("it is not shuffled")
	}
	slices.Sort(logs[true])
	if slices.Sort(logs[false]); !slices.Equal(logs[false], logs[true]) {
		t.Error("shuffled, it has other lines")
	}
}

// TestReplay runs the section on a short log.
func TestReplay(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the CPU time of a process is read from /proc")
	}
	var out strings.Builder
	r := &report{rounds: 1, out: &out}
	if err := replayLog(r, 20_000); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GOMAXPROCS 1\n", "replay, shuffled, --decisions", "parsing alone", "deciding alone", fmt.Sprintf(">= %d a CPU s ", replayTarget)} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	for _, row := range r.tables[0].Rows {
		if row.Values[0] <= 0 {
			t.Errorf("%+v", row)
		}
	}
	for _, j := range []job{{Kind: "replay"}, {Kind: "replay", Subject: replayWhole, File: "nowhere"}, {Kind: "replay", Subject: replayParse, File: "nowhere"}} {
		if _, err := j.do(); err == nil {
			t.Errorf("%+v was done", j)
		}
	}
}

func TestCPUTime(t *testing.T) {
	const line = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 27 8 9 20 0 1 0 100"
	if d, err := parseStat(line); err != nil || d != 1770*time.Millisecond {
		t.Errorf("%v, %v", d, err)
	}
	for _, bad := range []string{"", "7 (x) S 1", strings.Replace(line, "150", "x", 1), strings.Replace(line, "27", "x", 1)} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q has a time", bad)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	own, err := cpuTime(os.Getpid())
	if err != nil || own <= 0 {
		t.Errorf("%v, %v", own, err)
	}
	if _, err := cpuTime(-1); err == nil {
		t.Error("nobody has a CPU time")
	}
}

func TestAtLeast(t *testing.T) {
	for found, want := range map[float64]string{0.6: ">= 0.6 x ok", 0.59: ">= 0.6 x MISSED"} {
		if text, missed := atLeast(found, 0.6, "x"); text != want || missed != strings.HasSuffix(want, "MISSED") {
			t.Errorf("%v: %s, %v", found, text, missed)
		}
	}
}
