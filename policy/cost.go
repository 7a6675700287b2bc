package policy

import (
	"fmt"
	"math"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
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
		if !isToken(name) {
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
	switch l := l.(type) {
	case weir.TokenBucket:
		return l.Burst, "burst"
	case weir.LeakyBucket:
		return l.Queue + 1, "queue (and one that is served)"
	case weir.NginxBucket:
		return l.Queue + 1, "queue (and one that is served)"
	case weir.IntervalBucket:
		return l.Burst, "burst"
	case weir.FixedWindow:
		return l.Limit, "limit"
	case weir.SlidingWindow:
		if l.SlotLimit > 0 {
			return l.SlotLimit, "slot_limit"
		}
		return l.Limit, "limit"
	case weir.SlidingCounter:
		return l.Limit, "limit"
	case weir.SlidingLog:
		return l.Limit, "limit"
	case weir.Concurrency:
		return l.Limit, "limit"
	}
	return math.MaxInt64, ""
}

// window is the time that a limit's quota is spoken of for, in a RateLimit-Policy: how long a bucket takes to fill, a window lasts, what
// is stored takes to come. It is the longest that there is of a calendar's windows: nobody who spreads the quota over it is refused.
func window(l weir.Limit) time.Duration {
	switch l := l.(type) {
	case weir.FixedWindow:
		if l.Window > 0 {
			return l.Window
		}
		return longest(l.Align)
	case weir.SlidingWindow:
		return l.Window
	case weir.SlidingCounter:
		return l.Window
	case weir.SlidingLog:
		return l.Window
	case weir.SmoothBursty:
		if l.MaxBurst == 0 {
			return time.Second
		}
		return max(l.MaxBurst, 0)
	case weir.WarmUp:
		return l.Period
	case weir.LeakyBucket:
		return window(weir.TokenBucket{Rate: l.Rate, Burst: l.Queue + 1})
	case weir.NginxBucket:
		return filling(l, l.Queue+1)
	case weir.TokenBucket:
		l.Initial = 0
		return filling(l, l.Burst)
	case weir.IntervalBucket:
		return filling(l, l.Burst)
	}
	return 0
}

// filling is how long a bucket takes to be full once all was taken at once.
func filling(l weir.Limit, size int64) time.Duration {
	p, err := weir.Prepare(l, time.Nanosecond)
	if err != nil {
		return 0
	}
	_, d := p.Step(nil, 0, size)
	return d.ResetAfter
}

// longest is the longest of a calendar's windows, but for the hour that a day may have more.
func longest(a weir.Align) time.Duration {
	const day = 24 * time.Hour
	period, _, _ := strings.Cut(string(a), ":")
	switch period {
	case "day":
		return day
	case "month":
		return 31 * day
	case "year":
		return 366 * day
	}
	return 7 * day
}
