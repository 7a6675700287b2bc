package regions

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// ErrLimit means that a limit cannot be divided between the regions. errors.Is finds it in the Err of
// a charge, and weir.ErrCharge too.
var ErrLimit = fmt.Errorf("the limit cannot be divided between regions: %w", weir.ErrCharge)

// whole is the number of units that the shares of all regions add up to: a unit is a thousandth of the
// limit.
const whole = 1000

// Keeps implements weir.Keeper: it says why a limit cannot be divided, by an error in which errors.Is
// finds ErrLimit, and otherwise what the store of this region says.
func (s *Store) Keeps(l weir.Limit) error {
	if err := s.opts.divisible(l); err != nil {
		return err
	}
	if k, ok := s.inner.(weir.Keeper); ok {
		return k.Keeps(s.part(l, s.guaranteed()))
	}
	return nil
}

// Guaranteed returns the part of a limit that Here may always use. The error says which option is wrong,
// or why the limit cannot be divided; then errors.Is finds ErrLimit in it.
func (o Options) Guaranteed(l weir.Limit) (weir.Limit, error) {
	o.Regions = slices.Clone(o.Regions)
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := o.divisible(l); err != nil {
		return nil, err
	}
	s := Store{opts: o}
	return s.part(l, s.guaranteed()), nil
}

// divisible says why a limit cannot be divided with valid options.
func (o *Options) divisible(l weir.Limit) error {
	k := rules.KindOf(l)
	p, ok := rules.ParamsOf(l).(rules.Divided)
	switch {
	case l == nil:
		return fmt.Errorf("weir: regions: no limit given: %w", ErrLimit)
	case k == nil:
		return fmt.Errorf("weir: regions: %T cannot be divided: its parts would move at different times: use several limits: %w", l, ErrLimit)
	case !ok:
		return fmt.Errorf("weir: regions: %T cannot be divided: %s: keep it in the store of one region: %w", l, k.NoRegions, ErrLimit)
	}
	least := int64(whole)
	for _, r := range o.Regions {
		least = min(least, int64(r.Guaranteed)*whole/100)
	}
	if part, ok := p.Part(least, whole, int64(len(o.Regions))); !ok {
		return fmt.Errorf("weir: regions: %+v is too small: the part of a region with %d percent of %d would be %+v: raise the limit, or Guaranteed: %w",
			l, least*100/whole, len(o.Regions), part, ErrLimit)
	}
	if most := o.Term / 4; p.Settles() > most && !o.fixed() {
		return fmt.Errorf("weir: regions: %+v %w", l, &TooLongError{Needs: termFor(p.Settles()), Term: o.Term, has: p.Settles()})
	}
	return nil
}

// A TooLongError says that a limit cannot be divided in parts that move, as what was used counts for too
// long. errors.Is finds ErrLimit in it.
type TooLongError struct {
	Needs time.Duration // the Term that the limit needs; 0 if it is longer than any may be
	Term  time.Duration // as it is
	has   time.Duration
}

func (e *TooLongError) Error() string {
	change := "a smaller burst or a shorter window, parts that do not move (Guaranteed of 100 percent together), or the store of one region, with leases"
	if e.Needs != 0 {
		change = fmt.Sprintf("a Term of %v, ", e.Needs) + change
	}
	took := fmt.Sprintf("takes %v until nothing counts that was used before", e.has.Round(time.Millisecond))
	if e.has == math.MaxInt64 {
		took = "counts for as long as its calendar says"
	}
	return fmt.Sprintf("%s, and that may be at most a quarter of the Term, %v: choose %s: %v", took, e.Term, change, ErrLimit)
}

// Unwrap returns ErrLimit.
func (e *TooLongError) Unwrap() error { return ErrLimit }

// termFor returns the shortest Term, in whole seconds, with parts that move for a limit that settles so late; 0
// without one.
func termFor(settles time.Duration) time.Duration {
	if settles > MaxTerm/4 {
		return 0
	}
	return (4*settles + time.Second - 1).Truncate(time.Second)
}

// fixed reports whether all of a limit is guaranteed, so that no part ever moves.
func (o *Options) fixed() bool {
	sum := 0
	for _, r := range o.Regions {
		sum += r.Guaranteed
	}
	return sum == 100
}

// part returns a divisible limit's part for this region while it has that many units.
func (s *Store) part(l weir.Limit, units int64) weir.Limit {
	p, _ := rules.ParamsOf(l).(rules.Divided).Part(units, whole, int64(len(s.opts.Regions)))
	return rules.WithParams(l, p)
}

// settles returns how long what was charged under a part may still count by its rules.
func settles(part weir.Limit) int64 {
	return int64(rules.ParamsOf(part).(rules.Divided).Settles())
}

// guaranteed returns the units that this region always has.
func (s *Store) guaranteed() int64 {
	for _, r := range s.opts.Regions {
		if r.Name == s.opts.Here {
			return int64(r.Guaranteed) * whole / 100
		}
	}
	return 0
}

// pool returns the units that follow demand.
func (s *Store) pool() int64 {
	left := int64(whole)
	for _, g := range s.guarantees() {
		left -= g
	}
	return left
}

// guarantees returns the units that each region always has.
func (s *Store) guarantees() []int64 {
	all := make([]int64, len(s.opts.Regions))
	for i, r := range s.opts.Regions {
		all[i] = int64(r.Guaranteed) * whole / 100
	}
	return all
}

// divide divides the pool, so that what regions have together with their guaranteed units is in
// proportion to demand. A region whose guaranteed units are more than that gets nothing. What is left
// after rounding down goes to the largest remainders, so that regions that know the same demands find
// the same division.
func divide(pool int64, guaranteed, demand []int64) []int64 {
	parts, rest := make([]int64, len(demand)), make([]int64, len(demand))
	out := make([]bool, len(demand))
	var all, sum int64
	for again := true; again; {
		again, all, sum = false, pool, 0
		for i, d := range demand {
			if !out[i] {
				all, sum = all+guaranteed[i], sum+d+1 // without any demand, the regions are equal
			}
		}
		for i, d := range demand {
			if !out[i] && all*(d+1) < guaranteed[i]*sum {
				out[i], again = true, true
			}
		}
	}
	left := pool
	for i, d := range demand {
		if rest[i] = -1; !out[i] {
			parts[i], rest[i] = all*(d+1)/sum-guaranteed[i], all*(d+1)%sum
			left -= parts[i]
		}
	}
	for ; left > 0; left-- {
		most := 0
		for i := range rest {
			if rest[i] > rest[most] {
				most = i
			}
		}
		parts[most]++
		rest[most] = -1
	}
	return parts
}
