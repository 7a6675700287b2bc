package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestWake: every waiter is served, and none at a Weir limiter before its exact turn. A token takes
// a millisecond, so that a busy machine, with the race detector, charges faster than tokens refill.
// The job repeats itself with more time to gather until all have gathered.
func TestWake(t *testing.T) {
	for _, j := range []job{
		{Kind: "wake", Subject: subjectWeir, N: 300, Burst: 1, Per: time.Millisecond, Ahead: 300 * time.Millisecond},
		{Kind: "wake", Subject: subjectWeir, N: 300, Burst: 100, Ahead: 300 * time.Millisecond},
		{Kind: "wake", Subject: subjectPeer, N: 300, Burst: 100, Ahead: 300 * time.Millisecond},
	} {
		v, err := j.apart()
		if err != nil {
			t.Errorf("%+v: %v", j, err)
			continue
		}
		ideal := 0.003
		if j.Per > 0 {
			ideal = 0.3
		}
		if v["ideal"] != ideal || v["took"] <= 0 || v["p50"] > v["p99"] || v["p99"] > v["max"] || v["least"] > v["p50"] {
			t.Errorf("%+v: %v", j, v)
		}
		if j.Subject == subjectWeir && (v["early"] != 0 || v["least"] < 0 || v["stack"] <= 0) {
			t.Errorf("%+v: %v", j, v)
		}
	}
}

// TestOwing: a limiter whose charging was interrupted follows the schedule of its last charge.
func TestOwing(t *testing.T) {
	for _, subject := range []string{subjectWeir, subjectPeer} {
		begun := time.Now()
		g, start, ahead, err := owing(job{Subject: subject, Burst: 10, Ahead: 50 * time.Millisecond}, 100*time.Microsecond)
		if err != nil || ahead < 500 || ahead%10 != 0 || start.Before(begun) {
			t.Fatalf("%s: %d ahead from %v, %v", subject, ahead, start.Sub(begun), err)
		}
		before := time.Now()
		delay, ok := g.ahead(10)
		due := start.Add(time.Duration(ahead) * 100 * time.Microsecond)
		if promised := time.Now().Add(delay); !ok || due.Before(before.Add(delay-tolerance)) || due.After(promised) {
			t.Errorf("%s: the next ten are due at %v, and promised at %v", subject, due.Sub(begun), promised.Sub(begun))
		}
	}
	if _, _, _, err := owing(job{Subject: "nobody"}, 1); err == nil {
		t.Error("an unknown subject")
	}
}

func TestBlocked(t *testing.T) {
	v, err := job{Kind: "wake", Subject: subjectBare, N: 1000}.do()
	if err != nil || v["stack"] < 1000 || v["heap"] <= 0 {
		t.Errorf("%v, %v", v, err)
	}
}

// TestTooLate: a crowd that gathers for longer than the time ahead is not measured.
func TestTooLate(t *testing.T) {
	v, err := job{Kind: "wake", Subject: subjectWeir, N: 1000, Burst: 1, Ahead: time.Millisecond}.do()
	if err != nil || v["late"] != 1 || len(v) != 1 {
		t.Errorf("%v, %v", v, err)
	}
}

func TestLeave(t *testing.T) {
	for _, subject := range []string{subjectBare, subjectWeir, subjectPeer} {
		v, err := job{Kind: "leave", Subject: subject, N: 40, Burst: 1}.do()
		if err != nil || v["left"] != 20 || v["p50"] <= 0 || v["p99"] < v["p50"] {
			t.Errorf("%s: %v, %v", subject, v, err)
		}
	}
}

// TestApart runs a job in another process, twice.
func TestApart(t *testing.T) {
	jobs := []job{{Kind: "leave", Subject: subjectWeir, N: 10, Burst: 1}, {Kind: "leave", Subject: subjectBare, N: 6, Burst: 1}}
	found, err := apart(jobs, 2)
	if err != nil || found[0]["left"] != 5 || found[1]["left"] != 3 {
		t.Errorf("%v, %v", found, err)
	}
	for _, bad := range []job{{Kind: "nap"}, {Kind: "wake", Subject: "nobody", Burst: 1}, {Kind: "leave", Subject: "nobody"}, {Kind: "keys"}} {
		if _, err := bad.do(); err == nil {
			t.Errorf("%+v was done", bad)
		}
	}
	var stderr strings.Builder
	if code := serveJob(`{"Kind":"nap"}`, &stderr, &stderr); code != 1 || !strings.Contains(stderr.String(), `no job "nap"`) {
		t.Errorf("%d, %q", code, stderr.String())
	}
}

// TestWaitTables: a missing figure leaves an empty cell, and no other.
func TestWaitTables(t *testing.T) {
	names := []string{"bare", "one", "gone"}
	found := []values{{"heap": 10, "stack": 20, "sys": 50}, {"heap": 15, "stack": 40, "sys": 60, "p50": 7}, {}}
	var b strings.Builder
	waiterMemory(names, found).print(&b)
	for _, want := range []string{
		"\n  bare    10     20          30          50\n",
		"\n  one     15     40          55     25   60         10\n",
		"\n  gone\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if w := wakeTimes(names[1:], found[1:]); len(w.Rows) != 2 || w.Rows[0].Values[2] != 7 || !math.IsNaN(w.Rows[1].Values[2]) {
		t.Errorf("%+v", w.Rows)
	}
}
