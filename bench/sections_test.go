package main

import (
	"testing"
	"time"
)

// TestAnswers: in every setting all subjects answer as they are to, or their contest fails.
func TestAnswers(t *testing.T) {
	var all []contest
	for _, procs := range []int{1, 4} {
		for _, yes := range []bool{true, false} {
			all = append(all, takeContest(yes, procs), limitsContest(yes, procs), reserveContest(yes, procs))
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
