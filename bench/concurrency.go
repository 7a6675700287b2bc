package main

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"

	"github.com/weirflow/weir"
)

// Subjects of concurrency.
const (
	weirEnter  = "weir Enter+Done"
	weirTry    = "weir TryEnter+Done"
	semAcquire = "semaphore Acquire+Release"
	semTry     = "semaphore TryAcquire+Release"
)

// concurrency measures entering and leaving, beside golang.org/x/sync/semaphore.
func concurrency(r *report) error {
	for _, admit := range []bool{true, false} {
		for _, procs := range crews() {
			if err := r.contest(concurrencyContest(admit, procs)); err != nil {
				return err
			}
		}
	}
	if procs := crews(); len(procs) > 1 {
		return r.contest(handoverContest(procs[1]))
	}
	return nil
}

// concurrencyContest has room for all goroutines, or no place left. It leaves out calls that would
// wait for a place that is never left.
func concurrencyContest(admit bool, procs int) contest {
	c := contest{
		title:  "Concurrency, with room for all, " + where(procs),
		procs:  procs,
		rivals: map[string][]string{weirEnter: {semAcquire}, weirTry: {semTry}},
		notes: []string{
			"a place is taken and left at once; weir: of one ConcurrencyLimiter, semaphore: of one golang.org/x/sync/semaphore,",
			"each shared by all goroutines; / peer: beside the call of the other that does the same",
		},
		subjects: []subject{
			{weirEnter, func() loop { return enterLoop(places(many, 0)) }, allYes, []target{{"", 0}}},
			{weirTry, func() loop { return tryEnterLoop(places(many, 0)) }, allYes, []target{{"", 0}}},
			{semAcquire, func() loop { return acquireLoop(semaphore.NewWeighted(many)) }, allYes, nil},
			{semTry, func() loop { return tryAcquireLoop(semaphore.NewWeighted(many)) }, allYes, nil},
		},
	}
	if !admit {
		c.title = "Concurrency, with no place left, " + where(procs)
		c.notes[0] = "nothing is taken; weir: of one ConcurrencyLimiter, semaphore: of one golang.org/x/sync/semaphore,"
		c.rivals = map[string][]string{weirTry: {semTry}}
		c.subjects = []subject{
			{weirTry, func() loop {
				l := places(1, 0)
				l.TryEnter()
				return tryEnterLoop(l)
			}, allNo, []target{{"", 0}}},
			{semTry, func() loop {
				s := semaphore.NewWeighted(1)
				s.TryAcquire(1)
				return tryAcquireLoop(s)
			}, allNo, nil},
		}
	}
	return c
}

// handoverContest has one place for all goroutines. The goroutine with the place lets the others
// join the queue before it leaves, as work that takes a while would. Otherwise, one goroutine would
// enter and leave alone most of the time.
func handoverContest(procs int) contest {
	return contest{
		title:  "Concurrency of 1, from hand to hand, " + where(procs),
		procs:  procs,
		rivals: map[string][]string{weirEnter: {semAcquire}},
		notes: []string{
			"one place for all, who wait for it in line; who has it calls runtime.Gosched before leaving it",
			"what they wait with may be allocated: that has no target",
		},
		subjects: []subject{
			{weirEnter, func() loop { return enterYieldLoop(places(1, many)) }, allYes, nil},
			{semAcquire, func() loop { return acquireYieldLoop(semaphore.NewWeighted(1)) }, allYes, nil},
		},
	}
}

// places returns a fresh limiter.
func places(limit, queue int64) *weir.ConcurrencyLimiter {
	l, err := weir.NewConcurrency(weir.Concurrency{Limit: limit, Queue: queue})
	if err != nil {
		panic(err) // the parameters are constants
	}
	return l
}

//go:noinline
func enterLoop(l *weir.ConcurrencyLimiter) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			if h, err := l.Enter(ctx); err == nil {
				h.Done(weir.OK)
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func enterYieldLoop(l *weir.ConcurrencyLimiter) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			if h, err := l.Enter(ctx); err == nil {
				runtime.Gosched()
				h.Done(weir.OK)
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func tryEnterLoop(l *weir.ConcurrencyLimiter) loop {
	return func(n int) (yes int) {
		for range n {
			if h, d := l.TryEnter(); d.Allowed {
				h.Done(weir.OK)
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func acquireLoop(s *semaphore.Weighted) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			if s.Acquire(ctx, 1) == nil {
				s.Release(1)
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func acquireYieldLoop(s *semaphore.Weighted) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			if s.Acquire(ctx, 1) == nil {
				runtime.Gosched()
				s.Release(1)
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func tryAcquireLoop(s *semaphore.Weighted) loop {
	return func(n int) (yes int) {
		for range n {
			if s.TryAcquire(1) {
				s.Release(1)
				yes++
			}
		}
		return yes
	}
}
