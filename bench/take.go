package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
)

// Names of references.
const (
	floor = "floor"
	xtime = "x/time"
)

// many is a burst that no measurement uses up at 333/s. At 1e9/s, tokens come back as fast as they
// are taken.
const many = 1e9

// takeTargets are the targets of every verb that charges one limiter: alone, and where all cores use it, beside
// the same word swapped by all of them.
func takeTargets(procs int) []target {
	if procs > 1 {
		return []target{{floor, 0.4}, {xtime, 0.45}, {"", 0}}
	}
	return []target{{floor, 1.2}, {xtime, 0.45}, {"", 0}}
}

// take measures one decision on one limiter, shared by all goroutines: admitted and refused, alone
// and on all cores.
func take(r *report) error {
	for _, admit := range []bool{true, false} {
		for _, procs := range crews() {
			if err := r.contest(takeContest(admit, procs)); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeContest is one of the four settings.
func takeContest(admit bool, procs int) contest {
	says, answers := "admitted", allYes
	common, odd, meter := weir.PerSecond(1e9), weir.PerSecond(333), int64(many)
	peer := func() *rate.Limiter { return rate.NewLimiter(1e9, many) }
	burst := int64(many)
	if !admit {
		says, answers = "refused", allNo
		common, odd, meter, burst = weir.PerDay(1), weir.PerDay(7), 1, 1
		peer = func() *rate.Limiter { return drained(rate.NewLimiter(rate.Every(24*time.Hour), 1)) }
	}
	bucket := weir.TokenBucket{Rate: common, Burst: burst}
	remainder := weir.TokenBucket{Rate: odd, Burst: burst}
	leaky := weir.LeakyBucket{Rate: common, Queue: meter, DelayAfter: meter}
	return contest{
		title:   says + ", " + where(procs),
		procs:   procs,
		against: []string{floor, xtime},
		notes: []string{
			fmt.Sprintf("one limiter, shared by all goroutines; weir and x/time: %v, burst %d, where nothing else is said", common, burst),
			"floor: one time.Since and one compare-and-swap on one shared word, tried once, whether or not it works",
		},
		subjects: []subject{
			{floor, floorShared, either, nil},
			{"floor, a word for each goroutine", floorPrivate, either, nil},
			{"weir Allow", func() loop { return allowLoop(limiter(bucket, admit)) }, answers, takeTargets(procs)},
			{"weir Take", func() loop { return takeLoop(limiter(bucket, admit)) }, answers, takeTargets(procs)},
			{"weir Take, all of the Decision kept", func() loop { return keepLoop(limiter(bucket, admit)) }, answers, takeTargets(procs)},
			{fmt.Sprintf("weir Take, %v", odd), func() loop { return takeLoop(limiter(remainder, admit)) }, answers, takeTargets(procs)},
			{"weir Take, LeakyBucket as a meter", func() loop { return takeLoop(limiter(leaky, admit)) }, answers, takeTargets(procs)},
			{"weir Peek", func() loop { return peekLoop(limiter(bucket, admit)) }, answers, nil},
			{xtime, func() loop { return xtimeAllow(peer()) }, answers, nil},
			{"x/time AllowN", func() loop { return xtimeAllowN(peer()) }, answers, nil},
		},
	}
}

// limiter returns a new limiter. If it should refuse, nothing is left in it.
func limiter(l weir.Limit, admit bool) *weir.Limiter {
	lim, err := weir.New(l)
	if err != nil {
		panic(err) // these limits are constants
	}
	for !admit && lim.Allow() {
	}
	return lim
}

// drained takes all tokens.
func drained(l *rate.Limiter) *rate.Limiter {
	for l.Allow() {
	}
	return l
}

// A word is an atomic word on a cache line of its own.
type word struct {
	_ [64]byte
	atomic.Int64
	_ [56]byte
}

// floorShared is the least work of a limiter on one word: read the clock, and compare-and-swap the
// word once, whether or not that succeeds.
func floorShared() loop {
	start, w := time.Now(), new(word)
	return func(n int) (yes int) {
		for range n {
			now := int64(time.Since(start))
			if old := w.Load(); w.CompareAndSwap(old, now) {
				yes++
			}
		}
		return yes
	}
}

// floorPrivate is the same with a word for each goroutine.
func floorPrivate() loop {
	start := time.Now()
	return func(n int) (yes int) {
		var w word
		for range n {
			now := int64(time.Since(start))
			if old := w.Load(); w.CompareAndSwap(old, now) {
				yes++
			}
		}
		return yes
	}
}

// The functions that make loops must not be inlined. The compiler inlines less into a closure that
// was itself copied than into a plain one, and so less than for an ordinary caller.

//go:noinline
func allowLoop(l *weir.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if l.Allow() {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func takeLoop(l *weir.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if l.Take(1).Allowed {
				yes++
			}
		}
		return yes
	}
}

// kept is where complete decisions are written. Without it, the compiler could leave out fields
// that are never read.
var kept atomic.Pointer[weir.Decision]

//go:noinline
func keepLoop(l *weir.Limiter) loop {
	return func(n int) (yes int) {
		d := new(weir.Decision)
		kept.Store(d)
		for range n {
			*d = l.Take(1)
			if d.Allowed {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func peekLoop(l *weir.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if l.Peek(1).Allowed {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func xtimeAllow(l *rate.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if l.Allow() {
				yes++
			}
		}
		return yes
	}
}

//go:noinline
func xtimeAllowN(l *rate.Limiter) loop {
	return func(n int) (yes int) {
		for range n {
			if l.AllowN(time.Now(), 1) {
				yes++
			}
		}
		return yes
	}
}
