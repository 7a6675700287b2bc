package weirkv

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/rules"
)

// unit is the clock unit of states.
const unit = time.Microsecond

// mostWords bounds the state of a limit, so that a value stays well below the megabyte that stores accept.
const mostWords = 1 << 15

// mostLimits bounds how many limits are kept compiled.
const mostLimits = 1024

// A compiled limit, with what a value says about it.
type compiled struct {
	weir.Prepared
	part  rules.Part
	rule  rules.Rule
	text  string // as values have it
	fades bool   // a used state becomes idle after a while
}

// limits keeps limits compiled.
type limits struct {
	mu     sync.RWMutex
	byText map[string]*compiled
	byName map[weir.Limit]*compiled
}

// Check returns why a limit cannot be kept in such a store; nil if it can.
func Check(l weir.Limit) error {
	_, err := compile(l)
	return err
}

// Keeps implements weir.Keeper: it is Check.
func (s *Store) Keeps(l weir.Limit) error { return Check(l) }

func compile(l weir.Limit) (*compiled, error) {
	if l == nil {
		return nil, errors.New("there is no limit")
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	c, words := &compiled{fades: true}, int64(0)
	for _, part := range weir.Parts(l) {
		p := rules.ParamsOf(part)
		if why := p.Kind().NoStore; why != "" {
			return nil, fmt.Errorf("a store does not keep %s: %s", p.Kind().Name, why)
		}
		if p.MostWords() < 0 || p.MostWords() > mostWords-words {
			return nil, tooLong(p, mostWords-words)
		}
		words += p.MostWords()
		c.fades = c.fades && p.Resets()
	}
	var err error
	if c.Prepared, err = weir.Prepare(l, unit); err != nil {
		return nil, err
	}
	c.part, c.text = c.Prepared.Rule(), string(appendLimit(nil, l))
	c.rule = c.part.Rule
	return c, nil
}

// tooLong is the error of a limit whose states may be too long for the room that is left in a value.
func tooLong(p rules.Params, room int64) error {
	const entry = 8 // words, as a log's MostWords counts
	if list, ok := p.(rules.Stored); ok {
		_, err := list.StoreNumbers(rules.Counting{Store: "memcached, etcd and NATS", Unit: unit, Most: math.MaxInt64, MostTicks: math.MaxInt64, MostEntries: room / entry})
		var wrong *rules.FieldError
		if errors.As(err, &wrong) {
			return fmt.Errorf("%s.%w", p.Kind().GoName, wrong)
		}
	}
	return fmt.Errorf("a state of %s may have %d numbers, and a value has room for %d", p.Kind().GoName, p.MostWords(), room)
}

// of returns a limit compiled.
func (s *limits) of(l weir.Limit) (*compiled, error) {
	s.mu.RLock()
	c := s.byName[l]
	s.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := compile(l)
	if err != nil {
		return nil, err
	}
	return s.keep(c), nil
}

// read returns the limit that a value was written under.
func (s *limits) read(text []byte) (*compiled, error) {
	s.mu.RLock()
	c := s.byText[string(text)]
	s.mu.RUnlock()
	if c != nil {
		return c, nil
	}
	r := packed.NewReader(text)
	l, err := readLimit(r)
	if err == nil {
		err = r.End()
	}
	if err == nil {
		c, err = compile(l)
	}
	if err != nil {
		return nil, fmt.Errorf("the limit that the state was written under: %w", err)
	}
	return s.keep(c), nil
}

func (s *limits) keep(c *compiled) *compiled {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byText) >= mostLimits || len(s.byName) >= mostLimits {
		s.byText, s.byName = nil, nil
	}
	if s.byText == nil {
		s.byText, s.byName = map[string]*compiled{}, map[weir.Limit]*compiled{}
	}
	s.byText[c.text], s.byName[c.Limit()] = c, c
	return c
}

// is reports whether two limits decide alike.
func (c *compiled) is(o *compiled) bool { return c == o || c.part.Limit == o.part.Limit }

// appendLimit appends a limit: how many parts it has, and for each the name of its algorithm and its
// parameters, field by field.
func appendLimit(b []byte, l weir.Limit) []byte {
	parts := weir.Parts(l)
	if rules.KindOf(l) != nil {
		b = packed.Uint(b, 0)
	} else {
		b = packed.Uint(b, uint64(len(parts)))
	}
	for _, part := range parts {
		b = packed.Bytes(b, weir.Algorithm(part))
		b = packed.Bytes(b, appendValue(nil, reflect.ValueOf(part)))
	}
	return b
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
	case v.CanInt():
		b = packed.Int(b, v.Int())
	case v.CanUint():
		b = packed.Uint(b, v.Uint())
	case v.CanFloat():
		b = packed.Uint(b, math.Float64bits(v.Float()))
	case v.Kind() == reflect.Bool:
		b = packed.Bool(b, v.Bool())
	case v.Kind() == reflect.String:
		b = packed.Bytes(b, v.String())
	}
	return b
}

// readLimit reads what appendLimit wrote. The limit may be invalid.
func readLimit(r *packed.Reader) (weir.Limit, error) {
	n := r.Count(rules.MaxParts)
	parts := make([]weir.Limit, max(n, 1))
	for i := range parts {
		name := string(r.Bytes())
		for _, zero := range weir.Algorithms() {
			if weir.Algorithm(zero) == name {
				parts[i] = readParameters(r, zero)
			}
		}
		if parts[i] == nil || r.Err() != nil {
			return nil, fmt.Errorf("%w, or of a later version: %.40q is no algorithm with its parameters", packed.ErrMalformed, name)
		}
	}
	if n == 0 {
		return parts[0], nil
	}
	return weir.All(parts...), nil
}

// readParameters reads the parameters of an algorithm, given by a limit without any.
func readParameters(r *packed.Reader, zero weir.Limit) weir.Limit {
	of := packed.NewReader(r.Bytes())
	v := reflect.New(reflect.TypeOf(zero)).Elem()
	readValue(of, v)
	if of.End() != nil {
		r.Fail()
		return nil
	}
	return v.Interface().(weir.Limit)
}

func readValue(r *packed.Reader, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			readValue(r, v.Field(i))
		}
	case v.CanInt():
		n := r.Int()
		if v.OverflowInt(n) {
			r.Fail()
			return
		}
		v.SetInt(n)
	case v.CanUint():
		n := r.Uint()
		if v.OverflowUint(n) {
			r.Fail()
			return
		}
		v.SetUint(n)
	case v.CanFloat():
		v.SetFloat(math.Float64frombits(r.Uint()))
	case v.Kind() == reflect.Bool:
		v.SetBool(r.Bool())
	case v.Kind() == reflect.String:
		v.SetString(string(r.Bytes()))
	}
}
