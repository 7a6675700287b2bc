package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// wakePer is the time from one token to the next: 100,000 per second.
	wakePer = 10 * time.Microsecond
	// headStart is how long before the first turn a crowd begins to gather; longer if that turns
	// out to be too short.
	headStart = 2 * time.Second
	// tolerance is how far a limiter's schedule may differ from ours.
	tolerance = 50 * time.Microsecond
	// patience is how long charging a limiter ahead may take.
	patience = 2 * time.Minute
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
	per := wakePer
	if j.Per > 0 {
		per = j.Per
	}
	woke := make([]time.Duration, j.N)
	g, start, ahead, err := owing(j, per)
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
		found = values{} // a waiter was too late to wait
	}
	due := func(i int) time.Duration { return time.Duration(ahead+i+1-j.Burst) * per }
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
	found["took"] = (woke[j.N-1] - due(0) + per).Seconds()
	found["ideal"] = (time.Duration(j.N) * per).Seconds()
	return found, nil
}

// owing returns a limiter that was charged for j.Ahead and more, the time of the first charge, and
// how many tokens were charged. The schedule follows from the delay of the last charge alone, so an
// interruption before it does not matter: the limiter is charged once more until the clock readings
// before and after a charge are close together. The time of the first charge is the one that it
// would have been without interruptions. It is not late, so no wake-up seems early that was not.
func owing(j job, per time.Duration) (g gate, start time.Time, ahead int, err error) {
	if g, err = newGate(j.Subject, per, j.Burst); err != nil {
		return gate{}, time.Time{}, 0, err
	}
	for begun := time.Now(); time.Since(begun) < patience; {
		before := time.Now()
		delay, ok := g.ahead(j.Burst)
		took := time.Since(before)
		if !ok {
			return gate{}, time.Time{}, 0, errors.New("a reservation was refused")
		}
		if ahead += j.Burst; delay >= j.Ahead && took < tolerance {
			return g, before.Add(delay - time.Duration(ahead-j.Burst)*per), ahead, nil
		}
	}
	return gate{}, time.Time{}, 0, fmt.Errorf("%d charges in %v were not ahead by %v: this machine is too busy", ahead/j.Burst, patience, j.Ahead)
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

// micros returns a time in microseconds.
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
