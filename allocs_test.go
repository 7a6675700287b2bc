package weir_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// steady returns all limits whose state is one limit's: once with room for every request, and once
// refusing.
func steady() map[string][2]weir.Limit {
	const long = 20 * 365 * 24 * time.Hour
	fast, slow := weir.PerSecond(1e6), weir.PerDay(1)
	return map[string][2]weir.Limit{
		"TokenBucket":    {weir.TokenBucket{Rate: fast, Burst: 1e6}, weir.TokenBucket{Rate: slow, Burst: 1}},
		"large bucket":   {weir.TokenBucket{Rate: weir.PerSecond(999999937), Burst: 1e12}, weir.TokenBucket{Rate: weir.PerDay(999999937), Burst: 1}},
		"LeakyBucket":    {weir.LeakyBucket{Rate: fast, Queue: 1e6, DelayAfter: 1e6}, weir.LeakyBucket{Rate: slow, Queue: 1}},
		"NginxBucket":    {weir.NginxBucket{Rate: fast, Queue: 1e6}, weir.NginxBucket{Rate: weir.PerMinute(1)}},
		"IntervalBucket": {weir.IntervalBucket{Burst: 1e6, Refill: 10, Every: time.Microsecond}, weir.IntervalBucket{Burst: 1, Refill: 1, Every: long}},
		"large IntervalBucket": {weir.IntervalBucket{Burst: 1e15, Refill: 1e6, Every: time.Microsecond},
			weir.IntervalBucket{Burst: 1e15, Refill: 1, Every: time.Microsecond}},
		"FixedWindow":           {weir.FixedWindow{Limit: 1e9, Window: long}, weir.FixedWindow{Limit: 1, Window: long}},
		"FixedWindow, short":    {weir.FixedWindow{Limit: 1e9, Window: time.Microsecond}, weir.FixedWindow{Limit: 1, Window: long, Align: weir.AlignFirst}},
		"FixedWindow, large":    {weir.FixedWindow{Limit: 1e15, Window: time.Microsecond}, weir.FixedWindow{Limit: 1, Window: 2 * long}},
		"FixedWindow, calendar": {weir.FixedWindow{Limit: 1e9, Align: "day"}, weir.FixedWindow{Limit: 1, Align: "year"}},
		"SlidingWindow":         {weir.SlidingWindow{Limit: 1e9, Window: sec, Slots: 10}, weir.SlidingWindow{Limit: 1, Window: long, Slots: 10}},
		"SlidingCounter":        {weir.SlidingCounter{Limit: 1e9, Window: sec}, weir.SlidingCounter{Limit: 1, Window: long}},
		"large SlidingCounter":  {weir.SlidingCounter{Limit: 1e15, Window: sec}, weir.SlidingCounter{Limit: 1, Window: 2 * long}},
		"SlidingLog":            {weir.SlidingLog{Limit: 1000, Window: time.Microsecond}, weir.SlidingLog{Limit: 1, Window: long}},
		"SmoothBursty":          {weir.SmoothBursty{Rate: fast}, weir.SmoothBursty{Rate: slow}},
		"WarmUp":                {weir.WarmUp{Rate: weir.PerSecond(1e9), Period: sec}, weir.WarmUp{Rate: slow, Period: sec, ColdFactor: 2.7}},
		"WarmUp, at no rate":    {weir.WarmUp{Rate: weir.Unlimited, Period: sec}, weir.WarmUp{Rate: weir.Rate{N: 999_983, Per: long}, Period: time.Hour}},
	}
}

// TestNothingIsAllocated: a decision allocates nothing, for every algorithm and every kind of
// holder.
func TestNothingIsAllocated(t *testing.T) {
	raced.Skip(t)
	for name, pair := range steady() {
		for i, limit := range pair {
			t.Run(name+[]string{"", ", refusing"}[i], func(t *testing.T) {
				l, err := weir.New(limit)
				if err != nil {
					t.Fatal(err)
				}
				p, err := weir.Prepare(limit, 1)
				if err != nil {
					t.Fatal(err)
				}
				base := int64(0)
				if p.Wall() {
					base = time.Now().UnixNano()
				}
				start := time.Now()
				state, _ := p.Step(nil, base, 1) // the first call of some limits makes their state
				for verb, call := range map[string]func(){
					"Take":             func() { l.Take(1) },
					"Take of too much": func() { l.Take(1 << 62) },
					"Peek":             func() { l.Peek(1) },
					"Reserve and Cancel": func() {
						r, _ := l.Reserve(1, 0)
						r.Cancel()
					},
					"Reserve and Settle": func() {
						r, _ := l.Reserve(2, 0)
						r.Settle(1)
					},
					"Step":      func() { state, _ = p.Step(state, base+int64(time.Since(start)), 1) },
					"Step back": func() { state, _ = p.Step(state, base+int64(time.Since(start))-1000, 1) },
					"Peek of a state": func() {
						p.Peek(state, base+int64(time.Since(start)), 1)
					},
				} {
					for range 3000 { // until maps and rings have grown
						call()
					}
					if n := testing.AllocsPerRun(1000, call); n != 0 {
						t.Errorf("%s: %v allocations", verb, n)
					}
				}
			})
		}
	}
}
