package weirkv

import (
	"math"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

// exact are options with which a store does as a weir.Limiter does, whatever its clock shows and however
// many charges are outstanding.
func exact(clock func() int64) Options {
	return Options{Clock: clock, Skew: math.MaxInt64, Remember: math.MaxInt64 / 2, keepBrief: true}
}

// TestUsage: a peek says what is used, also beyond the limit.
func TestUsage(t *testing.T) {
	s, err := New(new(Memory), Options{})
	if err != nil {
		t.Fatal(err)
	}
	weirtest.Usage(t, s, "usage")
}

// TestConforms compares the store with the reference model: all that a caller writes goes through bytes, and
// reservations are given back as exactly as by a weir.Limiter.
func TestConforms(t *testing.T) {
	raced.Skip(t)
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 40, Tick: unit, Limits: weirtest.StoredLimits(), Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		s, err := New(new(Memory), exact(c.Now))
		if err != nil {
			return nil, err
		}
		return weirtest.Stored(s, l), nil
	}})
}
