package main

import (
	"math"
	"testing"
	"time"
)

// TestSubjectsDecideAsIntended: in every setting each subject admits and refuses as intended; otherwise its contest fails.
func TestSubjectsDecideAsIntended(t *testing.T) {
	var all []contest
	for _, procs := range []int{1, 4} {
		for _, yes := range []bool{true, false} {
			all = append(all, takeContest(yes, procs), reserveContest(yes, procs), observedContest(yes, procs))
			if procs > 1 {
				all = append(all, limitsContest(yes, procs))
			}
			all = append(all, concurrencyContest(yes, procs), adaptiveContest(yes, procs), bbrContest(yes, procs))
		}
	}
	all = append(all, handoverContest(4), middlewareContest(1), middlewareContest(4))
	batches, err := newBatchTable(1000)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, batches.contest(batchSize, 1), batches.contest(batchSize, 4))
	reading, err := readingContest()
	if err != nil {
		t.Fatal(err)
	}
	tokens, end, err := tokenContest(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	all = append(all, reading, tokens)
	for _, c := range all {
		t.Run(c.title, func(t *testing.T) {
			outcomes, err := c.run(2, 200*time.Microsecond)
			if err != nil {
				t.Fatal(err)
			}
			if rows := c.table(outcomes).Rows; len(rows) != len(c.subjects) {
				t.Errorf("%d rows for %d subjects", len(rows), len(c.subjects))
			}
		})
	}
}

func TestSizes(t *testing.T) {
	facts := sizes(true)
	if whole, state := facts[0].of, facts[1].of; state["TokenBucket"] != 16 || whole["TokenBucket"] < 100 || whole[xtime] < 40 || whole[xtime] > 1000 {
		t.Errorf("%v\n%v", whole, state)
	}
	if whole := sizes(false)[0].of; whole["SlidingLog"] < 16_000 {
		t.Errorf("%v", whole)
	}
	if n := limiterBytes(func() any { return new([4096]byte) }); n < 4096 || n > 5000 {
		t.Errorf("%v bytes for 4096", n)
	}
}

// TestRivals: a subject is compared with its own rivals, and the column shows the fastest.
func TestRivals(t *testing.T) {
	c := contest{
		procs:    1,
		rivals:   map[string][]string{"a": {"b", "c"}},
		facts:    []fact{{column{"size", 0}, map[string]float64{"b": 7}}},
		subjects: []subject{{"a", spin(true), either, nil}, {"b", spin(true), either, nil}, {"c", spin(true), either, nil}},
	}
	outcomes := []outcome{{perOp: []float64{6}, ops: 1}, {perOp: []float64{5}, ops: 1}, {perOp: []float64{8}, ops: 1}}
	if err := c.compare(outcomes); err != nil {
		t.Fatal(err)
	}
	rows := c.table(outcomes).Rows
	if rows[0].Values[3] != 1.2 || rows[0].Target != "<= 1 b MISSED, <= 1 c ok" || !rows[0].Missed || !math.IsNaN(rows[1].Values[3]) {
		t.Errorf("%+v", rows)
	}
	if !math.IsNaN(rows[0].Values[5]) || rows[1].Values[5] != 7 {
		t.Errorf("%+v", rows)
	}
	c.rivals["a"] = []string{"nobody"}
	if c.compare(outcomes) == nil {
		t.Error("compared with a subject that is not there")
	}
}

// TestDelayed: the delayed reservations have a delay, from the first to the last.
func TestDelayed(t *testing.T) {
	c := reserveContest(true, 1)
	if c.title != "delayed, alone" {
		t.Fatal(c.title)
	}
	for _, subject := range []string{subjectWeir, subjectPeer} {
		g, err := newGate(subject, time.Minute, 2)
		if err != nil {
			t.Fatal(err)
		}
		g.ahead(2)
		if delay, ok := g.ahead(1); !ok || delay < 59*time.Second {
			t.Errorf("%s: %v, %v", subject, delay, ok)
		}
	}
}
