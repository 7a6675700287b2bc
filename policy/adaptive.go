package policy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/snake"
)

// Adaptive is a limit of requests in flight that finds itself: see package adaptive. Of an upstream,
// each target has one of its own.
type Adaptive struct {
	On        bool
	Algorithm adaptive.Algorithm // default: adaptive.Knee{}
	Queue     adaptive.Queue     // default: requests do not wait
}

// String returns what a policy file has for it; empty if there is no such limit.
func (a Adaptive) String() string {
	if !a.On {
		return ""
	}
	var parts []string
	if a.Algorithm != nil {
		v := reflect.ValueOf(a.Algorithm)
		parts = append(parts, adaptiveName(v.Type())+": "+algorithmText(v))
	}
	if q := a.Queue; q != (adaptive.Queue{}) {
		parts = append(parts, fmt.Sprintf("queue: { length: %d, wait: %s, order: %s }", q.Length, duration.Format(cmp.Or(q.Wait, defaultQueueWait)), QueueOrders()[min(int(q.Order), 2)]))
	}
	return strings.ReplaceAll("{ "+strings.Join(parts, ", ")+" }", "{  }", "{ }")
}

// defaultQueueWait is that of package adaptive.
const defaultQueueWait = 100 * time.Millisecond

// QueueOrders returns the names of the values of adaptive.Order.
func QueueOrders() []string { return []string{"fifo", "lifo", "adaptive_lifo"} }

// Limiter returns a limiter for it, nil for none. The name becomes Decision.By. The source is for BBR.
func (a Adaptive) Limiter(name string, source signals.Source) (*adaptive.Limiter, error) {
	return a.limiter(name, source, nil)
}

// limiter is Limiter, in virtual time if it gets a clock. There, requests do not wait in the queue, and no signal
// is over its threshold.
func (a Adaptive) limiter(name string, source signals.Source, clock func() int64) (*adaptive.Limiter, error) {
	if !a.On {
		return nil, nil
	}
	if clock != nil {
		a.Queue = adaptive.Queue{} // its waits would end in real time
		if source == nil {
			source = new(signals.Reading) // virtual time is of no machine
		}
	}
	return adaptive.New(adaptive.Options{Algorithm: a.Algorithm, Queue: a.Queue, Name: name, Clock: clock, Signals: source})
}

// adaptivePrefix begins the names of adaptive limits, where the name of a limit is expected. No limit of a
// policy has a colon in its name.
const adaptivePrefix = "adaptive:"

// adaptives are the algorithms that a policy can name.
var adaptives = []adaptive.Algorithm{adaptive.Knee{}, adaptive.AIMD{}, adaptive.Vegas{}, adaptive.Gradient2{}, adaptive.BBR{}}

// adaptiveName returns the name of an algorithm in files.
func adaptiveName(t reflect.Type) string { return strings.ToLower(t.Name()) }

// AdaptiveAlgorithms returns the names of the algorithms of adaptive limits, such as knee.
func AdaptiveAlgorithms() (names []string) {
	for _, a := range adaptives {
		names = append(names, adaptiveName(reflect.TypeOf(a)))
	}
	return names
}

// AdaptiveFields returns the names of an algorithm's fields, in order; nil for an unknown one.
func AdaptiveFields(algorithm string) (names []string) {
	for _, a := range adaptives {
		t := reflect.TypeOf(a)
		for i := 0; adaptiveName(t) == algorithm && i < t.NumField(); i++ {
			names = append(names, snake.Case(t.Field(i).Name))
		}
	}
	return names
}

// ParseAdaptive returns an algorithm with the fields that a policy file has, by their names there. Their
// values are texts and numbers, and for thresholds a map of them. The error is a *FieldError.
func ParseAdaptive(algorithm string, fields map[string]any) (adaptive.Algorithm, error) {
	at := slices.Index(AdaptiveAlgorithms(), algorithm)
	if at < 0 {
		return nil, &FieldError{Err: fmt.Errorf("there is no algorithm %q", algorithm), Fix: suggest(algorithm, AdaptiveAlgorithms())}
	}
	v := reflect.New(reflect.TypeOf(adaptives[at])).Elem()
	known := AdaptiveFields(algorithm)
	for name, value := range fields {
		i := slices.Index(known, name)
		if i < 0 {
			return nil, &FieldError{Field: name, Err: fmt.Errorf("%s has no %q", algorithm, name), Fix: suggest(name, known)}
		}
		if err := setAdaptive(v.Field(i), value); err != nil {
			var inside *FieldError
			if errors.As(err, &inside) {
				return nil, &FieldError{Field: name + "." + inside.Field, Err: inside.Err, Fix: inside.Fix}
			}
			return nil, &FieldError{Field: name, Err: err, Fix: adaptiveFix(v.Field(i), name)}
		}
	}
	a, _ := v.Interface().(adaptive.Algorithm)
	return a, checkAdaptive(a)
}

// setAdaptive sets a field of an algorithm. 0 would be its default, so it is an error.
func setAdaptive(f reflect.Value, value any) error {
	if f.Type() == reflect.TypeFor[signals.Thresholds]() {
		return setThresholds(f, value)
	}
	number, float := int64(0), math.NaN()
	switch v := value.(type) {
	case int64:
		number, float = v, float64(v)
	case float64:
		float = v
	case string:
		if f.Type() != reflect.TypeFor[time.Duration]() {
			return fmt.Errorf("%q is not a number", v)
		}
		d, err := duration.Parse(v)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not a duration above 0", v)
		}
		f.SetInt(int64(d))
		return nil
	}
	switch {
	case f.Type() == reflect.TypeFor[time.Duration]():
		return fmt.Errorf("%v is not a duration: its unit is missing", value)
	case f.CanFloat() && float > 0:
		f.SetFloat(float)
	case f.CanInt() && number > 0:
		f.SetInt(number)
	case f.CanFloat():
		return fmt.Errorf("%v is not a number above 0", value)
	default:
		return fmt.Errorf("%v is not a whole number of at least 1", value)
	}
	return nil
}

// adaptiveFix returns a line with a value that a field may have.
func adaptiveFix(f reflect.Value, name string) string {
	switch {
	case f.Type() == reflect.TypeFor[time.Duration]():
		return name + ": 5s"
	case f.CanFloat():
		return "write a number above 0, or take it out"
	}
	return "write at least 1, or take it out"
}

// checkAdaptive validates an algorithm. The error is a *FieldError.
func checkAdaptive(a adaptive.Algorithm) error {
	err := a.Validate()
	var wrong *weir.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		return &FieldError{Field: snake.Case(wrong.Field), Err: wrong.Err}
	}
	return &FieldError{Err: err}
}

// adaptive checks an adaptive limit.
func (c *checker) adaptive(a Adaptive, path ...string) {
	if q := a.Queue; a.On && (q.Length < 0 || q.Length > 1e6 || q.Wait < 0 || q.Wait > time.Minute || q.Order > adaptive.AdaptiveLIFO || q.Length == 0 && q != (adaptive.Queue{})) {
		c.wrong("this is not a queue: it needs a length from 1 to 1,000,000, and a wait of at most 1m", "queue: { length: 20, wait: 100ms }", append(slices.Clone(path), "queue")...)
	}
	if !a.On || a.Algorithm == nil {
		return
	}
	t := reflect.TypeOf(a.Algorithm)
	if !slices.Contains(AdaptiveAlgorithms(), adaptiveName(t)) || t.Kind() != reflect.Struct {
		c.wrong(fmt.Sprintf("%T is no algorithm of a policy", a.Algorithm), "use "+strings.Join(AdaptiveAlgorithms(), ", "), path...)
		return
	}
	if err := checkAdaptive(a.Algorithm); err != nil {
		var wrong *FieldError
		if errors.As(err, &wrong) {
			c.wrong(wrong.Err.Error(), "change it, or take it out for its default", append(slices.Clone(path), adaptiveName(t), wrong.Field)...)
		}
	}
}

// adaptiveOf returns the unique names of the adaptive limits of routes; empty for a route without one.
func (p *Policy) adaptiveOf() []string {
	names := make([]string, len(p.Routes))
	for i, m := range matches(p.Routes) {
		if m.Route.Adaptive.On {
			names[i] = adaptivePrefix + m.Name
		}
	}
	return names
}

// adaptiveUpstream returns the upstream of a route if it has an adaptive limit, or nil.
func (p *Policy) adaptiveUpstream(r *Route) *Upstream {
	for i := range p.Upstreams {
		if u := &p.Upstreams[i]; u.Name == r.Upstream && u.Adaptive.On {
			return u
		}
	}
	return nil
}

// AdaptiveName returns the name of the adaptive limit of an upstream, where the name of a limit is
// expected: as Verdict.Limit and in responses.
func AdaptiveName(upstream string) string { return adaptivePrefix + upstream }
