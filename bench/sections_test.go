package main

import (
	"math"
	"testing"
	"time"
)

// TestAnswers: in every setting all subjects answer as they are to, or their contest fails.
func TestAnswers(t *testing.T) {
	var all []contest
	for _, procs := range []int{1, 4} {
		for _, yes := range []bool{true, false} {
			all = append(all, takeContest(yes, procs), reserveContest(yes, procs))
			if procs > 1 {
				all = append(all, limitsContest(yes, procs))
			}
		}
		k, err := keyedContest(100, procs)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
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

// TestRivals: a subject is compared with its rivals only, and the column is about the fastest.
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

// TestDelayed: the reservations that are called delayed are, from the first to the last.
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

func TestHotKey(t *testing.T) {
	const keys = 50
	texts := map[string]bool{}
	for i := range keys {
		texts[keyText(i)] = true
	}
	if len(texts) != keys || keyText(0xab) != "user-000000ab" {
		t.Fatalf("%d texts, %s", len(texts), keyText(0xab))
	}
	k := newHotKey(keys)
	seen := map[string]int{}
	for range 100 * keys {
		text := string([]byte(k.next())) // a copy: the next one overwrites it
		if !texts[text] {
			t.Fatalf("%q is not one of the keys", text)
		}
		seen[text]++
	}
	for text := range texts {
		if n := seen[text]; n < 40 || n > 200 {
			t.Errorf("%s was taken %d times of about 100", text, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { k.next() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestKeysAreKept: the text in the buffer never gets into a table.
func TestKeysAreKept(t *testing.T) {
	const keys = 20
	for _, name := range []string{weirTable, syncMapTable, mutexMapTable} {
		table, err := newKeyTable(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range keys {
			table.enter(keyText(i))
		}
		if yes := table.loop(keys)(1000); yes != 1000 {
			t.Errorf("%s: %d of 1000 admitted", name, yes)
		}
		n := 0
		switch k := table.(type) {
		case weirKeys:
			n = k.l.Len()
		case *syncMapKeys:
			k.limiters.Range(func(any, any) bool { n++; return true })
		case *mutexMapKeys:
			n = len(k.limiters)
		}
		if n != keys {
			t.Errorf("%s: %d keys, want %d", name, n, keys)
		}
	}
	if _, err := newKeyTable("drawer"); err == nil {
		t.Error("there is a drawer")
	}
}
