package policy

import (
	"fmt"
	"math"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/httpsyntax"
	"github.com/weirflow/weir/internal/rules"
)

// costSource says where the cost of a request comes from.
type costSource uint8

const (
	costFixed costSource = iota
	costHeader
	costBytes
	costValue
)

// cost is what a request takes from a limit.
type cost struct {
	kind costSource
	n    int64  // the fixed cost
	name string // of the field, in canonical form, or of the value
}

// parseCost reads a cost as a policy file has it.
func parseCost(text string) (cost, error) {
	if text == "" {
		return cost{n: 1}, nil
	}
	if text == "bytes" {
		return cost{kind: costBytes}, nil
	}
	if name, ok := strings.CutPrefix(text, "header."); ok {
		if !httpsyntax.IsToken(name) {
			return cost{}, fmt.Errorf("%q is not the name of a header field", name)
		}
		return cost{kind: costHeader, name: textproto.CanonicalMIMEHeaderKey(name)}, nil
	}
	if name, ok := strings.CutPrefix(text, "value."); ok && name != "" {
		return cost{kind: costValue, name: name}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return cost{}, fmt.Errorf("%q is not a cost", text)
	}
	return cost{n: n}, nil
}

// of returns the cost of a request. ok is false if the request's header field or value holds no valid cost.
// A cost of 0 is not valid: a client must not be able to pass without a charge.
func (c cost) of(r *request) (n int64, ok bool) {
	switch c.kind {
	case costHeader:
		text, present, _ := HeaderValue(r.Header[c.name])
		return costOf(text, present)
	case costValue:
		return costOf(r.value(c.name))
	case costBytes:
		return max(r.Length, 0), true
	}
	return c.n, true
}

func costOf(text string, present bool) (n int64, ok bool) {
	if !present {
		return 1, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 1
}

// open reports whether the cost of a request is not known yet, because it is the length of a body
// that has not been read.
func (c cost) open(r *request) bool { return c.kind == costBytes && r.Length < 0 }

// capacityOf returns the most that one request can take, and the name of the field that sets it.
// SmoothBursty and WarmUp refuse no request for its size.
func capacityOf(l weir.Limit) (size int64, field string) {
	if p := rules.ParamsOf(l); p != nil {
		return p.MostPerRequest()
	}
	return math.MaxInt64, ""
}

// window returns the time in which a limit's whole quota comes back, for the field
// RateLimit-Policy. The limit must be valid.
func window(l weir.Limit) time.Duration {
	if p := rules.ParamsOf(l); p != nil {
		return p.QuotaWindow()
	}
	return 0
}
