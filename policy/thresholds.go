package policy

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/adaptive/signals"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/internal/snake"
)

// NeedsSignals reports whether some adaptive limit is a BBR, so that Options.Signals is needed.
func (p *Policy) NeedsSignals() bool {
	is := func(a Adaptive) bool { _, ok := a.Algorithm.(adaptive.BBR); return a.On && ok }
	for i := range p.Upstreams {
		if is(p.Upstreams[i].Adaptive) {
			return true
		}
	}
	for i := range p.Routes {
		if is(p.Routes[i].Adaptive) {
			return true
		}
	}
	return false
}

// thresholdOff is a threshold in a policy file for a signal that is not watched.
const thresholdOff = "off"

// ThresholdNames returns the names of the signals, such as cpu.
func ThresholdNames() (names []string) {
	for _, s := range signals.All() {
		names = append(names, s.String())
	}
	return names
}

// setThresholds sets the thresholds that a map has. The fields of signals.Thresholds are in the order of the
// signals.
func setThresholds(f reflect.Value, value any) error {
	all, ok := value.(map[string]any)
	if !ok {
		return errors.New("thresholds must be a map from signals to levels")
	}
	for name, value := range all {
		s := signals.Signal(-1)
		for _, of := range signals.All() {
			if of.String() == name {
				s = of
			}
		}
		if s < 0 {
			return &FieldError{Field: name, Err: fmt.Errorf("there is no signal %q", name), Fix: suggest(name, ThresholdNames())}
		}
		level, err := threshold(s, value)
		if err != nil {
			return &FieldError{Field: name, Err: err, Fix: "write " + thresholdLike(s, value) + ", or " + thresholdOff}
		}
		f.Field(int(s)).SetFloat(level)
	}
	return nil
}

// thresholdLike is an example of a threshold, and what was meant where percent were written.
func thresholdLike(s signals.Signal, value any) string {
	percent, err := strconv.ParseFloat(strings.TrimSuffix(fmt.Sprint(value), "%"), 64)
	switch {
	case s.IsShare() && err == nil && percent > 1 && percent <= 100:
		return fmt.Sprintf("%v: %g", s, percent/100)
	case s == signals.SchedulerLatency:
		return s.String() + ": 10ms"
	case s.IsShare():
		return s.String() + ": 0.9"
	}
	return s.String() + ": 4"
}

// threshold reads a threshold. Below 0 is one that is not watched.
func threshold(s signals.Signal, value any) (level float64, err error) {
	switch v := value.(type) {
	case int64:
		level = float64(v)
	case float64:
		level = v
	case string:
		if v == thresholdOff {
			return -1, nil
		}
		d, err := duration.Parse(v)
		if s != signals.SchedulerLatency || err != nil || d <= 0 {
			return 0, fmt.Errorf("%q is not a level", v)
		}
		return d.Seconds(), nil
	}
	switch {
	case s == signals.SchedulerLatency:
		return 0, fmt.Errorf("%v is not a duration: its unit is missing", value)
	case !(level > 0) || math.IsInf(level, 0):
		return 0, fmt.Errorf("%v is not a number above 0", value)
	case level > 1 && s.IsShare():
		return 0, fmt.Errorf("%v is above 1, and the level is a share of at most 1", value)
	}
	return level, nil
}

// algorithmText returns an algorithm's parameters as a policy file has them.
func algorithmText(v reflect.Value) string {
	var fields []string
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		text := show(f)
		if t, ok := f.Interface().(signals.Thresholds); ok {
			text = thresholdsText(reflect.ValueOf(t))
		}
		fields = append(fields, snake.Case(v.Type().Field(i).Name)+": "+text)
	}
	return strings.ReplaceAll("{ "+strings.Join(fields, ", ")+" }", "{  }", "{ }")
}

func thresholdsText(v reflect.Value) string {
	var all []string
	for i, s := range signals.All() {
		text := strconv.FormatFloat(v.Field(i).Float(), 'g', -1, 64)
		switch level := v.Field(i).Float(); {
		case level == 0:
			continue
		case level < 0:
			text = thresholdOff
		case s == signals.SchedulerLatency:
			text = duration.Format(time.Duration(math.Round(level * float64(time.Second))))
		}
		all = append(all, s.String()+": "+text)
	}
	return "{ " + strings.Join(all, ", ") + " }"
}
