package proof

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestWorstWindow goes through every schedule of takes of small limits, and finds the most that any interval of a length holds. That is
// held to the limit's bound, and to the table in docs/guarantees.md, which is what it prints:
//
//	go test ./proof -run WorstWindow -v
func TestWorstWindow(t *testing.T) {
	raced.Skip(t)
	page, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	perTwo := weir.Rate{N: 1, Per: 2 * time.Second}
	for _, c := range []struct {
		limit   weir.Limit
		largest int64 // cost
		lengths []int64
		bound   func(d int64) int64
	}{
		{weir.TokenBucket{Rate: perTwo, Burst: 3}, 3, []int64{0, 1, 4, 9}, func(d int64) int64 { return 3 + d/2 }},
		{weir.IntervalBucket{Burst: 3, Refill: 2, Every: 4 * time.Second}, 3, []int64{0, 1, 4, 9}, func(d int64) int64 { return 3 + 2*up(d, 4) }},
		{weir.FixedWindow{Limit: 3, Window: 4 * time.Second}, 3, []int64{0, 1, 4, 9}, func(d int64) int64 { return touched(3, d, 4) }},
		{weir.FixedWindow{Limit: 3, Window: 4 * time.Second, Align: weir.AlignFirst}, 3, []int64{0, 1, 4, 9}, func(d int64) int64 { return touched(3, d, 4) }},
		{weir.SlidingWindow{Limit: 4, Window: 8 * time.Second, Slots: 4}, 4, []int64{0, 6, 8}, func(d int64) int64 { return upTo8(d, 4, 4) }},
		{weir.SlidingWindow{Limit: 4, Window: 8 * time.Second, Slots: 4, SlotLimit: 2}, 2, []int64{0, 6, 8}, func(d int64) int64 { return upTo8(d, 4, 2) }},
		{weir.SlidingCounter{Limit: 4, Window: 4 * time.Second}, 4, []int64{0, 1, 4, 8}, func(d int64) int64 { return 4 + d }},
		{weir.SlidingLog{Limit: 3, Window: 4 * time.Second}, 3, []int64{0, 3, 4, 9}, func(d int64) int64 { return 3 * (d/4 + 1) }},
		{weir.LeakyBucket{Rate: perTwo, Queue: 3, DelayAfter: 2}, 2, []int64{0, 1, 4, 9}, func(d int64) int64 { return 2 + 2 + d/2 }},
		{weir.SmoothBursty{Rate: perTwo, MaxBurst: 4 * time.Second}, 2, []int64{0, 1, 4, 9}, func(d int64) int64 { return 2 + d/2 + 2 }},
		{weir.WarmUp{Rate: perTwo, Period: 4 * time.Second}, 2, []int64{0, 1, 4, 9}, func(d int64) int64 { return d/2 + 2 }},
		{weir.NginxBucket{Rate: weir.PerMinute(30), Queue: 3}, 2, []int64{0, 1, 4, 9}, func(d int64) int64 { return 4 + d/2 }},
	} {
		tick := time.Second
		if _, ok := c.limit.(weir.NginxBucket); ok {
			tick = time.Millisecond // it has no larger time unit
		}
		p, err := weir.Prepare(c.limit, tick)
		if err != nil {
			t.Fatal(err)
		}
		s := schedules{p: p, second: int64(time.Second / tick), largest: c.largest, before: 10}
		var found []string
		for _, d := range c.lengths {
			most := s.most(d)
			if most > c.bound(d) {
				t.Errorf("%T%+v: %d in an interval of %d s, where the bound is %d", c.limit, c.limit, most, d, c.bound(d))
			}
			found = append(found, fmt.Sprintf("%d of %d in %d s", most, c.bound(d), d))
		}
		name, numbers, _ := strings.Cut(fmt.Sprintf("%T%+v", c.limit, c.limit), "{")
		row := fmt.Sprintf("| %s | %s | %s |", strings.TrimPrefix(name, "weir."), strings.TrimSuffix(numbers, "}"), strings.Join(found, ", "))
		t.Log(row)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/guarantees.md does not have this row:\n%s", row)
		}
	}
}

func up(a, b int64) int64 { return (a + b - 1) / b }

// touched returns the bound of consecutive windows.
func touched(limit, d, window int64) int64 {
	if d == 0 {
		return limit
	}
	return limit * (up(d, window) + 1)
}

// upTo8 is the bound of a window of 8 s in slots of 2 s.
func upTo8(d, limit, slot int64) int64 {
	if d <= 6 {
		return limit
	}
	return limit + slot
}

// schedules is all takes of a limit, at whole seconds from 0 on, in costs up to the largest.
type schedules struct {
	p       weir.Prepared
	second  int64 // in clock units
	largest int64
	before  int64 // how many seconds lie before the intervals that are compared, which begin in the last half of them
}

// most returns the most that an interval of length d has, both ends included.
func (s *schedules) most(d int64) (most int64) {
	states := map[string][]int64{"": nil}
	for now := range s.before {
		if now >= s.before/2 {
			known := map[string]int64{}
			for _, state := range states {
				most = max(most, s.from(known, state, now, now+d))
			}
		}
		states = s.reached(states, now)
	}
	return most
}

// reached returns every state that some take at now, or none, can make.
func (s *schedules) reached(states map[string][]int64, now int64) map[string][]int64 {
	all := map[string][]int64{}
	var add func([]int64)
	add = func(state []int64) {
		key := fmt.Sprint(state)
		if _, ok := all[key]; ok {
			return
		}
		all[key] = state
		for cost := int64(1); cost <= s.largest; cost++ {
			if next, ok := s.take(state, now, cost); ok {
				add(next)
			}
		}
	}
	for _, state := range states {
		add(state)
	}
	return all
}

// from returns the most that can be taken from a state until the end.
func (s *schedules) from(known map[string]int64, state []int64, now, end int64) int64 {
	if now > end {
		return 0
	}
	key := fmt.Sprint(now, state)
	if most, ok := known[key]; ok {
		return most
	}
	most := s.from(known, state, now+1, end)
	for cost := int64(1); cost <= s.largest; cost++ {
		if next, ok := s.take(state, now, cost); ok {
			most = max(most, cost+s.from(known, next, now, end))
		}
	}
	known[key] = most
	return most
}

func (s *schedules) take(state []int64, now, cost int64) ([]int64, bool) {
	next, d := s.p.Step(append([]int64(nil), state...), now*s.second, cost)
	return next, d.Allowed
}
