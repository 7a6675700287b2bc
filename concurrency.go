package weir

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// Concurrency limits how much may be going on at once: requests in flight, workers, connections, bytes in memory. It says nothing about
// how often. Work enters, holds its place for as long as it takes, and leaves; who finds no place waits in a bounded queue, in which
// nobody overtakes.
//
// It is entered and not taken: NewConcurrency makes what holds its state, and New, Step, keyed.New and All refuse it.
//
// What holds a place never adds up to more than Limit. With MaxHold, a place that was not left in time is given to the next: the place of
// one who crashed comes back, but one who is only slow may then still be at work, beside Limit others. What must not happen twice is
// guarded by Hold.Fence, and slow work keeps its place with Hold.Extend.
type Concurrency struct {
	Limit   int64         // how much may be held at once; 1 to 2^41
	Queue   int64         // how many callers may wait for a place; 0 for none
	MaxHold time.Duration // after how long a place is given up if it was not left; 0 for never
}

// maxPlaces is the largest Concurrency.Limit: what a word has room for.
const maxPlaces = 1 << 41

// Validate reports what is wrong with the numbers.
func (l Concurrency) Validate() error {
	const name = "Concurrency"
	switch {
	case l.Limit < 1:
		return field(name, "Limit", fmt.Errorf("%d lets nothing pass: it must be at least 1", l.Limit))
	case l.Limit > maxPlaces:
		return field(name, "Limit", fmt.Errorf("%d is more than can be counted: it must be at most 2^41", l.Limit))
	case l.Queue < 0:
		return field(name, "Queue", fmt.Errorf("%d is not a length: it must be at least 0", l.Queue))
	case l.MaxHold < 0 || l.MaxHold > rules.MaxSpan:
		return field(name, "MaxHold", fmt.Errorf("%v is not within 0 and 100 years", l.MaxHold))
	}
	return nil
}

var errEntered = errors.New("weir: Concurrency is entered and left, not taken: use NewConcurrency")

func (l Concurrency) compile(time.Duration) (rules.Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return nil, errEntered
}

func (l Concurrency) normal() Limit { return l }
