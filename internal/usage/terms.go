// Package usage reads what a response says about its own cost, such as the tokens of a language
// model, while the response passes through. It delays nothing, keeps a few numbers in memory, and
// gives the same result however the response is cut into pieces.
package usage

import (
	"fmt"
	"math"
	"net/textproto"
	"slices"
	"strings"
	"sync"

	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/internal/jsonscan"
	"github.com/weirflow/weir/internal/nearest"
)

// A Term is a part of a cost: where a number comes from, and its weight.
type Term struct {
	// one of Forms, such as "openai", "openai.completion", "json.usage.total" and "header.x-cost"
	Of     string
	Weight int64 // at least 1
}

// Forms lists what a Term may be of, for messages.
func Forms() []string {
	forms := []string{"json.FIELD", "header.NAME", "trailer.NAME", "bytes", "duration", "upstream_time"}
	for _, p := range presets() {
		forms = append(forms, p.name, p.name+".PART")
	}
	return forms
}

// A Spec says how the cost of a response is found. It is immutable, and safe for concurrent use.
type Spec struct {
	terms []term
	slots int
	tree  *jsonscan.Tree // nil if the body need not be read
	rare  []byte
	// the slots that are set only when the usage is complete, and whether the response then needs no
	// regular end
	final  []bool
	closes bool
	unzips *sync.Pool // of *gzip.Reader
}

// term is a compiled Term.
type term struct {
	source source
	weight int64
	slot   int    // of a JSON field
	name   string // of a header field, in canonical form
	preset *preset
	base   int // the first slot of the preset
	part   part
}

// source is where a number comes from.
type source uint8

const (
	fromJSON source = iota
	fromPreset
	fromHeader
	fromTrailer
	fromBytes
	fromDuration
	fromUpstreamTime
)

// Compile checks and compiles terms, whose sum is the cost.
func Compile(terms []Term) (*Spec, error) {
	s := &Spec{tree: jsonscan.NewTree(), closes: true, unzips: new(sync.Pool)}
	bases := map[string]int{}
	for _, t := range terms {
		c, err := s.compile(t, bases)
		if err != nil {
			return nil, err
		}
		s.terms = append(s.terms, c)
	}
	if s.slots == 0 {
		s.tree = nil
		return s, nil
	}
	s.rare = s.tree.Rare()
	return s, nil
}

func (s *Spec) compile(t Term, bases map[string]int) (term, error) {
	c := term{weight: t.Weight}
	if t.Weight < 1 {
		return c, fmt.Errorf("%d is not a weight: write a whole number of at least 1, and count in a smaller unit if need be", t.Weight)
	}
	source, name, found := strings.Cut(t.Of, ".")
	switch {
	case source == "json" && found:
		c.source, c.slot = fromJSON, s.slots
		s.slots, s.final, s.closes = s.slots+1, append(s.final, true), false
		return c, s.tree.Add(name, c.slot)
	case (source == "header" || source == "trailer") && found:
		if !httpsyntax.IsToken(name) {
			return c, fmt.Errorf("%q is not the name of a %s field", name, source)
		}
		if c.source, c.name = fromHeader, textproto.CanonicalMIMEHeaderKey(name); source == "trailer" {
			c.source = fromTrailer
		}
		return c, nil
	case t.Of == "bytes":
		c.source = fromBytes
		return c, nil
	case t.Of == "duration":
		c.source = fromDuration
		return c, nil
	case t.Of == "upstream_time":
		c.source = fromUpstreamTime
		return c, nil
	}
	for _, p := range presets() {
		if p.name == source {
			return s.compilePreset(c, p, name, found, bases)
		}
	}
	return c, unknownForm(t.Of)
}

// compilePreset compiles a term of a preset. Terms of one preset share its fields.
func (s *Spec) compilePreset(c term, p *preset, name string, named bool, bases map[string]int) (term, error) {
	c.source, c.preset, c.part = fromPreset, p, partTotal
	if named {
		i := slices.Index(partNames[:], name)
		if i < 0 {
			return c, fmt.Errorf("%q is not a part of %s: write %s", name, p.name, strings.Join(partNames[:], ", "))
		}
		c.part = part(i)
	}
	if base, ok := bases[p.name]; ok {
		c.base = base
		return c, nil
	}
	c.base = s.slots
	bases[p.name] = c.base
	for _, f := range p.fields {
		for _, path := range f.paths {
			if err := s.tree.Add(path, c.base+int(f.slot)); err != nil {
				return c, err
			}
		}
	}
	s.slots += int(slotCount)
	final := make([]bool, slotCount)
	for _, f := range p.final {
		final[f] = true
	}
	s.final, s.closes = append(s.final, final...), s.closes && !p.cumulative
	return c, nil
}

// unknownForm is the error for a text that is no term.
func unknownForm(of string) error {
	forms := Forms()
	if near := nearest.To(of, forms); near != "" {
		return fmt.Errorf("%q is not where a cost can be read: did you mean %s?", of, near)
	}
	return fmt.Errorf("%q is not where a cost can be read: write %s", of, strings.Join(forms, ", "))
}

// Meant returns the term that was probably meant by a text that is none.
func Meant(of string) string {
	source, name, found := strings.Cut(of, ".")
	sources := []string{"json", "header", "trailer"}
	for _, p := range presets() {
		if p.name == source && found {
			if near := nearest.To(name, partNames[:]); near != "" {
				return source + "." + near
			}
			return source
		}
		sources = append(sources, p.name)
	}
	if near := nearest.To(of, []string{"bytes", "duration", "upstream_time", "openai", "anthropic", "gemini"}); near != "" {
		return near
	}
	if near := nearest.To(source, sources); found && near != "" && name != "" {
		return near + "." + name
	}
	return "openai"
}

// ReadsBody reports whether the body of a response has to be read, and not only counted.
func (s *Spec) ReadsBody() bool { return s.tree != nil }

// sum adds the product of a weight and a number to a sum. It reports false on overflow.
func sum(total, weight, n int64) (int64, bool) {
	if n != 0 && weight > (math.MaxInt64-total)/n {
		return 0, false
	}
	return total + weight*n, true
}
