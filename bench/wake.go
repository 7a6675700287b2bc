package main

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// wakePer is the time from one token to the next: 100,000 a second.
	wakePer = 10 * time.Microsecond
	// headStart is how long before the first turn a crowd begins to gather; longer where that turns
	// out to be too short.
	headStart = 2 * time.Second
	// tolerance is how far a limiter's schedule may differ from ours.
	tolerance = 200 * time.Microsecond
)

// wake lets N goroutines wait at one limiter until each has had its turn. It measures the memory of
// a waiter, and how late waiters wake.
//
// The limiter is charged ahead of time, so that all goroutines wait before the first turn comes.
// The schedule is then known exactly: token i, counted from the first one charged, is due at start
// + (i+1-burst)*per.
func wake(j job) (values, error) {
	if j.Subject == subjectBare {
		return blocked(j)
	}
	woke := make([]time.Duration, j.N)
	g, start, ahead, err := owing(j)
	if err != nil {
		return nil, err
	}
	before := footprintNow()
	var c crowd
	c.start(j.N, func(i int) error {
		err := g.wait(context.Background())
		woke[i] = time.Since(start)
		return err
	})
	found := footprintNow().since(before, j.N)
	if c.returned.Load() > 0 {
		found = values{} // somebody did not wait any more
	}
	due := func(i int) time.Duration { return time.Duration(ahead+i+1-j.Burst) * wakePer }
	if time.Since(start) > due(0) {
		return values{"late": 1}, nil
	}
	if err := c.end(); err != nil {
		return nil, err
	}
	slices.Sort(woke)
	late := make([]float64, j.N)
	early := 0.0
	for i := range woke {
		late[i] = micros(woke[i] - due(i))
		if late[i] < 0 {
			early++
		}
	}
	found["least"], found["p50"], found["p90"] = slices.Min(late), percentile(late, 0.5), percentile(late, 0.9)
	found["p99"], found["max"] = percentile(late, 0.99), slices.Max(late)
	found["early"] = early
	found["took"] = (woke[j.N-1] - due(0) + wakePer).Seconds()
	found["ideal"] = (time.Duration(j.N) * wakePer).Seconds()
	return found, nil
}

// owing returns a limiter that was charged ahead of time, the time of the first charge, and how
// many tokens were charged. It does not use a limiter that was interrupted between its first
// charges, and so began to refill.
func owing(j job) (g gate, start time.Time, ahead int, err error) {
	ahead = int(j.Ahead/wakePer) / j.Burst * j.Burst
	for range 3 {
		if g, err = newGate(j.Subject, wakePer, j.Burst); err != nil {
			return gate{}, time.Time{}, 0, err
		}
		var delay time.Duration
		start = time.Now()
		for n := 0; n < ahead; n += j.Burst {
			var ok bool
			if delay, ok = g.ahead(j.Burst); !ok {
				return gate{}, time.Time{}, 0, errors.New("a reservation was refused")
			}
		}
		due := time.Duration(ahead-j.Burst) * wakePer
		if off := time.Since(start) + delay - due; off.Abs() < tolerance {
			return g, start, ahead, nil
		}
	}
	return gate{}, time.Time{}, 0, errors.New("no limiter could be charged ahead without an interruption: this machine is too busy")
}

// blocked measures the memory of goroutines that only wait for a channel.
func blocked(j job) (values, error) {
	open := make(chan struct{})
	woke := make([]time.Duration, j.N)
	start := time.Now()
	before := footprintNow()
	var c crowd
	c.start(j.N, func(i int) error {
		<-open
		woke[i] = time.Since(start)
		return nil
	})
	found := footprintNow().since(before, j.N)
	close(open)
	return found, c.end()
}

// micros is a time in microseconds.
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
