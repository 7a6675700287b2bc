package weirgrpc

import (
	"sync"
	"sync/atomic"
)

// checked panics if a limit was not made by a function of this package.
func (l Limits) checked() Limits {
	if len(l) == 0 {
		panic("weirgrpc: no limits: pass Limits{...} with at least one")
	}
	for _, one := range l {
		if one.charge == nil {
			panic("weirgrpc: a Limit that is empty: make it with One, Keyed, Shared, InFlight or Adaptive")
		}
	}
	return append(Limits(nil), l...)
}

// mostMethods is how many methods a table keeps: clients can call any, if the server has a handler
// for unknown services.
const mostMethods = 1024

// table finds the limits of a method.
type table struct {
	limits  Limits
	methods sync.Map     // from method to *applying
	known   atomic.Int64 // how many methods
}

// applying is the limits of a method: those of the opening of a stream, those of the messages of its
// client and of its server, and all of them.
type applying struct {
	opening, messages, responses, all []*Limit

	adaptive bool // one of them is adaptive
}

// of returns the limits of a method.
func (t *table) of(method string) *applying {
	if a, ok := t.methods.Load(method); ok {
		return a.(*applying)
	}
	a := &applying{}
	for i := range t.limits {
		l := &t.limits[i]
		switch {
		case !l.appliesTo(method):
			continue
		case !l.perMessage && !l.perAnswer:
			a.opening = append(a.opening, l)
		}
		if l.perMessage {
			a.messages = append(a.messages, l)
		}
		if l.perAnswer {
			a.responses = append(a.responses, l)
		}
		a.all = append(a.all, l)
		a.adaptive = a.adaptive || l.limit == nil
	}
	if t.known.Load() < mostMethods {
		if _, known := t.methods.LoadOrStore(method, a); !known {
			t.known.Add(1)
		}
	}
	return a
}
