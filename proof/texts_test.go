package proof

import (
	"cmp"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// The checker does not search from a state again that equals one from which it found no order. So
// two states may have equal texts only if each later call has equal outcomes on both. A text that
// leaves a part out makes it call a correct history wrong. That is why these texts have every
// field of the model, and no algorithm says by itself what belongs to its state.

// A printer writes the text of a model. It gives reservations numbers in the order in which it meets
// them, because those of the model depend on the order of calls that changed nothing else.
type printer struct {
	strings.Builder
	numbers map[int64]int // by the model's number
	known   bool          // the open reservations have their numbers: others cannot be settled any more
}

// textOf returns the text of a model. reservations are the model's numbers of the open
// reservations, by the numbers of the calls that made them.
func textOf(m *weirtest.Model, reservations map[int]int) string {
	p := printer{numbers: map[int64]int{}}
	model := reflect.ValueOf(m).Elem()
	charges := model.FieldByName("charges")
	calls := make([]int, 0, len(reservations))
	for call := range reservations {
		calls = append(calls, call)
	}
	slices.Sort(calls)
	for _, call := range calls {
		fmt.Fprint(&p, call, ":")
		p.value(charges.MapIndex(reflect.ValueOf(reservations[call])))
	}
	p.known = true
	p.fields(model, "charges")
	return p.String()
}

func (p *printer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		fmt.Fprint(p, v.Bool())
	case reflect.Int, reflect.Int64:
		fmt.Fprint(p, v.Int())
	case reflect.Uint, reflect.Uint64:
		fmt.Fprint(p, v.Uint())
	case reflect.String:
		fmt.Fprintf(p, "%q", v.String())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			p.WriteString("nil")
			return
		}
		if v.Kind() == reflect.Interface {
			p.WriteString(v.Elem().Type().String())
		}
		p.value(v.Elem())
	case reflect.Slice, reflect.Array:
		p.WriteByte('[')
		for i := range v.Len() {
			p.value(v.Index(i))
			p.WriteByte(' ')
		}
		p.WriteByte(']')
	case reflect.Map:
		p.entries(v)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[big.Rat]() {
			p.fraction(v)
			return
		}
		p.fields(v)
	default:
		panic(fmt.Sprintf("a %v has no text yet", v.Type()))
	}
}

// fields writes the fields of a struct except some. Those that count the reservations so far say
// nothing about later calls.
func (p *printer) fields(v reflect.Value, except ...string) {
	p.WriteByte('{')
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; {
		case name == "ids" || slices.Contains(except, name):
		case name == "id":
			p.reservation(v.Field(i).Int())
		default:
			p.value(v.Field(i))
		}
		p.WriteByte(' ')
	}
	p.WriteByte('}')
}

// reservation writes the number of a reservation. 0 is none.
func (p *printer) reservation(id int64) {
	n, ok := p.numbers[id]
	switch {
	case id == 0:
		p.WriteString("none")
	case ok:
		fmt.Fprint(p, "#", n)
	case p.known:
		p.WriteString("closed")
	default:
		p.numbers[id] = len(p.numbers)
		fmt.Fprint(p, "#", p.numbers[id])
	}
}

func (p *printer) entries(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.Kind() == reflect.String {
			return cmp.Compare(a.String(), b.String())
		}
		return cmp.Compare(a.Int(), b.Int())
	})
	for _, k := range keys {
		p.value(k)
		p.WriteByte('=')
		p.value(v.MapIndex(k))
		p.WriteByte(' ')
	}
}

// fraction writes a big.Rat from its fields, because a method of a field that is not exported
// cannot be called. A denominator without digits is 1.
func (p *printer) fraction(v reflect.Value) {
	digits := func(i int) (sign bool, s string) {
		n := v.Field(i)
		for j := range n.FieldByName("abs").Len() {
			s += fmt.Sprintf("%x.", n.FieldByName("abs").Index(j).Uint())
		}
		return n.FieldByName("neg").Bool(), s
	}
	minus, a := digits(0)
	_, b := digits(1)
	if b == "" {
		b = "1."
	}
	fmt.Fprint(p, minus, a, "/", b)
}

// TestTextsOfStates: states on which a later call has other outcomes have other texts. In both
// cases the count and the window are the same, and so were they around each reservation.
func TestTextsOfStates(t *testing.T) {
	limit := weir.FixedWindow{Limit: 5, Window: 6000, Align: weir.AlignFirst}
	other := weir.FixedWindow{Limit: 5, Window: 4000, Align: weir.AlignFirst}
	for name, play := range map[string]func(m *weirtest.Model, swapped bool) map[int]int{
		"times of charges": func(m *weirtest.Model, swapped bool) map[int]int {
			open := map[int]int{}
			for i, cost := range []int64{1, 1, 2} {
				now := int64(400 * i)
				if swapped && i > 0 {
					now = 400 * int64(3-i)
				}
				open[i], _, _ = m.Reserve(now, cost, 0)
			}
			return map[int]int{0: open[0]}
		},
		"a change of the limit": func(m *weirtest.Model, swapped bool) map[int]int {
			if swapped {
				m.SetLimit(0, other)
			}
			id, _, _ := m.Reserve(0, 1, 0)
			if !swapped {
				m.SetLimit(0, other)
			}
			return map[int]int{0: id}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := weirtest.NewModel(limit, 1), weirtest.NewModel(limit, 1)
			openA, openB := play(a, false), play(b, true)
			if a.String() != b.String() {
				t.Fatalf("the case is none: %s, %s", a, b)
			}
			textA, textB := textOf(a, openA), textOf(b, openB)
			a.Settle(900, openA[0], 0)
			b.Settle(900, openB[0], 0)
			if a.Peek(900, 1) == b.Peek(900, 1) {
				t.Fatal("the case is none: both go on alike")
			}
			if textA == textB {
				t.Errorf("equal texts: %s", textA)
			}
		})
	}
}
