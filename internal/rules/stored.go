package rules

import (
	"fmt"
	"time"
)

// A Script is the part of a store's scripts that decides about an algorithm. Algorithms that differ
// only in numbers share one.
type Script struct {
	Name   string // of its file
	Number int    // by which states name it: never changed
	Limbs  bool   // it has numbers beyond what a store counts in one
	Lists  bool   // it keeps lists of charges
}

// Stored is the Params of algorithms that stores keep.
type Stored interface {
	Params
	// StoreNumbers are the parameters as the Script reads them, in its clock units. The parameters
	// have been validated and compiled.
	StoreNumbers(c Counting) ([]int64, error)
}

// Calendared is the Params of algorithms whose windows may be those of a calendar, which a store
// without time zones has to be told.
type Calendared interface {
	Params
	// CalendarAlign is the Align of such windows; "" for windows of one length.
	CalendarAlign() string
}

// Counting is how a store counts.
type Counting struct {
	Store       string        // its name, for errors
	Unit        time.Duration // of its clock
	Most        int64         // the largest whole number
	MostTicks   int64         // the most ticks of a token, and of a clock unit
	MostEntries int64         // the most charges that a list may have
}

// units is a duration in the store's clock units.
func (c Counting) units(d time.Duration) int64 { return int64(d / c.Unit) }

// ticks is Rate.ticks within what the store counts.
func (c Counting) ticks(r Rate) (n, p int64, err error) {
	n, p, err = r.ticks(c.Unit)
	if err != nil || n > c.MostTicks || p > c.MostTicks {
		return 0, 0, fmt.Errorf("the rate %v cannot be counted exactly in %s: reduced, it may be up to %d for each %v, or one each %v",
			r, c.Store, c.MostTicks, c.Unit, time.Duration(c.MostTicks)*c.Unit)
	}
	return n, p, nil
}

// The algorithms that bucket.lua decides about, as it numbers them.
const (
	storedTokenBucket = iota
	storedLeakyBucket
	storedSmoothBursty
)

var bucketScript = Script{Name: "bucket", Number: 1}

// bucketNumbers are what bucket.lua reads.
func (c Counting) bucketNumbers(which int64, r Rate, size, extra int64) ([]int64, error) {
	n, p, err := c.ticks(r)
	return []int64{which, n, p, size, extra}, err
}
