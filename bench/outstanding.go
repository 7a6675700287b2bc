package main

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
)

// held is the number of outstanding reservations: as many delayed ones as Weir keeps one by one.
const held = 256

const xtimeOldest = "ReserveN, cancel the oldest"

// outstandingContest measures a Reserve and the end of one of 256 outstanding reservations. The
// first subject ends none, so that more and more are outstanding.
func outstandingContest(delayed bool) contest {
	bucket := weir.TokenBucket{Rate: weir.Rate{N: 1, Per: time.Millisecond}, Burst: many}
	says := "without delay"
	if delayed {
		says, bucket.Burst = "delayed", 1
	}
	theirs := func() *rate.Limiter {
		l := rate.NewLimiter(rate.Every(time.Millisecond), int(bucket.Burst))
		if delayed {
			return drained(l)
		}
		return l
	}
	ours := func() *weir.Limiter { return limiter(bucket, !delayed) }
	return contest{
		title: fmt.Sprintf("%d outstanding, %s", held, says),
		notes: []string{
			fmt.Sprintf("one limiter; weir and x/time: %v, burst %d", bucket.Rate, bucket.Burst),
			"each operation is a Reserve, and the end of one of those that are outstanding; the first subject ends none",
			xtimeReserve + " is of x/time",
		},
		procs:   1,
		against: []string{xtimeOldest},
		subjects: []subject{
			{"weir Reserve, ahead without an end", func() loop { return reserveLoop(ours()) }, allYes, nil},
			{"weir Reserve, Cancel the oldest", func() loop { return oldestLoop(ours(), weir.Reservation.Cancel) }, allYes, nil},
			{"weir Reserve, Cancel the newest", func() loop { return newestLoop(ours()) }, allYes, nil},
			{"weir Reserve, Settle the oldest", func() loop { return oldestLoop(ours(), used) }, allYes, nil},
			{xtimeOldest, func() loop { return xtimeOldestLoop(theirs()) }, allYes, nil},
		},
	}
}

func used(r weir.Reservation) { r.Settle(1) }

//go:noinline
func oldestLoop(l *weir.Limiter, end func(weir.Reservation)) loop {
	var ring [held]weir.Reservation
	for i := range ring {
		ring[i], _ = l.Reserve(1, -1)
	}
	i := 0
	return func(n int) (yes int) {
		for range n {
			end(ring[i%held])
			r, ok := l.Reserve(1, -1)
			if ok {
				yes++
			}
			ring[i%held] = r
			i++
		}
		return yes
	}
}

//go:noinline
func newestLoop(l *weir.Limiter) loop {
	for range held {
		l.Reserve(1, -1)
	}
	return cancelLoop(l)
}

//go:noinline
func xtimeOldestLoop(l *rate.Limiter) loop {
	var ring [held]*rate.Reservation
	for i := range ring {
		ring[i] = l.ReserveN(time.Now(), 1)
	}
	i := 0
	return func(n int) (yes int) {
		for range n {
			ring[i%held].Cancel()
			r := l.ReserveN(time.Now(), 1)
			if r.OK() {
				yes++
			}
			ring[i%held] = r
			i++
		}
		return yes
	}
}
