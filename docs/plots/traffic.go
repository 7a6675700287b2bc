package main

import (
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// plot is a limit and the name of its picture.
type plot struct {
	file  string
	title string
	limit weir.Limit
}

// window is what all limits are compared over: each lets 10 pass in it, in the long run.
const window = 2 * time.Second

func plots() []plot {
	five := weir.PerSecond(5)
	return []plot{
		{"token_bucket.svg", "TokenBucket: 5/s, burst 10", weir.TokenBucket{Rate: five, Burst: 10}},
		{"leaky_bucket.svg", "LeakyBucket: 5/s, queue 10", weir.LeakyBucket{Rate: five, Queue: 10}},
		{"interval_bucket.svg", "IntervalBucket: burst 10, refill 10 every 2s", weir.IntervalBucket{Burst: 10, Refill: 10, Every: window}},
		{"fixed_window.svg", "FixedWindow: 10 in 2s", weir.FixedWindow{Limit: 10, Window: window}},
		{"sliding_window.svg", "SlidingWindow: 10 in 2s, 4 slots of at most 4", weir.SlidingWindow{Limit: 10, Window: window, Slots: 4, SlotLimit: 4}},
		{"sliding_counter.svg", "SlidingCounter: 10 in 2s", weir.SlidingCounter{Limit: 10, Window: window}},
		{"sliding_log.svg", "SlidingLog: 10 in 2s", weir.SlidingLog{Limit: 10, Window: window}},
		{"smooth_bursty.svg", "SmoothBursty: 5/s, stored for 2s", weir.SmoothBursty{Rate: five, MaxBurst: window}},
		{"warm_up.svg", "WarmUp: 5/s, warm after 3s", weir.WarmUp{Rate: five, Period: 3 * time.Second}},
	}
}

// A phase is a part of the traffic, which is the same for all limits.
type phase struct {
	name        string
	from, until time.Duration
	every       time.Duration // from one request to the next; 0 for a burst
	burst       []burst
}

// burst is requests that come at once.
type burst struct {
	at time.Duration
	n  int
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

var traffic = []phase{
	{name: "8/s: over the limit", from: 0, until: 4 * sec, every: 125 * ms},
	{name: "two bursts", from: 5700 * ms, until: 6300 * ms, burst: []burst{{5800 * ms, 16}, {6100 * ms, 10}}},
	{name: "4/s: below it", from: 7500 * ms, until: 10500 * ms, every: 250 * ms},
	{name: "a burst after idling, and 8/s", from: 14 * sec, until: 16 * sec, every: 125 * ms, burst: []burst{{14 * sec, 12}}},
}

// end is how long the traffic is watched.
const end = 16 * sec

// arrivals are the times at which requests come, in order.
func arrivals() (all []time.Duration) {
	for _, p := range traffic {
		for _, b := range p.burst {
			all = append(all, slices.Repeat([]time.Duration{b.at}, b.n)...)
		}
		if p.every > 0 {
			for t := p.from; t < p.until; t += p.every {
				all = append(all, t)
			}
		}
	}
	slices.Sort(all)
	return all
}

// A request is what became of one.
type request struct {
	at      time.Duration
	refused bool
	goes    time.Duration // when it goes, where it was not refused
}

// level is what a limit has left from a time on, or how many wait.
type level struct {
	at   time.Duration
	left int64
}

// run asks a limit about the traffic. A LeakyBucket's requests wait in its queue, and its levels
// are how many do.
func run(l weir.Limit) (requests []request, levels []level, err error) {
	var now time.Duration
	lim, err := weir.New(l, weir.WithClock(func() int64 { return int64(now) }))
	if err != nil {
		return nil, nil, err
	}
	waits := rules.KindOf(l).Queues
	look := func() {
		left := lim.Peek(0).Remaining
		if waits {
			left = int64(len(slices.DeleteFunc(slices.Clone(requests), func(r request) bool { return r.refused || r.goes <= now })))
		}
		if len(levels) == 0 || levels[len(levels)-1].left != left {
			levels = append(levels, level{now, left})
		}
	}
	coming := arrivals()
	for t := time.Duration(0); t < end; t += 5 * ms {
		now = t
		look()
		for len(coming) > 0 && coming[0] <= t {
			coming = coming[1:]
			r := request{at: t, goes: t}
			if waits {
				reserved, ok := lim.Reserve(1, -1)
				r.refused, r.goes = !ok, t+reserved.Delay()
			} else {
				r.refused = !lim.Allow()
			}
			requests = append(requests, r)
			look()
		}
	}
	return requests, levels, nil
}

// most is the largest number of requests that go within a closed interval as long as the window,
// less its last moment.
func most(requests []request) (n int) {
	var goes []time.Duration
	for _, r := range requests {
		if !r.refused {
			goes = append(goes, r.goes)
		}
	}
	for i, first := range goes {
		k := i
		for k < len(goes) && goes[k] < first+window {
			k++
		}
		n = max(n, k-i)
	}
	return n
}
