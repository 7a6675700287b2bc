package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain lets the tests be the other process of a job, or a bare proxy.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == jobWord {
		os.Exit(serveJob(os.Args[2], os.Stdout, os.Stderr))
	}
	if len(os.Args) == 3 && os.Args[1] == bareWord {
		os.Exit(serveBare(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	var out strings.Builder
	if err := run([]string{"-rounds", "1", "-round", "20us", "-json", file, "reserve", "take"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rounds   1,", "GOMAXPROCS", "golang.org/x/time v",
		"\nreserve: without delay, alone\n", "\nreserve: delayed, alone\n", "\ntake: admitted, alone\n", "\ntake: refused, alone\n",
		"lines with a target missed it",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if i := strings.Index(out.String(), "take:"); i < strings.Index(out.String(), "reserve:") {
		t.Error("not in the order in which they were named")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var saved struct {
		Machine machine
		Rows    []record
	}
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	if saved.Machine.Go == "" || saved.Machine.Round != "20µs" || len(saved.Rows) == 0 || saved.Rows[0].Values["ns/op"] <= 0 ||
		!strings.Contains(string(text), "<= 0.45 x/time") {
		t.Errorf("%s", text)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"tkae"}, {"-rounds", "0"}, {"-round", "0s"}, {"-colour"}} {
		var stderr strings.Builder
		if err := run(args, io.Discard, &stderr); !errors.Is(err, errUsage) || stderr.Len() == 0 {
			t.Errorf("%v: %v, %q", args, err, stderr.String())
		}
	}
	var stderr strings.Builder
	if err := run([]string{"-h"}, io.Discard, &stderr); err != nil || !strings.Contains(stderr.String(), "keyed") {
		t.Errorf("%v, %q", err, stderr.String())
	}
}

func TestMachine(t *testing.T) {
	m := thisMachine(3, time.Second)
	if m.Go == "" || m.GOMAXPROCS < 1 || m.CPUs < 1 || m.Rounds != 3 || m.Round != "1s" {
		t.Errorf("%+v", m)
	}
	const info = "processor\t: 0\nmodel name\t: A CPU @ 2: fast\nmodel name\t: another\n"
	if got := fieldOf(strings.NewReader(info), "model name"); got != "A CPU @ 2: fast" {
		t.Errorf("%q", got)
	}
	if got := fieldOf(strings.NewReader(info), "flags"); got != "unknown" {
		t.Errorf("%q", got)
	}
}

func TestRepeats(t *testing.T) {
	for rounds, want := range map[int]int{1: 1, 3: 1, 12: 2, 31: 5, 1000: 5} {
		if got := (&report{rounds: rounds}).repeats(); got != want {
			t.Errorf("%d rounds: %d repeats, want %d", rounds, got, want)
		}
	}
}

// TestDirectOf: what a program is compared with is named, and not what that needs.
func TestDirectOf(t *testing.T) {
	direct := directOf("module m\n\ngo 1.26.0\n\nrequire a.example/one v1.2.3\n\nrequire (\n\tb.example/two v0.1.0\n\tc.example/three v1.0.0 // indirect\n)\n\nreplace b.example/two => ../two\n")
	if len(direct) != 2 || !direct["a.example/one"] || !direct["b.example/two"] {
		t.Error(direct)
	}
	if direct := directOf(goMod); !direct["golang.org/x/time"] || direct["github.com/nats-io/nkeys"] {
		t.Error(direct)
	}
}
