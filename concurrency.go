package weir

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// Concurrency limits how much is in flight at once: requests, workers, connections, bytes in
// memory. It does not limit how often work starts. Work enters, holds its place for as long as it
// takes, and leaves. A caller that finds no place waits in a bounded queue, first come, first
// served.
//
// Concurrency is entered, not taken: use NewConcurrency. New, Step, keyed.New and All refuse it.
//
// The costs of all holds never add up to more than Limit. With MaxHold, a place that was not left
// in time goes to the next caller. So the place of a caller that crashed comes back; but a caller
// that is merely slow may still be at work, in addition to Limit others. Hold.Fence protects what
// must not happen twice, and Hold.Extend keeps the place of slow work.
type Concurrency struct {
	Limit int64 // how much may be held at once; 1 to 2^41
	Queue int64 // how many callers may wait for a place; default: 0, none
	// how long a hold may last before its place is taken back; default: 0, forever
	MaxHold time.Duration
}

// maxPlaces is the largest Concurrency.Limit: the limiter's word has no room for more.
const maxPlaces = 1 << 41

// Validate returns an error if a parameter is invalid. The error names the field.
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
