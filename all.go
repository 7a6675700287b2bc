package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// All joins up to 8 limits into one that charges each of them or none: ten a second, a thousand an
// hour, and a hundred thousand a month. All parts are evaluated at one reading of the clock. The
// result is a Limit like any other, comparable by Equal. A nested All is flattened. Validate
// reports invalid parts, such as Concurrency, which is entered and not taken.
//
// A decision combines those of the parts:
//
//   - Limit and Remaining are the least of all parts.
//   - RetryAfter is the longest of the parts that refuse; Never counts as the longest.
//   - ResetAfter is the longest of all parts.
//   - By names one part by its algorithm and its place, counted from 1: "token_bucket.2", or
//     "api/token_bucket.2" for a limiter named "api".
//
// By names the part that refused with the longest wait. A part that the cost can never fit comes
// before all others, and the first part wins a tie. If the call was allowed, By names the first
// part with the least Remaining.
//
// All cannot charge ahead: work that one part charges now and another delays would go at a time
// that the first has not counted. So Reserve succeeds only if nothing has to be delayed. Wait and
// Join queue, and charge when the turn comes. Cancel and Settle give back to each part what it can
// take.
//
// SetLimit between two Alls, or between an All and a single limit, pairs the parts: first those of
// the same algorithm, in order; then the rest, in order, as changes of algorithm. Parts without a
// partner start unused. A part that did not change keeps its state exactly. If the All starts or stops
// reading wall time, every part counts as a change of algorithm.
//
// If one of the parts reads wall time (see FixedWindow), all of them do. State: that of all parts,
// and two words for each.
func All(limits ...Limit) Limit {
	var a allOf
	a.add(limits)
	return a
}

// Parts returns the limits that All joined, or any other limit by itself.
func Parts(l Limit) []Limit {
	if a, ok := l.(allOf); ok {
		return append([]Limit(nil), a.parts[:min(a.n, rules.MaxParts)]...)
	}
	return []Limit{l}
}

// PartNames returns the names of the parts of an All in decisions, as in "token_bucket.2", and nil
// for any other limit.
func PartNames(l Limit) (names []string) {
	if a, ok := l.(allOf); ok {
		for i, p := range a.parts[:min(a.n, rules.MaxParts)] {
			names = append(names, partName(p, i))
		}
	}
	return names
}

type allOf struct {
	parts [rules.MaxParts]Limit
	n     int // how many limits were given; more than MaxParts is an error
}

func (l *allOf) add(limits []Limit) {
	for _, p := range limits {
		if inner, ok := p.(allOf); ok {
			l.add(inner.parts[:min(inner.n, rules.MaxParts)])
			l.n += max(inner.n-rules.MaxParts, 0)
			continue
		}
		if l.n < rules.MaxParts {
			l.parts[l.n] = p
		}
		l.n++
	}
}

// Validate returns the error of the first invalid part, by its place.
func (l allOf) Validate() error {
	_, err := l.compile(time.Nanosecond)
	if err == nil || l.n == 0 || l.n > rules.MaxParts {
		return err
	}
	for i, p := range l.parts[:l.n] {
		if _, entered := p.(Concurrency); p == nil || entered || p.Validate() != nil {
			_, err := l.part(i, time.Nanosecond)
			return err
		}
	}
	return nil // every part is valid: only the unit of a nanosecond is too coarse
}

func (l allOf) compile(unit time.Duration) (rules.Rule, error) {
	switch {
	case l.n == 0:
		return nil, field("All", "limits", errors.New("there are none: name at least one"))
	case l.n > rules.MaxParts:
		return nil, field("All", "limits", fmt.Errorf("%d are too many: at most %d", l.n, rules.MaxParts))
	}
	parts := make([]rules.Part, l.n)
	for i := range parts {
		r, err := l.part(i, unit)
		if err != nil {
			return nil, err
		}
		parts[i] = rules.Part{Rule: r, Limit: l.parts[i].normal()}
	}
	return rules.NewAll(parts, unit), nil
}

// part compiles one of the limits.
func (l allOf) part(i int, unit time.Duration) (rules.Rule, error) {
	p := l.parts[i]
	if p == nil {
		return nil, field("All", fmt.Sprintf("limits.%d", i+1), errors.New("it is nil: pass one of the limits of this package"))
	}
	r, err := p.compile(unit)
	var wrong *FieldError
	switch {
	case err == nil:
		return r, nil
	case errors.As(err, &wrong):
		return nil, field("All", partName(p, i)+"."+wrong.Field, wrong.Err)
	}
	return nil, field("All", partName(p, i), errors.New(strings.TrimPrefix(err.Error(), "weir: ")))
}

func (l allOf) normal() Limit {
	for i, p := range l.parts {
		if p != nil {
			l.parts[i] = p.normal()
		}
	}
	return l
}

// partName is the name of the part at a place, counted from 0, in decisions.
func partName(l Limit, place int) string { return fmt.Sprintf("%s.%d", Algorithm(l), place+1) }

// decisionNames returns the By of each part of an All, in order; nil for any other limit.
func decisionNames(l Limit, limiter string) []string {
	names := PartNames(l)
	if limiter != "" {
		for i := range names {
			names[i] = limiter + "/" + names[i]
		}
	}
	return names
}
