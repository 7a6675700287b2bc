package policy

import (
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/internal/jsonscan"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/internal/usage"
)

// Costs say how the cost of a request is estimated, and where its true cost is read when the
// response has come. The estimate is charged before the request goes on, so that requests in flight
// are counted; then the charge is replaced by the true cost.
type Costs struct {
	// The estimate is the sum of these terms: "2000", "body.max_tokens" (or "body.a|b": the first
	// that is there), "header.NAME", "prompt/4" (the bytes of the request's body divided by 4) and
	// "learned" (what 9 of 10 of the last requests of this key and model did not exceed).
	// default: Default
	Before  []CostTerm
	Default int64 // for each term that a request does not have; default: 1

	// The true cost is the sum of these terms: a preset ("openai", "anthropic", "gemini"), a part of
	// one ("openai.completion"), "json.FIELD", "header.NAME", "trailer.NAME", "bytes" (of the
	// response's body), "duration" and "upstream_time" (in milliseconds). default: the estimate
	After []CostTerm

	// for responses whose true cost cannot be read: "estimate", "seen" (what was read until the
	// response ended; with nothing, the estimate) or "zero"; default: estimate
	IfUnknown string

	// Responses with a status of 400 or more, and requests that no upstream responded to, are charged
	// like all others. default: they cost nothing
	CountFailed bool

	// A request with an estimate of 0 is refused while nothing is left, so also in debt. default: an
	// estimate of 0 always passes
	BlockInDebt bool
}

// A CostTerm is a number with its weight.
type CostTerm struct {
	Of     string
	Weight int64 // default: 1
}

// String returns the term in one text.
func (t CostTerm) String() string {
	if t.Weight <= 1 {
		return t.Of
	}
	return fmt.Sprintf("%d * %s", t.Weight, t.Of)
}

// IsSet reports whether the costs are estimated or read.
func (c *Costs) IsSet() bool {
	return len(c.Before) > 0 || len(c.After) > 0 || c.Default != 0 || c.IfUnknown != "" || c.CountFailed || c.BlockInDebt
}

// settles reports whether charges are replaced by what is read of a response.
func (c *Costs) settles() bool { return len(c.After) > 0 }

// What is charged if the true cost is not known.
const (
	IfUnknownEstimate = "estimate"
	IfUnknownSeen     = "seen"
	IfUnknownZero     = "zero"
)

var ifUnknown = []string{IfUnknownEstimate, IfUnknownSeen, IfUnknownZero}

// estimateSource is where a term of an estimate comes from.
type estimateSource uint8

const (
	estimateFixed estimateSource = iota
	estimateHeader
	estimateBody
	estimatePrompt
	estimateLearned
)

// estimateTerm is a compiled term of an estimate.
type estimateTerm struct {
	source estimateSource
	weight int64
	n      int64    // the number itself, or the divisor
	names  []string // the header field, or the fields of the body
}

// estimateForms lists how terms of an estimate are written, for messages.
const estimateForms = "a whole number, body.FIELD, header.NAME, prompt/4 or learned"

// parseEstimate parses a term of an estimate.
func parseEstimate(t CostTerm) (estimateTerm, error) {
	e := estimateTerm{weight: max(t.Weight, 1)}
	if t.Weight < 0 {
		return e, fmt.Errorf("%d is not a weight: write a whole number of at least 1", t.Weight)
	}
	source, name, found := strings.Cut(t.Of, ".")
	divided, by, divides := strings.Cut(t.Of, "/")
	n, err := strconv.ParseInt(t.Of, 10, 64)
	switch {
	case err == nil && n >= 0:
		e.n = n
		return e, nil
	case t.Of == "learned":
		e.source = estimateLearned
		return e, nil
	case divides && divided == "prompt":
		e.source = estimatePrompt
		if e.n, err = strconv.ParseInt(by, 10, 64); err != nil || e.n < 1 {
			return e, fmt.Errorf("%q does not divide by a whole number: write prompt/4", t.Of)
		}
		return e, nil
	case found && source == "header":
		if !httpsyntax.IsToken(name) {
			return e, fmt.Errorf("%q is not the name of a header field", name)
		}
		e.source, e.names = estimateHeader, []string{textproto.CanonicalMIMEHeaderKey(name)}
		return e, nil
	case found && source == "body":
		e.source, e.names = estimateBody, strings.Split(name, "|")
		for _, path := range e.names {
			if err := checkBodyField(path); err != nil {
				return e, err
			}
		}
		return e, nil
	}
	fix := "write " + estimateForms
	if near := nearest.To(t.Of, []string{"learned", "prompt/4", "body.max_tokens"}); near != "" {
		fix = "did you mean " + near + "?"
	}
	return e, fmt.Errorf("%q is not an estimate of a cost: %s", t.Of, fix)
}

// checkBodyField checks the path of a field in a request's body.
func checkBodyField(path string) error { return jsonscan.NewTree().Add(path, 0) }

// lateCost is a compiled Costs.
type lateCost struct {
	before      []estimateTerm
	fallback    int64
	free        bool        // the estimate is a fixed 0
	spec        *usage.Spec // nil if charges are not replaced
	ifUnknown   string
	countFailed bool
	learned     *learned // nil if nothing is learned
}

// compileCosts compiles the costs of a limit, which have been checked. Limits that read the same
// from a response share a Spec, so that it is read once.
func (e *Engine) compileCosts(l *Limit, old *limit) *lateCost {
	c := &lateCost{fallback: max(l.Costs.Default, 1), ifUnknown: l.Costs.IfUnknown, countFailed: l.Costs.CountFailed}
	zero := len(l.Costs.Before) > 0
	for _, t := range l.Costs.Before {
		term, _ := parseEstimate(t)
		c.before = append(c.before, term)
		zero = zero && term.source == estimateFixed && term.n == 0
		if term.source == estimateLearned && c.learned == nil {
			c.learned = newLearned()
			if old != nil && old.late != nil && old.late.learned != nil {
				c.learned = old.late.learned
			}
		}
	}
	c.free = zero && !l.Costs.BlockInDebt
	if l.Costs.settles() {
		c.spec = e.usageSpec(l.Costs.After)
	}
	return c
}

// usageSpec returns the Spec of terms.
func (e *Engine) usageSpec(terms []CostTerm) *usage.Spec {
	text := fmt.Sprint(terms)
	if e.specs[text] == nil {
		s, _ := usage.Compile(usageTerms(terms))
		e.specs[text] = s
	}
	return e.specs[text]
}

// usageTerms returns terms with their default weights.
func usageTerms(terms []CostTerm) (all []usage.Term) {
	for _, t := range terms {
		if t.Weight == 0 {
			t.Weight = 1
		}
		all = append(all, usage.Term{Of: t.Of, Weight: t.Weight})
	}
	return all
}

// estimate returns the estimated cost of a request. It is at least 1, unless the policy says 0: a
// client must not be able to pass without a charge.
func (c *lateCost) estimate(l *limit, key []byte, r *request) int64 {
	if len(c.before) == 0 {
		return c.fallback
	}
	if r.Estimate > 0 && c.readsRequest() {
		return r.Estimate
	}
	var total int64
	for i := range c.before {
		t := &c.before[i]
		n, ok := c.term(t, l, key, r)
		if !ok {
			n = c.fallback
		}
		total = addCost(total, t.weight, n)
	}
	if c.free {
		return 0
	}
	return max(total, 1)
}

// readsRequest reports whether the estimate depends on fields of the request, or on its size.
func (c *lateCost) readsRequest() bool {
	return slices.ContainsFunc(c.before, func(t estimateTerm) bool {
		return t.source == estimateHeader || t.source == estimateBody || t.source == estimatePrompt
	})
}

// addCost adds a weighted number to a sum. A sum that is too large becomes the largest cost, which
// no limit admits.
func addCost(total, weight, n int64) int64 {
	const most = 1<<63 - 1
	if n != 0 && weight > (most-total)/n {
		return most
	}
	return total + weight*n
}

// term returns the number of a term, if the request has it.
func (c *lateCost) term(t *estimateTerm, l *limit, key []byte, r *request) (n int64, ok bool) {
	switch t.source {
	case estimateHeader:
		text, _, _ := HeaderValue(r.Header[t.names[0]])
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && n >= 0
	case estimateBody:
		for _, name := range t.names {
			if f := r.body.field(name); f.Unclear {
				return 0, false // the upstream may read any of its values
			} else if f.Present {
				return jsonscan.Int([]byte(f.Text))
			}
		}
		return 0, false
	case estimatePrompt:
		size, known := r.bodySize()
		if n = (size + t.n - 1) / t.n; !known {
			n = max(n, c.fallback)
		}
		return n, true
	case estimateLearned:
		n, ok := c.learned.quantile(learnedKey(key, r))
		// A request that can never be admitted would teach nothing, and the estimate would stay.
		capacity, _ := capacityOf(l.Limit.Limit) // of the plan, if it has its own
		return min(n, capacity), ok
	}
	return t.n, true
}

// costs checks the costs of a limit that are known only afterwards.
func (c *checker) costs(l *Limit) {
	of := &l.Costs
	if !of.IsSet() {
		return
	}
	at := []string{"limits", l.Name, "cost"}
	if l.Cost != "" {
		c.wrong("the limit has a cost and costs", "keep one of them", at...)
	}
	for i, t := range of.Before {
		if _, err := parseEstimate(t); err != nil {
			c.wrong(err.Error(), termFix("before", estimateMeant(t.Of), of.Before, i), append(at, "before", strconv.Itoa(i))...)
		}
	}
	for i, t := range usageTerms(of.After) {
		if _, err := usage.Compile([]usage.Term{t}); err != nil {
			c.wrong(err.Error(), termFix("after", usage.Meant(t.Of), of.After, i), append(at, "after", strconv.Itoa(i))...)
		}
	}
	if of.Default < 0 {
		c.wrong(fmt.Sprintf("%d is not a cost", of.Default), "write a whole number of at least 1", append(at, "default")...)
	}
	if of.IfUnknown != "" && !oneOf(of.IfUnknown, ifUnknown) {
		c.wrong(fmt.Sprintf("%q is not what to charge if the cost is unknown", of.IfUnknown), suggest(of.IfUnknown, ifUnknown), append(at, "if_unknown")...)
	}
	if size, field := capacityOf(l.Limit); l.Limit != nil && of.Default > size {
		c.wrong(fmt.Sprintf("a cost of %d never fits a %s of %d: every request without an estimate of its own would be refused", of.Default, field, size),
			fmt.Sprintf("lower default, or raise the %s", field), append(at, "default")...)
	}
	if size, field := capacityOf(l.Limit); l.Limit != nil {
		if least, ok := of.fits(size); !ok {
			c.wrong(fmt.Sprintf("a cost of %d never fits a %s of %d: every request would be refused", least, field, size),
				fmt.Sprintf("lower before, or raise the %s", field), append(at, "before")...)
		}
	}
	if of.countsNothing() {
		c.wrong("nothing is counted: before is 0, and without after no response says what its request costs", "after: bytes, or another term of the true cost", append(at, "before")...)
	}
	if !of.settles() {
		return
	}
	if len(of.Before) == 0 && of.Default == 0 {
		c.warn("each request is charged 1 until its response has come: all requests in flight can exceed the limit together by what they cost more",
			"add default: 2000, or before: [prompt/4, body.max_tokens]", at...)
	} else {
		c.prompt(l, at)
	}
	c.settling(l, at)
}

// settling checks that the charges of a limit can be replaced.
func (c *checker) settling(l *Limit, at []string) {
	at = append(at, "after")
	switch {
	case l.isConcurrency():
		c.wrong("a concurrency limits requests in flight: each takes one place, and no response changes that", "take cost out, or count tokens in a limit with another algorithm", at...)
	case l.Zone != "":
		c.wrong("the limits of a zone share a state, and charges in it are not replaced", "take zone out", at...)
	case l.Store != "" && (l.Shadow || l.RollOut != ""):
		c.wrong("a shadow limit in a store decides in the background, and its charges are not replaced", "take store out until the limit is enforced", at...)
	}
}

func oneOf(text string, all []string) bool {
	for _, a := range all {
		if a == text {
			return true
		}
	}
	return false
}
