package main

import (
	"context"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"golang.org/x/sync/semaphore"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
)

// Subjects of adaptive.
const (
	adaptiveEnter = "adaptive Enter+Done"
	adaptiveTry   = "adaptive TryEnter+Done"
	failsafePlace = "failsafe-go Acquire+Record"
	failsafeTry   = "failsafe-go TryAcquire+Record"
	atomicPlace   = "atomic add, compare, add"
)

// adaptiveLimits measures entering and leaving a limit that finds itself, beside that of
// failsafe-go, golang.org/x/sync/semaphore, and the floor: a semaphore of two atomic additions.
func adaptiveLimits(r *report) error {
	for _, admit := range []bool{true, false} {
		for _, procs := range crews() {
			if err := r.contest(adaptiveContest(admit, procs)); err != nil {
				return err
			}
		}
	}
	return nil
}

// adaptiveContest has room for all goroutines, or no place left.
func adaptiveContest(admit bool, procs int) contest {
	c := contest{
		title:   "adaptive, with room for all, " + where(procs),
		procs:   procs,
		against: []string{atomicPlace},
		rivals:  map[string][]string{adaptiveEnter: {failsafePlace, semAcquire}, adaptiveTry: {failsafeTry, semTry}},
		notes: []string{
			"a place is taken and left at once, of one limiter that all goroutines share; of very many requests, Weir measures some,",
			"failsafe-go all. " + atomicPlace + ": the least that a semaphore takes; it can neither be left once only nor wait",
		},
		subjects: []subject{
			{adaptiveEnter, func() loop { return adaptiveEnterLoop(adaptiveLimiter(1000)) }, allYes, []target{{atomicPlace, 2}, {"", 0}}},
			{adaptiveTry, func() loop { return adaptiveTryLoop(adaptiveLimiter(1000)) }, allYes, []target{{atomicPlace, 2}, {"", 0}}},
			{failsafePlace, func() loop { return failsafePlaceLoop(failsafeAdaptive(1000)) }, allYes, nil},
			{failsafeTry, func() loop { return failsafeTryLoop(failsafeAdaptive(1000)) }, allYes, nil},
			{semAcquire, func() loop { return acquireLoop(semaphore.NewWeighted(1000)) }, allYes, nil},
			{semTry, func() loop { return tryAcquireLoop(semaphore.NewWeighted(1000)) }, allYes, nil},
			{atomicPlace, func() loop { return atomicPlaceLoop(0, 1000) }, allYes, nil},
		},
	}
	if !admit {
		c.title = "adaptive, with no place left, " + where(procs)
		c.notes = []string{"nothing is taken, of one limiter that all goroutines share. Weir counts the refusals"}
		c.rivals = map[string][]string{adaptiveTry: {failsafeTry, semTry}}
		c.subjects = []subject{
			{adaptiveTry, func() loop {
				l := adaptiveLimiter(1)
				l.TryEnter()
				return adaptiveTryLoop(l)
			}, allNo, []target{{atomicPlace, 2}, {"", 0}}},
			{failsafeTry, func() loop {
				l := failsafeAdaptive(1)
				l.TryAcquirePermit()
				return failsafeTryLoop(l)
			}, allNo, nil},
			{semTry, func() loop {
				s := semaphore.NewWeighted(1)
				s.TryAcquire(1)
				return tryAcquireLoop(s)
			}, allNo, nil},
			{atomicPlace, func() loop { return atomicPlaceLoop(1, 1) }, allNo, nil},
		}
	}
	return c
}

// adaptiveLimiter returns a fresh limiter with a limit that stays: the time of such requests says
// nothing.
func adaptiveLimiter(limit int64) *adaptive.Limiter {
	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.Knee{Initial: limit, Min: limit, Max: limit}})
	if err != nil {
		panic(err) // the parameters are constants
	}
	return l
}

// failsafeAdaptive does the same for failsafe-go.
func failsafeAdaptive(limit uint) adaptivelimiter.AdaptiveLimiter[any] {
	return adaptivelimiter.NewBuilder[any]().WithLimits(limit, limit, limit).Build()
}

//go:noinline
func adaptiveEnterLoop(l *adaptive.Limiter) loop {
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
func adaptiveTryLoop(l *adaptive.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if h, ok := l.TryEnter(); ok {
				h.Done(weir.OK)
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func failsafePlaceLoop(l adaptivelimiter.AdaptiveLimiter[any]) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		for range n {
			if p, err := l.AcquirePermit(ctx); err == nil {
				p.Record()
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func failsafeTryLoop(l adaptivelimiter.AdaptiveLimiter[any]) loop {
	return func(n int) (yes int) {
		for range n {
			if p, ok := l.TryAcquirePermit(); ok {
				p.Record()
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func atomicPlaceLoop(held, limit int64) loop {
	word := new(atomic.Int64)
	word.Store(held)
	return func(n int) (yes int) {
		for range n {
			if word.Add(1) <= limit {
				yes++
			}
			word.Add(-1)
		}
		return yes
	}
}
