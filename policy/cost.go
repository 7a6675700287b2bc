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

// costKind is where a cost is read from.
type costKind uint8

const (
	costFixed costKind = iota
	costHeader
	costBytes
)

// cost is what a request takes from a limit.
type cost struct {
	kind   costKind
	n      int64  // fixed
	header string // in canonical form
}

// parseCost reads a cost as it is written in a policy.
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
		return cost{kind: costHeader, header: textproto.CanonicalMIMEHeaderKey(name)}, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return cost{}, fmt.Errorf("%q is not a cost", text)
	}
	return cost{n: n}, nil
}

// of is the cost of a request. ok is false where the request names one that is none: a client must not be able to ask for nothing.
func (c cost) of(r *request) (n int64, ok bool) {
	switch c.kind {
	case costHeader:
		text, present := headerValue(r.Header[c.header])
		if !present {
			return 1, true
		}
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil && n >= 1
	case costBytes:
		return max(r.Length, 0), true
	}
	return c.n, true
}

// open reports whether the cost of a request is not known yet: it is the length of a body that has still to be read.
func (c cost) open(r *request) bool { return c.kind == costBytes && r.Length < 0 }

// capacityOf is the most that one request can take, and what sets it. A SmoothBursty and a WarmUp refuse nothing for its size.
func capacityOf(l weir.Limit) (size int64, field string) {
	if p := rules.ParamsOf(l); p != nil {
		return p.MostPerRequest()
	}
	return math.MaxInt64, ""
}

// window is the time that a limit's quota is spoken of for, in a RateLimit-Policy. The limit is valid.
func window(l weir.Limit) time.Duration {
	if p := rules.ParamsOf(l); p != nil {
		return p.QuotaWindow()
	}
	return 0
}
