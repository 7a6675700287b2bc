package rules

import (
	"reflect"
	"slices"
	"time"
)

// A Kind is an algorithm with everything that the rest of Weir needs to know about it: the names
// and meaning of its parameters, and how it behaves in each place that takes limits. It is defined
// in the algorithm's file. No other package switches over kinds: what it needs is here, or in a
// method of Params.
//
// If an algorithm is not supported in one of the places, a No... field has the reason, written for
// a user. A test in proof/ goes over all kinds and places, and fails if neither the support nor a
// reason exists.
type Kind struct {
	Name    string  // as policy files write it
	GoName  string  // the name of the struct in package weir
	Doc     string  // one or two sentences, for the schema of policy files
	Returns string  // how what was used comes back, for explanations; empty without a Rule
	Page    string  // the heading of its section in docs/algorithms.md
	Fields  []Field // in the order of the struct's
	Zero    Params  // the parameters, all zero
	Script  Script  // the script that decides about it in a store

	NoRule     string // why it has no Rule: it is neither taken nor kept by key
	NoShare    string // why failover has no share of it; otherwise Zero is a Shared
	NoLease    string // why tokens of it cannot be leased; otherwise Zero is a Leased
	NoRegions  string // why its limits cannot be divided between regions; otherwise Zero is a Divided
	NoStore    string // why no store keeps it; otherwise Zero is a Stored
	NoModel    string // why weirtest has no reference model of it
	NoZone     string // why limits of it cannot share a state; otherwise Zero is a Zoned
	NoOverride string // why single keys cannot have parameters of their own

	// Of two states of one limit, the state that resets first is never the more restricted one. A
	// full table then finds the key to evict by its reset alone, and otherwise by the decision about
	// a cost of 1: first the keys that admit it, and then by RetryAfter.
	ResetRanks bool

	Lists       bool // a store's state lists its outstanding reservations, so that each is to be settled, also at its cost
	Queues      bool // requests over the rate wait in it
	KeepsCharge bool // a request that is given up while it is delayed stays charged
}

// Params are the parameters of a limit, as a user wrote them: defaults are not filled in.
type Params interface {
	// Kind is the algorithm.
	Kind() *Kind
	// Compile returns the rule for clock units of length unit. The parameters have been validated.
	Compile(unit time.Duration) (Rule, error)
	// MostPerRequest is the largest cost of one request, and the field that sets it; none if no
	// cost is too large.
	MostPerRequest() (cost int64, field string)
	// QuotaWindow is the time that a RateLimit-Policy header names for the quota: how long a bucket
	// takes to fill, or a window lasts. Of windows of several lengths it is the longest, so that no
	// client that spreads the quota over it is refused.
	QuotaWindow() time.Duration
	// MostWords bounds the memory of a state, in words.
	MostWords() int64
	// Resets reports whether a used state becomes idle after a while, so that a table may evict it
	// then.
	Resets() bool
}

// Metered is the Params of algorithms whose state is how far a key is ahead of its rate, by at most
// size: a time alone can keep it.
type Metered interface {
	Params
	Meter() (rate Rate, size int64)
}

// Shared is the Params of algorithms that failover can divide into shares.
type Shared interface {
	Params
	// Share is the part that each of n nodes may use, n > 1, so that together they stay within what
	// the limit admits. What is rounded is rounded down, and no capacity is below 1.
	Share(n int64) Params
	// UsedUp is what a key has used before now if it has used all it could at the limit's pace.
	// fresh is how long a new state that is charged 1 now takes to become idle: the rest of a
	// window.
	UsedUp(fresh time.Duration) []Use
}

// Delayed is the Params of algorithms that charge a request when it comes, and then fix for how long
// it is delayed.
type Delayed interface {
	Params
	// Delay is how long an admitted request of that cost is delayed. level is the Level of the
	// decision about it.
	Delay(level, cost int64) time.Duration
}

// Counted is the Params of algorithms that count what is charged in each window, in a state whose size does
// not depend on the limit. With a limit that is never reached, they only count.
type Counted interface {
	Params
	// Unbounded returns the name of the field with the limit, and its value for no bound.
	Unbounded() (field string, most int64)
}

// NoBound is a limit of a Counted that is never reached. Every store can count to it.
const NoBound = 1 << 50

// Entered is the Params of algorithms without a Rule that a request enters and leaves: it holds a
// place while it is in flight.
type Entered interface {
	Params
	// Places is how many there are, and the rest of what a holder needs.
	Places() Concurrency
}

// PlacesOf is the places of a limit of package weir; ok is false for a limit that is not entered.
func PlacesOf(limit any) (p Concurrency, ok bool) {
	of, ok := ParamsOf(limit).(Entered)
	if ok {
		p = of.Places()
	}
	return p, ok
}

// A Use is part of what a key is taken to have used when an outage begins.
type Use struct {
	Before time.Duration // how long before now
	Cost   int64         // at most
	Keep   int64         // the least that is left to the key
}

// Leased is the Params of algorithms whose tokens can be leased: taken from a store ahead of their
// use.
type Leased interface {
	Params
	// LeaseEnds is how much longer tokens that are charged now are counted as of now, so that using
	// them within that time admits nothing that the limit would not. reset is the ResetAfter just
	// after the charge, and unit is what it may be rounded up by. ok is false for a bucket, which
	// has no such time.
	LeaseEnds(reset, unit time.Duration) (d time.Duration, ok bool)
	// LongestLease is the longest that LeaseEnds can be.
	LongestLease() time.Duration
	// LeasePause is the least time between two calls of a store about a key that was refused. It is
	// short enough that no bucket fills up and no window stays unused; 0 if capacity returns all at
	// once.
	LeasePause(lifetime time.Duration) time.Duration
	// MoreWait is how much longer it takes until a cost fits that is larger by more; ok is false if
	// that is unknown.
	MoreWait(more int64) (d time.Duration, ok bool)
	// LeaseResets reports whether a lease ends for good at the state's reset, as a window does.
	LeaseResets() bool
}

// A Field is a parameter.
type Field struct {
	Name     string // as policy files write it
	Type     FieldType
	Required bool
	Unless   *Unless // a required field may be left out then
	Word     string  // a word that may stand in place of the value, such as "none"
	WordIs   int64   // the value that it stands for
	Default  string  // in words; "" for none
	Doc      string  // one sentence
}

// Unless is a case in which a field is not required: another field matches a regular expression.
type Unless struct{ Field, Pattern string }

// A FieldType is how a parameter is written.
type FieldType uint8

// The types of fields.
const (
	RateField     FieldType = iota // 100/s
	CountField                     // a whole number
	DurationField                  // 500ms
	NumberField                    // a fraction
	AlignField                     // where windows begin
)

// Kinds is every algorithm, in the order of the documentation.
func Kinds() []*Kind {
	return []*Kind{
		&tokenBucketKind,
		&leakyBucketKind,
		&intervalBucketKind,
		&fixedWindowKind,
		&slidingWindowKind,
		&slidingCounterKind,
		&slidingLogKind,
		&smoothBurstyKind,
		&warmUpKind,
		&nginxBucketKind,
		&concurrencyKind,
	}
}

// KindOf is the kind of a limit of package weir; nil for an All, and for nil.
func KindOf(limit any) *Kind {
	if limit == nil {
		return nil
	}
	name := reflect.TypeOf(limit).Name()
	for _, k := range Kinds() {
		if k.GoName == name {
			return k
		}
	}
	return nil
}

// Lists reports whether a store's state of any of these limits lists its outstanding reservations.
func Lists[L any](limits []L) bool {
	return slices.ContainsFunc(limits, func(l L) bool {
		k := KindOf(l)
		return k != nil && k.Lists
	})
}

// ParamsOf is the parameters of a limit of package weir; nil for an All, and for nil. It copies
// field by field, by name: this package cannot import package weir, and package weir does not
// export what only this package needs.
func ParamsOf(limit any) Params {
	k := KindOf(limit)
	if k == nil {
		return nil
	}
	p := reflect.New(reflect.TypeOf(k.Zero)).Elem()
	copyFields(p, reflect.ValueOf(limit))
	return p.Interface().(Params)
}

// WithParams is a limit of package weir with other parameters of its kind.
func WithParams[L any](limit L, p Params) L {
	l := reflect.New(reflect.TypeOf(limit)).Elem()
	copyFields(l, reflect.ValueOf(p))
	return l.Interface().(L)
}

// copyFields sets each field that both structs have.
func copyFields(to, from reflect.Value) {
	for i := range to.NumField() {
		if f := from.FieldByName(to.Type().Field(i).Name); f.IsValid() {
			to.Field(i).Set(f.Convert(to.Field(i).Type()))
		}
	}
}
