package main

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
)

// The references of reserve: each verb of Weir has a counterpart in x/time/rate.
const (
	xtimeReserve = "ReserveN"
	xtimeCancel  = "ReserveN+Cancel"
)

// reserve measures charges that are made ahead of time and given back, with work that may start at
// once and with delayed work.
func reserve(r *report) error {
	for _, delayed := range []bool{false, true} {
		for _, procs := range crews() {
			if err := r.contest(reserveContest(delayed, procs)); err != nil {
				return err
			}
		}
	}
	for _, delayed := range []bool{false, true} {
		if err := r.contest(outstandingContest(delayed)); err != nil {
			return err
		}
	}
	return nil
}

// reserveContest is one of the four settings. Only with delayed work do both do the same: without a
// delay, cancelling a reservation gives back nothing in x/time, and the charge in Weir.
func reserveContest(delayed bool, procs int) contest {
	bucket := weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: many}
	says, perSecond, burst := "without delay", rate.Limit(1e9), int(many)
	if delayed {
		bucket = weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 2}
		says, perSecond, burst = "delayed", rate.Every(time.Minute), 2
	}
	ours := func() *weir.Limiter { return limiter(bucket, !delayed) }
	theirs := func() *rate.Limiter {
		l := rate.NewLimiter(perSecond, burst)
		if delayed {
			return drained(l)
		}
		return l
	}
	return contest{
		title: says + ", " + where(procs),
		notes: []string{
			fmt.Sprintf("one limiter, shared by all goroutines; weir and x/time: %v, burst %d", bucket.Rate, bucket.Burst),
			xtimeReserve + " and " + xtimeCancel + " are of x/time",
		},
		procs:   procs,
		against: []string{xtimeReserve, xtimeCancel},
		subjects: []subject{
			{"weir Reserve", func() loop { return reserveLoop(ours()) }, allYes, nil},
			{"weir Reserve+Cancel", func() loop { return cancelLoop(ours()) }, allYes, nil},
			{"weir Reserve+Settle, 1 of 2", func() loop { return settleLoop(ours()) }, allYes, nil},
			{xtimeReserve, func() loop { return xtimeReserveLoop(theirs()) }, allYes, nil},
			{xtimeCancel, func() loop { return xtimeCancelLoop(theirs()) }, allYes, nil},
		},
	}
}

//go:noinline
func reserveLoop(l *weir.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if _, ok := l.Reserve(1, -1); ok {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func cancelLoop(l *weir.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			r, ok := l.Reserve(1, -1)
			if ok {
				yes++
			}
			r.Cancel()
		}
		return yes
	}
}

//go:noinline
func settleLoop(l *weir.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			r, ok := l.Reserve(2, -1)
			if ok {
				yes++
			}
			r.Settle(1)
		}
		return yes
	}
}

//go:noinline
func xtimeReserveLoop(l *rate.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if l.ReserveN(time.Now(), 1).OK() {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func xtimeCancelLoop(l *rate.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			r := l.ReserveN(time.Now(), 1)
			if r.OK() {
				yes++
			}
			r.Cancel()
		}
		return yes
	}
}
