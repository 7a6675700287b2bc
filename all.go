package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/rules"
)

// All joins up to 8 limits into one that charges each of them or none: ten a second, and a thousand an hour, and a hundred thousand a
// month. They are asked at one reading of the time. All's result is a Limit like any other, comparable by Equal; an All among the limits
// is the same as its limits written out. What is wrong, like Concurrency, which is not taken but entered, Validate says.
//
// A decision's Limit and Remaining are the least of all, its RetryAfter the longest of those that refuse (Never if any of them is never),
// and its ResetAfter the longest of all. By names one limit, by its kind and its place from 1, as in "token_bucket.2", after the
// name of the limiter if that has one: "api/token_bucket.2". That is the one that refused with the longest wait, the first of those on
// a tie, and before all one that the cost can never fit; of an answer that is yes, the first of those with the least Remaining.
//
// All cannot book ahead, as work charged to one limit now, and delayed by another, would go at a time that the first has not counted:
// Reserve succeeds only where nothing has to be delayed. Wait and Join queue, and charge when the turn comes. Cancel and Settle give back
// to each limit what it can take. SetLimit from one All to another, or to or from a single limit, carries each part over to the one of
// the same kind, in order; what is then left over is a change of kind, in order too; and what is new begins untouched. A part that stays
// as it was keeps its state to the last digit. Where the change has the whole read wall time, or no longer, each part is a change of kind.
//
// If one of the limits reads wall time (see FixedWindow), all of them do. State: those of all, and two words for each.
func All(limits ...Limit) Limit {
	var a allOf
	a.add(limits)
	return a
}

// Parts returns the limits that All joined, and any other limit by itself.
func Parts(l Limit) []Limit {
	if a, ok := l.(allOf); ok {
		return append([]Limit(nil), a.parts[:min(a.n, rules.MaxParts)]...)
	}
	return []Limit{l}
}

// PartNames returns what decisions call the limits that All joined, as in "token_bucket.2", and nil for any other limit.
func PartNames(l Limit) (names []string) {
	if a, ok := l.(allOf); ok {
		for i, p := range a.parts[:min(a.n, rules.MaxParts)] {
			names = append(names, partName(p, i))
		}
	}
	return names
}

// allOf is the limit that All returns.
type allOf struct {
	parts [rules.MaxParts]Limit
	n     int // how many there were; what does not fit is an error
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

// Validate reports what is wrong with the limits, by the place of the first that is wrong.
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
	return nil // it is only too fast, or too much, for that unit
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

// partName is what decisions call the limit at a place.
func partName(l Limit, place int) string { return fmt.Sprintf("%s.%d", Kind(l), place+1) }

// decisionNames is what decisions of a limiter call the parts of an All, in order; nil for any other limit.
func decisionNames(l Limit, limiter string) []string {
	names := PartNames(l)
	if limiter != "" {
		for i := range names {
			names[i] = limiter + "/" + names[i]
		}
	}
	return names
}
