package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// leaving is how many waiters leave, at most half of the queue.
const leaving = 1000

// leave has N goroutines wait at a limiter that serves none of them. It cancels some of them, at
// random and one after another. It measures the time from the cancellation until Wait has returned,
// as seen by the goroutine that cancels.
func leave(j job) (values, error) {
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	if j.Subject != subjectBare {
		g, err := newGate(j.Subject, time.Hour, 1)
		if err != nil {
			return nil, err
		}
		if _, ok := g.ahead(1); !ok {
			return nil, errors.New("the one token was refused")
		}
		wait = g.wait
	}
	all, end := context.WithCancel(context.Background())
	defer end()
	waiting := make([]context.Context, j.N)
	cancels := make([]context.CancelFunc, j.N)
	for i := range j.N {
		waiting[i], cancels[i] = context.WithCancel(all)
		defer cancels[i]()
	}
	returned := make(chan error)
	var c crowd
	c.start(j.N, func(i int) error {
		returned <- wait(waiting[i])
		return nil
	})
	var took []float64
	for _, i := range rand.Perm(j.N)[:min(leaving, j.N/2)] {
		begin := time.Now()
		cancels[i]()
		err := <-returned
		took = append(took, micros(time.Since(begin)))
		if !errors.Is(err, context.Canceled) {
			return nil, fmt.Errorf("a wait that was cancelled returned %w", err)
		}
	}
	end()
	for range j.N - len(took) {
		if err := <-returned; !errors.Is(err, context.Canceled) {
			return nil, fmt.Errorf("the end of all waits returned %w", err)
		}
	}
	return values{"p50": percentile(took, 0.5), "p99": percentile(took, 0.99), "left": float64(len(took))}, c.end()
}
