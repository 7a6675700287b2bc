package policy

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// Regions says that the limits in a store are those of several regions, each with a store of its own.
type Regions struct {
	Here       string        // the name of this region
	Home       string        // the name of the store by which the regions divide the limits, the same one in all of them
	Guaranteed []Region      // all regions, in the order of their names
	Term       time.Duration // how long a division is in force; default: 1 minute
	Margin     time.Duration // how far apart the clocks of the home may be; default: that of package regions
}

// A Region is one of those that share limits.
type Region struct {
	Name    string
	Percent int // of each limit, which the region may use at any time
}

// String returns the region as a policy file has it.
func (r Region) String() string { return fmt.Sprintf("%s: %d", r.Name, r.Percent) }

// String returns the regions as a policy file has them.
func (r *Regions) String() string {
	if r == nil {
		return ""
	}
	return inBraces(reflect.ValueOf(*r))
}

// Fixed reports whether all of each limit is guaranteed, so that no part moves.
func (r *Regions) Fixed() bool { return r.percent() == 100 }

func (r *Regions) percent() (sum int) {
	for _, g := range r.Guaranteed {
		if sum += g.Percent; sum > 100 || g.Percent > 100 {
			return 101
		}
	}
	return sum
}

var regionName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// regions checks a store's regions. The bounds are those of package regions.
func (c *checker) regions(s Store) {
	r := s.Regions
	if r == nil {
		return
	}
	at := func(field ...string) []string { return append([]string{"stores", s.Name, "regions"}, field...) }
	if n := len(r.Guaranteed); n < 2 || n > 16 {
		c.wrong(fmt.Sprintf("limits are divided between 2 to 16 regions, and guaranteed has %d", n), "write all of them, this one included: guaranteed: { eu: 10, us: 10 }", at("guaranteed")...)
	}
	known := false
	for _, g := range r.Guaranteed {
		known = known || g.Name == r.Here
		switch {
		case !regionName.MatchString(g.Name):
			c.wrong(fmt.Sprintf("%q is not the name of a region", g.Name), "use lower-case letters, digits and hyphens", at("guaranteed", g.Name)...)
		case g.Percent < 1:
			c.wrong("a region has at least 1 percent of each limit", g.Name+": 1", at("guaranteed", g.Name)...)
		}
	}
	if r.percent() > 100 {
		c.wrong("more than 100 percent are guaranteed", "lower some of them: what is left follows demand", at("guaranteed")...)
	}
	if !known && len(r.Guaranteed) > 0 {
		c.wrong(fmt.Sprintf("%q is not one of the regions under guaranteed", r.Here), suggest(r.Here, names(r.Guaranteed, func(g Region) string { return g.Name })), at("here")...)
	}
	c.home(s, at("home"))
	c.terms(s, at)
}

// home checks where the regions divide the limits.
func (c *checker) home(s Store, at []string) {
	home := c.store(s.Regions.Home)
	switch {
	case s.Regions.Home == "" && !s.Regions.Fixed():
		c.wrong("the regions divide by a store that is the same in all of them, and none is named", "add one under stores, and home: NAME; or guarantee 100 percent together, for parts that do not move", at[:len(at)-1]...)
	case s.Regions.Home == "":
	case home == nil:
		c.unknown("store", s.Regions.Home, names(c.Stores, func(s Store) string { return s.Name }), at...)
	case home.Regions != nil:
		c.wrong(fmt.Sprintf("the store %q has regions itself, and cannot be the home of others", s.Regions.Home), "add the same store under another name, without regions", at...)
	}
}

const (
	minTerm = time.Second
	maxTerm = time.Hour

	leaseLifetime = 250 * time.Millisecond // the default of package lease
)

// terms checks the times of a store's regions.
func (c *checker) terms(s Store, at func(...string) []string) {
	r := s.Regions
	term := r.Term
	switch {
	case term == 0:
		term = time.Minute
	case term < minTerm || term > maxTerm:
		c.wrong(fmt.Sprintf("a term of %v is too short or too long", term), "write one from 1s to 1h", at("term")...)
		return
	case term%time.Millisecond != 0:
		c.wrong(fmt.Sprintf("a term of %v is not a whole number of milliseconds", term), "write one like 1m", at("term")...)
	}
	if r.Margin < 0 || r.Margin > term/64 {
		c.wrong(fmt.Sprintf("a margin of %v is more than 1/64 of the term, %v", r.Margin, term), "choose a longer term", at("margin")...)
	}
	lifetime := s.Lease.Lifetime
	if lifetime == 0 {
		lifetime = leaseLifetime
	}
	if s.Lease.On && lifetime > term/16 {
		c.wrong(fmt.Sprintf("tokens that are leased for %v are used for too long after a part has moved", lifetime), fmt.Sprintf("choose a lifetime of at most a sixteenth of the term, %v", term/16), "stores", s.Name, "lease")
	}
	if s.Deadline > term/8 {
		c.wrong(fmt.Sprintf("calls may take too long for a term of %v", term), fmt.Sprintf("choose a deadline of at most an eighth of the term, %v", term/8), "stores", s.Name, "deadline")
	}
}

// inRegions checks a limit's cost, if its store has regions: it has to fit the part of each region.
func (c *checker) inRegions(l *Limit) {
	s := c.store(l.Store)
	cost, err := parseCost(l.Cost)
	if s == nil || s.Regions == nil || l.Limit == nil || err != nil || cost.kind != costFixed {
		return
	}
	most := int64(0)
	for _, g := range s.Regions.Guaranteed {
		most = max(most, int64(g.Percent))
	}
	left := 100 - int64(s.Regions.percent())
	p, ok := rules.ParamsOf(l.Limit).(rules.Divided)
	if !ok || left < 0 {
		return
	}
	part, _ := p.Part(most+left, 100, int64(len(s.Regions.Guaranteed)))
	if size, field := capacityOf(rules.WithParams(l.Limit, part)); size > 0 && size < math.MaxInt64 && cost.n > size {
		c.wrong(fmt.Sprintf("a cost of %d never fits the part of a region, which has a %s of at most %d", cost.n, field, size), fmt.Sprintf("lower the cost, or raise the %s", field), "limits", l.Name, "cost")
	}
}
