package main

import (
	aegis "github.com/go-kratos/aegis/ratelimit"
	kratos "github.com/go-kratos/aegis/ratelimit/bbr"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
)

// Subjects of bbr.
const (
	bbrTry    = "adaptive BBR TryEnter+Done"
	kratosTry = "Kratos bbr Allow+done"
)

// bbrLimits measures limits that hold only while the machine is overloaded, beside that of Kratos.
func bbrLimits(r *report) error {
	for _, overload := range []bool{false, true} {
		for _, procs := range crews() {
			if err := r.contest(bbrContest(overload, procs)); err != nil {
				return err
			}
		}
	}
	return nil
}

// bbrContest is with or without an overload. With one, some of several goroutines are refused.
func bbrContest(overload bool, procs int) contest {
	title, level, threshold, decide := "bbr, without an overload, ", 0.5, int64(1<<40), allYes
	if overload {
		title, level, threshold, decide = "bbr, in an overload, ", 0.9, 0, either
	}
	return contest{
		title:   title + where(procs),
		procs:   procs,
		against: []string{atomicPlace},
		rivals:  map[string][]string{bbrTry: {kratosTry}},
		notes: []string{
			"a request that finds a place leaves at once, of one limiter that all goroutines share. Weir measures all requests up to",
			"60,000 a second and of more some, Kratos all",
		},
		subjects: []subject{
			{bbrTry, func() loop { return adaptiveTryLoop(bbrLimiter(level)) }, decide, []target{{"", 0}}},
			{kratosTry, func() loop { return kratosLoop(kratos.NewLimiter(kratos.WithCPUThreshold(threshold))) }, decide, nil},
			{atomicPlace, func() loop { return atomicPlaceLoop(0, 1000) }, allYes, nil},
		},
	}
}

// at is a machine whose CPUs are always as busy.
type at float64

func (a at) Reading() *signals.Reading {
	r := &signals.Reading{}
	r.Set(signals.CPU, float64(a), "a constant")
	return r
}

func bbrLimiter(level float64) *adaptive.Limiter {
	l, err := adaptive.New(adaptive.Options{Algorithm: adaptive.BBR{}, Signals: at(level)})
	if err != nil {
		panic(err) // the parameters are constants
	}
	return l
}

//go:noinline
func kratosLoop(l *kratos.BBR) loop {
	return func(n int) (yes int) {
		for range n {
			if done, err := l.Allow(); err == nil {
				done(aegis.DoneInfo{})
				yes++
			}
		}
		return yes
	}
}
