package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/internal/snake"
)

// kinds is every limit by its name in files and scripts, which is that of its type. Their fields are found by reflection, so that a
// limit is known here by one line.
func kinds() map[string]weir.Limit {
	known := map[string]weir.Limit{}
	for _, l := range []weir.Limit{
		weir.TokenBucket{},
		weir.LeakyBucket{},
		weir.IntervalBucket{},
		weir.FixedWindow{},
		weir.SlidingWindow{},
		weir.SlidingCounter{},
		weir.SlidingLog{},
		weir.SmoothBursty{},
		weir.WarmUp{},
		weir.NginxBucket{},
		weir.Concurrency{},
	} {
		known[weir.Kind(l)] = l
	}
	return known
}

// Kinds returns the names of the limits, as in token_bucket, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds())) }

// Fields returns the names of the fields of a kind of limit, in order; nil for a kind that there is not.
func Fields(kind string) (names []string) {
	l, ok := kinds()[kind]
	if !ok {
		return nil
	}
	for f := range reflect.TypeOf(l).Fields() {
		names = append(names, snake.Case(f.Name))
	}
	return names
}

// A FieldError says which field of a limit is wrong. Field is empty where the kind itself is, or where the error is about no one field.
type FieldError struct {
	Field string
	Err   error
	Fix   string // what to write instead, where that can be said
}

// Error names the field.
func (e *FieldError) Error() string {
	text := e.Err.Error()
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Fix != "" {
		text += " (" + e.Fix + ")"
	}
	return text
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// ParseLimit makes a limit of a kind from its fields, which are named as in a policy file and hold texts, or numbers where numbers are
// meant. The error is a *FieldError.
func ParseLimit(kind string, fields map[string]any) (weir.Limit, error) {
	l, ok := kinds()[kind]
	if !ok {
		return nil, &FieldError{Err: fmt.Errorf("there is no limit %q", kind), Fix: suggest(kind, Kinds())}
	}
	return WithFields(l, fields)
}

// WithFields returns a limit with some of its fields changed.
func WithFields(l weir.Limit, fields map[string]any) (weir.Limit, error) {
	v := reflect.New(reflect.TypeOf(l)).Elem()
	v.Set(reflect.ValueOf(l))
	known := Fields(weir.Kind(l))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, &FieldError{name, fmt.Errorf("a %s has no %q", weir.Kind(l), name), suggest(name, known)}
		}
		if err := setField(v.Field(i), name, fields[name]); err != nil {
			return nil, &FieldError{Field: name, Err: err}
		}
	}
	l = v.Interface().(weir.Limit)
	if err := l.Validate(); err != nil {
		var wrong *weir.FieldError
		if errors.As(err, &wrong) {
			return nil, &FieldError{Field: snake.Case(wrong.Field), Err: wrong.Err}
		}
		return nil, &FieldError{Err: err}
	}
	return l, nil
}

// suggest is the fix for a name that is not known.
func suggest(name string, known []string) string {
	if near := nearest.To(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known: " + strings.Join(known, ", ")
}

// setField reads a value into a field.
func setField(f reflect.Value, name string, value any) error {
	switch f.Interface().(type) {
	case weir.Rate:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v is not a rate: write it like 100/s", value)
		}
		r, err := weir.ParseRate(text)
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "weir: "))
		}
		f.Set(reflect.ValueOf(r))
	case time.Duration:
		d, err := durationOf(value, name)
		if err != nil {
			return err
		}
		f.SetInt(int64(d))
	case int64, int:
		n, err := wholeNumber(value)
		if name == "initial" && value == "empty" {
			n, err = weir.InitialEmpty, nil
		}
		if err == nil && f.OverflowInt(n) {
			err = fmt.Errorf("%v is too large", value)
		}
		if err != nil {
			return err
		}
		f.SetInt(n)
	case float64:
		n, err := number(value)
		if err != nil {
			return err
		}
		f.SetFloat(n)
	case weir.Align:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v is no alignment: write epoch, first, or one of the calendar, like month:Europe/Berlin", value)
		}
		f.SetString(text)
	default:
		return fmt.Errorf("this version cannot read a %s", f.Type())
	}
	return nil
}

// durationOf reads a duration. For how long permits are stored there is a word besides: for not at all.
func durationOf(value any, name string) (time.Duration, error) {
	text, _ := value.(string)
	if name == "max_burst" && text == "none" {
		return -1, nil
	}
	d, err := duration.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("%v is not a duration: write it like 500ms, 1h30m or 1d", value)
	}
	return d, nil
}

// number reads a float64 from what a file or a script holds.
func number(value any) (float64, error) {
	switch v := value.(type) {
	case float64:
		return v, nil
	case int64:
		return float64(v), nil
	case int:
		return float64(v), nil
	case string:
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%v is not a number", value)
}

// wholeNumber reads an int64 from what a file or a script holds.
func wholeNumber(value any) (int64, error) {
	switch v := value.(type) {
	case int64:
		return v, nil
	case int:
		return int64(v), nil
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v), nil
		}
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<63 {
			return int64(v), nil
		}
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%v is not a whole number up to %d", value, int64(math.MaxInt64))
}
