package weirtest

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/duration"
)

// result is the result of an operation.
type result struct {
	word     string // allow, deny or ok
	err      string
	status   int
	note     string // of a status without a decision
	delay    time.Duration
	delayed  bool // delay is valid
	decision *weir.Decision
}

func decided(d weir.Decision) *result {
	word := "deny"
	if d.Allowed {
		word = "allow"
	}
	return &result{word: word, decision: &d}
}

// check compares the expected result of a step with the actual one.
func (x *run) check(s *Step, got result) {
	for _, want := range s.Expect {
		if !got.meets(want) {
			x.mismatches = append(x.mismatches, Mismatch{x.script.Name, s.Line, s.Text, want.String(), got.String()})
		}
	}
}

// String returns the expectation as a script has it.
func (e Expectation) String() string {
	switch {
	case e.Value == "":
		return e.Name
	case e.Name == "error":
		return "error " + e.Value
	}
	return e.Name + "=" + e.Value
}

func (r result) meets(want Expectation) bool {
	switch want.Name {
	case "error":
		return r.err == want.Value
	case "allow", "ok":
		return r.word != "" && (r.word == want.Name || want.Name == "ok" && r.word == "allow")
	case "deny":
		return r.word == "deny"
	case "delay":
		d, err := duration.Parse(want.Value)
		return r.delayed && err == nil && d == r.delay
	}
	if isStatus(want.Name) {
		return strconv.Itoa(r.status) == want.Name
	}
	if r.decision == nil {
		return false
	}
	for _, f := range r.fields() {
		if f.Name == want.Name {
			return f.Value == want.Value || sameTime(f.Value, want.Value)
		}
	}
	return false
}

// sameTime compares durations that are written differently, such as 24h and 1d.
func sameTime(a, b string) bool {
	x, err := duration.Parse(a)
	y, err2 := duration.Parse(b)
	return errors.Join(err, err2) == nil && x == y
}

// fields returns a decision's fields as a script has them.
func (r result) fields() []Expectation {
	retry := "never"
	if r.decision.RetryAfter != weir.Never {
		retry = r.decision.RetryAfter.String()
	}
	return []Expectation{
		{"remaining", strconv.FormatInt(r.decision.Remaining, 10)},
		{"retry", retry},
		{"reset", r.decision.ResetAfter.String()},
		{"limit", strconv.FormatInt(r.decision.Limit, 10)},
		{"by", r.decision.By},
	}
}

// String returns everything that is known of the result, in the script language.
func (r result) String() string {
	var words []string
	switch {
	case r.err == "waits for ever":
		words = append(words, r.err)
	case r.err != "":
		words = append(words, "error "+r.err)
	case r.status != 0:
		words = append(words, strconv.Itoa(r.status))
		if r.note != "" {
			words = append(words, "("+r.note+")")
		}
	default:
		words = append(words, r.word)
	}
	if r.delayed {
		words = append(words, "delay="+r.delay.String())
	}
	if r.decision != nil {
		for _, f := range r.fields() {
			if f.Value != "" {
				words = append(words, f.String())
			}
		}
	}
	return strings.Join(words, " ")
}
