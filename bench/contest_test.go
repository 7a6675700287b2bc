package main

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// spin is an operation that takes a while and returns yes or no.
func spin(yes bool) func() loop {
	return func() loop {
		return func(n int) int {
			for range n {
				runtime.Gosched()
			}
			if yes {
				return n
			}
			return 0
		}
	}
}

func TestContest(t *testing.T) {
	fresh := 0
	c := contest{
		title:   "spinning",
		procs:   1,
		against: []string{"b"},
		subjects: []subject{
			{"a", func() loop { fresh++; return spin(true)() }, allYes, nil},
			{"b", spin(false), allNo, nil},
			{"c", spin(true), either, nil},
		},
	}
	const rounds = 7
	before := fresh
	outcomes, err := c.run(rounds, 100*time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	if fresh-before <= rounds {
		t.Errorf("a state for %d measurements of %d and their calibration", fresh-before, rounds)
	}
	for i, o := range outcomes {
		if len(o.perOp) != rounds || len(o.ratios["b"]) != rounds || o.ops == 0 {
			t.Fatalf("%d: %+v", i, o)
		}
		for r, ratio := range o.ratios["b"] {
			if want := o.perOp[r] / outcomes[1].perOp[r]; ratio != want {
				t.Errorf("%d, round %d: ratio %v, want %v", i, r, ratio, want)
			}
		}
	}
}

// TestWrongDecisions: calls with other decisions than the subject should make give an error, and no
// figure.
func TestWrongDecisions(t *testing.T) {
	for _, c := range []struct {
		yes  bool
		says answers
		want string
	}{
		{false, allYes, "were refused, and the limit should admit all"},
		{true, allNo, "were admitted, and the limit should refuse nearly all"},
	} {
		_, err := contest{title: "it", procs: 2, subjects: []subject{{"a", spin(c.yes), c.says, nil}}}.run(1, time.Microsecond)
		if err == nil || !strings.Contains(err.Error(), "it: a: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v", err)
		}
	}
	_, err := contest{procs: 1, against: []string{"b"}, subjects: []subject{{"a", spin(true), allYes, nil}}}.run(1, time.Microsecond)
	if err == nil {
		t.Error("compared with a subject that is not there")
	}
}

// TestAllocations: the table shows the allocations of each subject.
func TestAllocations(t *testing.T) {
	var heap atomic.Pointer[[64]byte]
	c := contest{procs: 2, subjects: []subject{
		{"two each", func() loop {
			return func(n int) int {
				for range n {
					a, b := new([64]byte), new([64]byte)
					heap.Store(a)
					heap.Store(b)
				}
				return n
			}
		}, either, []target{{"", 0}}},
		{"none", spin(true), either, []target{{"", 0}}},
	}}
	outcomes, err := c.run(3, 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	rows := c.table(outcomes).Rows
	last := len(rows[0].Values) - 1
	if got := number(rows[0].Values[last], 2); got != "2.00" || !rows[0].Missed {
		t.Errorf("%s allocations, %q", got, rows[0].Target)
	}
	if got := number(rows[1].Values[last], 2); got != "0.00" || rows[1].Missed {
		t.Errorf("%s allocations, %q", got, rows[1].Target)
	}
}

func TestTurns(t *testing.T) {
	for n := 1; n <= 11; n++ {
		after := make([]map[int]bool, n)
		first := map[int]bool{}
		for r := range 2 * n {
			order := turns(r, n)
			if sorted := slices.Sorted(slices.Values(order)); len(sorted) != n || sorted[0] != 0 || len(slices.Compact(sorted)) != n {
				t.Fatalf("round %d of %d: %v", r, n, order)
			}
			first[order[0]] = true
			for i := 1; i < n; i++ {
				if after[order[i]] == nil {
					after[order[i]] = map[int]bool{}
				}
				after[order[i]][order[i-1]] = true
			}
		}
		if len(first) != n {
			t.Errorf("%d subjects: only %v come first", n, first)
		}
		for i, before := range after {
			if n > 2 && len(before) < 2 {
				t.Errorf("%d subjects: %d comes only after %v", n, i, before)
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	o := outcome{ratios: map[string][]float64{"floor": {1.2, 1.3, 9}, "peer": {0.6, 0.6, 0.1}}, ops: 1000, allocs: 4}
	for _, c := range []struct {
		targets []target
		text    string
		missed  bool
	}{
		{nil, "", false},
		{[]target{{"floor", 1.3}}, "<= 1.3 floor ok", false},
		{[]target{{"floor", 1.3}, {"peer", 0.5}, {"", 0}}, "<= 1.3 floor ok, <= 0.5 peer MISSED, <= 0 allocs ok", true},
		{[]target{{"nobody", 1}}, "<= 1 nobody MISSED", true},
	} {
		if text, missed := o.verdict(c.targets); text != c.text || missed != c.missed {
			t.Errorf("%v: %q, %v", c.targets, text, missed)
		}
	}
	if o.allocs = 5; math.Abs(o.allocsPerOp()-0.005) > 1e-12 {
		t.Error(o.allocsPerOp())
	}
	if text, missed := o.verdict([]target{{"", 0}}); !missed {
		t.Errorf("an allocation in 200 operations is printed as 0.01: %q", text)
	}
}
