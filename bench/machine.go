package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A machine describes where and with which versions the figures were measured. They are valid only
// for it.
type machine struct {
	Go         string   `json:"go"`
	OS         string   `json:"os"`
	CPU        string   `json:"cpu"`
	CPUs       int      `json:"cpus"`
	GOMAXPROCS int      `json:"gomaxprocs"`
	Load       string   `json:"load"` // load averages of 1, 5 and 15 minutes before the measurements
	Peers      []string `json:"peers"`
	Rounds     int      `json:"rounds"`
	Round      string   `json:"round"`
}

// thisMachine reads the machine's description.
func thisMachine(rounds int, round time.Duration) machine {
	m := machine{
		Go:         runtime.Version(),
		OS:         runtime.GOOS + "/" + runtime.GOARCH,
		CPU:        field("/proc/cpuinfo", "model name"),
		CPUs:       runtime.NumCPU(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		Load:       "unknown",
		Rounds:     rounds,
		Round:      round.String(),
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		direct := directOf(goMod)
		for _, dep := range info.Deps {
			if direct[dep.Path] && !strings.HasPrefix(dep.Path, "github.com/weirflow/") {
				m.Peers = append(m.Peers, dep.Path+" "+dep.Version)
			}
		}
	}
	return m
}

//go:embed go.mod
var goMod string

// directOf returns the modules that a go.mod requires for its own code.
func directOf(text string) map[string]bool {
	direct := map[string]bool{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require ")); len(fields) == 2 && strings.HasPrefix(fields[1], "v") {
			direct[fields[0]] = true
		}
	}
	return direct
}

// field returns a field of a file in /proc; "unknown" if it has none.
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	return fieldOf(f, name)
}

// fieldOf reads lines of the form "name : value".
func fieldOf(r io.Reader, name string) string {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if before, after, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(before) == name {
			return strings.TrimSpace(after)
		}
	}
	return "unknown"
}

// print prints how the following figures were measured.
func (m machine) print(w io.Writer) {
	fmt.Fprintf(w, "machine  %s, %d CPUs, load %s\n", m.CPU, m.CPUs, m.Load)
	fmt.Fprintf(w, "go       %s %s, GOMAXPROCS %d; %s\n", m.Go, m.OS, m.GOMAXPROCS, strings.Join(m.Peers, ", "))
	fmt.Fprintf(w, "rounds   %d, in one process; in a round every subject of a table runs once, for about %s,\n", m.Rounds, m.Round)
	fmt.Fprintln(w, "         after a collection, each round in another order; how many operations that takes is calibrated once for each")
	fmt.Fprintln(w, "ns/op    time on the wall / operations of all goroutines: the median of the rounds, and their percentiles p10 and p90")
	fmt.Fprintln(w, "/ NAME   the subject's ns/op divided by that of NAME in the same round: the median of the rounds")
}
