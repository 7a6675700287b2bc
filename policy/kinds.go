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

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/snake"
)

// algorithms returns every algorithm by its name in files and scripts.
func algorithms() map[string]weir.Limit {
	known := map[string]weir.Limit{}
	for _, l := range weir.Algorithms() {
		known[weir.Algorithm(l)] = l
	}
	return known
}

// Algorithms returns the names of the algorithms, such as token_bucket, sorted.
func Algorithms() []string { return slices.Sorted(maps.Keys(algorithms())) }

// Fields returns the names of an algorithm's fields, in order. It returns nil for an unknown
// algorithm.
func Fields(algorithm string) (names []string) {
	for _, k := range rules.Kinds() {
		if k.Name == algorithm {
			for _, f := range k.Fields {
				names = append(names, f.Name)
			}
		}
	}
	return names
}

// A FieldError says which field of a limit is wrong. Field is empty if the algorithm itself is
// wrong, or if the error is about no single field.
type FieldError struct {
	Field string
	Err   error
	Fix   string // what to write instead; may be empty
}

// Error returns the message, with the name of the field.
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

// ParseLimit returns a limit of the given algorithm. The fields have the names of a policy file.
// Their values are texts, or numbers where a number is expected. The error is a *FieldError.
func ParseLimit(algorithm string, fields map[string]any) (weir.Limit, error) {
	l, ok := algorithms()[algorithm]
	if !ok {
		return nil, &FieldError{Err: fmt.Errorf("there is no algorithm %q", algorithm), Fix: suggest(algorithm, Algorithms())}
	}
	l, err := WithFields(l, fields)
	var wrong *FieldError
	if !errors.As(err, &wrong) || wrong.Field == "" {
		return l, err
	}
	if _, given := fields[wrong.Field]; !given {
		wrong.Err = errors.New("it is missing") // the text is about a 0 that nobody has written
		for _, f := range rules.KindOf(algorithms()[algorithm]).Fields {
			if f.Name == wrong.Field {
				wrong.Fix = f.Doc
			}
		}
	}
	return l, err
}

// WithFields returns a limit with some of its fields changed.
func WithFields(l weir.Limit, fields map[string]any) (weir.Limit, error) {
	v := reflect.New(reflect.TypeOf(l)).Elem()
	v.Set(reflect.ValueOf(l))
	var known []string
	var described []rules.Field
	if k := rules.KindOf(l); k != nil {
		known, described = Fields(k.Name), k.Fields
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, &FieldError{name, fmt.Errorf("%s has no %q", weir.Algorithm(l), name), unknownField(weir.Algorithm(l), name, known, fields)}
		}
		if err := setField(v.Field(i), described[i], fields[name]); err != nil {
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

// unknownField returns the fix for a field that an algorithm does not have, as NAME=VALUE: scripts and
// commands write fields so. In a policy file, the schema finds such fields first.
func unknownField(algorithm, name string, known []string, fields map[string]any) string {
	others := map[string]string{}
	for field, value := range fields {
		others[field] = fmt.Sprint(value)
	}
	var words []string
	for _, f := range MeantFields(algorithm, name, others[name], others) {
		words = append(words, f.Name+"="+f.Value)
	}
	if len(words) > 0 {
		return "write " + strings.Join(words, " ")
	}
	return suggest(name, known)
}

// suggest returns the fix for an unknown name.
func suggest(name string, known []string) string {
	if near := nearest.To(name, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "known: " + strings.Join(known, ", ")
}

// setField parses a value into a field, according to the field's description.
func setField(f reflect.Value, as rules.Field, value any) error {
	if text, ok := value.(string); ok && as.Word != "" && text == as.Word && as.Type != rules.RateField {
		f.SetInt(as.WordIs)
		return nil
	}
	switch as.Type {
	case rules.RateField:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v is not a rate: write it like 100/s", value)
		}
		r, err := weir.ParseRate(text)
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "weir: "))
		}
		f.Set(reflect.ValueOf(r))
	case rules.DurationField:
		text, _ := value.(string)
		d, err := duration.Parse(text)
		if err != nil {
			return fmt.Errorf("%v is not a duration: write it like 500ms, 1h30m or 1d", value)
		}
		f.SetInt(int64(d))
	case rules.CountField:
		n, err := wholeNumber(value)
		if err == nil && f.OverflowInt(n) {
			err = fmt.Errorf("%v is too large", value)
		}
		if err != nil {
			return err
		}
		f.SetInt(n)
	case rules.NumberField:
		n, err := number(value)
		if err != nil {
			return err
		}
		f.SetFloat(n)
	case rules.AlignField:
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("%v is not a valid align: write epoch, first, or one of the calendar, like month:Europe/Berlin", value)
		}
		f.SetString(text)
	default:
		return fmt.Errorf("this version cannot read a %s", f.Type())
	}
	return nil
}

// number converts a value from a file or a script to a float64.
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

// wholeNumber converts a value from a file or a script to an int64.
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
