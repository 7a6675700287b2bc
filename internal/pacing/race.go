package pacing

import (
	"sync"
	"time"
)

// A Race makes an attempt, and a second one beside it if the first has no result in time. Make one for
// each call, and call Run once.
type Race[T any] struct {
	Delay time.Duration

	// Good reports whether no other result can be better.
	Good func(T) bool

	// Begin is called when the first attempt is late. It returns nil if there is to be no second one. Run
	// does not return meanwhile.
	Begin func() *Second[T]

	// CancelFirst makes the first attempt end soon. It is called when the second one has a good result.
	CancelFirst func()

	over chan struct{} // closed when the second attempt has ended, or was not made

	mu      sync.Mutex
	second  *Second[T]
	decided bool
	ended   *T // the result of the second; nil while it goes on, or if it was not made
}

// A Second is a second attempt.
type Second[T any] struct {
	Send   func() (result T, sent bool) // on a goroutine of its own
	Cancel func()                       // makes Send end soon
	Lose   func(T)                      // gets the result if the caller of Run does not
}

// Run makes the first attempt on this goroutine, and returns its result. If the caller is to have that
// of the second attempt, it returns that too.
func (r *Race[T]) Run(attempt func() T) (first T, second *T) {
	r.over = make(chan struct{})
	timer := time.AfterFunc(r.Delay, r.late)
	returned := false
	defer func() {
		timer.Stop()
		if !returned { // it panicked
			if second := r.decide(); second != nil {
				r.second.Lose(*second)
			}
		}
	}()
	first = attempt()
	if !r.Good(first) && r.begun() {
		<-r.over // the second may have a better one
	}
	second = r.decide()
	returned = true
	return first, second
}

func (r *Race[T]) begun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.second != nil
}

// decide ends the race. It returns the result of the second attempt if that is good: the first one has
// been cancelled then, so that a result of it, however good, may be of no use to the caller.
func (r *Race[T]) decide() *T {
	r.mu.Lock()
	r.decided = true
	second, ended := r.second, r.ended
	r.mu.Unlock()
	switch {
	case second == nil:
		return nil
	case ended == nil:
		second.Cancel() // it loses when it ends
		return nil
	case r.Good(*ended):
		return ended
	}
	second.Lose(*ended)
	return nil
}

// late makes the second attempt.
func (r *Race[T]) late() {
	second := r.begin()
	if second == nil {
		return
	}
	defer close(r.over)
	got, sent := second.Send()
	if !sent {
		second.Cancel()
		return
	}
	r.mu.Lock()
	lost := r.decided
	if !lost {
		r.ended = &got
	}
	r.mu.Unlock()
	switch {
	case lost:
		second.Lose(got)
	case r.Good(got):
		r.CancelFirst()
	}
}

func (r *Race[T]) begin() *Second[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.decided {
		r.second = r.Begin()
	}
	return r.second
}
