package weirgrpc

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
)

// Limits are charged together or not at all, as far as they apply to a call.
type Limits []Limit

// A Limit is a limiter with the key that calls have there. One, Keyed, Shared, InFlight and Adaptive make it.
type Limit struct {
	charge func(c *Call, key string, cost int64) group.Charge
	limit  func() weir.Limit // nil for an adaptive limit
	key    KeyFunc
	places bool // it is left when the call ends
	queued bool // an adaptive limit with a queue
	stored bool // a call of a store may be slow

	cost       func(*Call) int64
	missing    Missing
	methods    []string // nil for all
	but        []string
	shadow     bool
	perMessage bool // of the client
	perAnswer  bool
	failure    *failover.Options // of Shared
}

// A LimitOption changes a Limit.
type LimitOption func(*Limit)

// One limits all calls together.
func One(l *weir.Limiter, options ...LimitOption) Limit {
	if l == nil {
		panic("weirgrpc: One of a limiter that is nil")
	}
	return newLimit(Limit{
		key:    Global(),
		limit:  l.Limit,
		charge: func(_ *Call, _ string, cost int64) group.Charge { return group.One(l, cost) },
	}, options)
}

// Keyed limits the calls of each key.
func Keyed(l *keyed.Limiter[string], key KeyFunc, options ...LimitOption) Limit {
	if l == nil {
		panic("weirgrpc: Keyed of a limiter that is nil")
	}
	return newLimit(Limit{
		key:    key,
		limit:  l.Limit,
		charge: func(_ *Call, key string, cost int64) group.Charge { return group.Keyed(l, key, cost) },
	}, options)
}

// Shared limits the calls of each key, over all processes that share the limit through its store.
// See Fallback for what decides while the store is unavailable.
func Shared(s *weir.Shared, key KeyFunc, options ...LimitOption) Limit {
	if s == nil {
		panic("weirgrpc: Shared of a limit that is nil")
	}
	l := newLimit(Limit{key: key, limit: s.Limit, stored: true, failure: &failover.Options{OnFailure: failover.Local, Nodes: 1}}, options)
	over, err := failover.ForShared(s, *l.failure)
	if err != nil {
		panic("weirgrpc: Fallback: " + err.Error())
	}
	l.charge = func(_ *Call, key string, cost int64) group.Charge { return group.Shared(over.Shared(), key, cost) }
	return l
}

// InFlight limits how many calls of each key are in flight. A place is held until the call has ended:
// at a server, until its handler has returned or panicked; at a client, until its result is there.
func InFlight(c *keyed.Concurrency[string], key KeyFunc, options ...LimitOption) Limit {
	if c == nil {
		panic("weirgrpc: InFlight of a limiter that is nil")
	}
	return newLimit(Limit{
		key:    key,
		limit:  func() weir.Limit { return c.Limit() },
		places: true,
		charge: func(_ *Call, key string, cost int64) group.Charge { return group.KeyedInFlight(c, key, cost) },
	}, options)
}

// Adaptive limits how many calls a server has in flight, with a limit that finds itself: see package adaptive. as
// says how important a call is, and who asks; nil: all are alike. A place is held until the handler has returned or
// panicked. Its latency, and whether it returns RESOURCE_EXHAUSTED, UNAVAILABLE or DEADLINE_EXCEEDED or is too
// late, change the limit; calls that their clients cancel do not. Use Methods for calls that last, such as
// streams, to leave them out. For a client, use Adapt.
func Adaptive(l *adaptive.Limiter, as func(*Call) adaptive.Request, options ...LimitOption) Limit {
	if l == nil {
		panic("weirgrpc: Adaptive of a limiter that is nil")
	}
	if as == nil {
		as = func(*Call) adaptive.Request { return adaptive.Request{} }
	}
	made := newLimit(Limit{
		key:    Global(),
		places: true,
		queued: l.Queues(),
		charge: func(c *Call, _ string, _ int64) group.Charge { return group.Adaptive(l, as(c)) },
	}, options)
	if made.cost != nil {
		panic("weirgrpc: Cost of Adaptive: each call takes one place")
	}
	return made
}

func newLimit(l Limit, options []LimitOption) Limit {
	if l.key == nil {
		panic("weirgrpc: a limit without a key: pass ByIP(), ByMetadata(\"x-api-key\") or another KeyFunc, or Global() for all calls together")
	}
	for _, o := range options {
		o(&l)
	}
	if l.places && (l.perMessage || l.perAnswer) {
		panic("weirgrpc: PerMessage or PerResponse of InFlight or Adaptive: a message is not in flight; a stream is")
	}
	return l
}

// Cost is what a call takes of the limit. A call with a cost of 0 is not counted, and one with a cost
// below 0 gets INVALID_ARGUMENT. default: 1
func Cost(of func(c *Call) int64) LimitOption { return func(l *Limit) { l.cost = of } }

// Missing says what happens to calls without a key.
type Missing uint8

// The ways to treat calls without a key.
const (
	MissingKey    Missing = iota // they share one key, the empty text
	MissingSkip                  // the limit does not apply to them
	MissingRefuse                // they are refused; waiting does not help them
)

// OnMissing says what happens to calls without a key. default: MissingKey
func OnMissing(m Missing) LimitOption {
	if m > MissingRefuse {
		panic(fmt.Sprintf("weirgrpc: OnMissing(%d): write MissingKey, MissingSkip or MissingRefuse", m))
	}
	return func(l *Limit) { l.missing = m }
}

// Methods applies the limit to some methods alone: "/shop.Cart/Checkout" is one, and "/shop.Cart/*"
// are all of a service. All of them share the limit; ByMethod counts each by itself. default: all
func Methods(patterns ...string) LimitOption {
	patterns = checkedMethods("Methods", patterns)
	return func(l *Limit) { l.methods = append(l.methods, patterns...) }
}

// Except leaves methods out, like "/grpc.health.v1.Health/*".
func Except(patterns ...string) LimitOption {
	patterns = checkedMethods("Except", patterns)
	return func(l *Limit) { l.but = append(l.but, patterns...) }
}

// Shadow makes the limit decide, but refuse and delay no call: use it with Observe, to see what the
// limit would do. Give it a limiter of its own. It is evaluated for calls that all other limits
// admit. A limit in a store decides in the background.
func Shadow() LimitOption { return func(l *Limit) { l.shadow = true } }

// PerMessage charges each message that the client of a stream sends, and not its opening. Unary calls
// have one message. With PerResponse, both are charged.
func PerMessage() LimitOption { return func(l *Limit) { l.perMessage = true } }

// PerResponse charges each message that the server of a stream sends, and not its opening. At a
// server, SendMsg returns the refusal, or waits first with Wait. At a client, RecvMsg waits with what
// it has received, so that gRPC's flow control slows the server down. Unary calls have one response,
// which is charged when they begin.
func PerResponse() LimitOption { return func(l *Limit) { l.perAnswer = true } }

// Fallback says what decides while the store of a Shared is unavailable, as weirhttp.Fallback does.
// Set Nodes to how many processes share the limit. default: failover.Local with one node, so that
// this process enforces the limit by itself
//
// All interceptors and middlewares of one *weir.Shared have one fallback: Shared panics if they are
// given different ones.
func Fallback(o failover.Options) LimitOption {
	return func(l *Limit) {
		if !l.stored {
			panic("weirgrpc: Fallback of a limit that is in no store: it is an option of Shared")
		}
		l.failure = &o
	}
}

// checkedMethods panics if a text cannot be a method.
func checkedMethods(of string, patterns []string) []string {
	for _, p := range patterns {
		service, method, ok := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		if !ok || !strings.HasPrefix(p, "/") || service == "" || method == "" || strings.ContainsAny(method, "/") || strings.Contains(p, "*") && (method != "*" || strings.Contains(service, "*")) {
			panic(fmt.Sprintf("weirgrpc: %s(%q): write a method as \"/package.Service/Method\", or all of a service as \"/package.Service/*\"", of, p))
		}
	}
	return slices.Clone(patterns)
}

// matches reports whether a method is one of those.
func matches(patterns []string, method string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		service, all := strings.CutSuffix(p, "*")
		return p == method || all && strings.HasPrefix(method, service)
	})
}

// appliesTo reports whether the limit counts calls of a method.
func (l *Limit) appliesTo(method string) bool {
	return (l.methods == nil || matches(l.methods, method)) && !matches(l.but, method)
}

// keyAndCost returns what the call is charged. counts is false if the limit does not apply to it.
func (l *Limit) keyAndCost(c *Call) (key string, cost int64, counts bool, err error) {
	key, ok := l.key(c)
	switch {
	case ok:
	case l.missing == MissingSkip:
		return "", 0, false, nil
	case l.missing == MissingRefuse:
		return "", 0, false, errMissing
	default:
		key = ""
	}
	cost = 1
	if l.cost != nil {
		cost = l.cost(c)
	}
	return policy.SealKey(key), cost, cost != 0, nil
}

// queues reports whether callers wait in the limit by default.
func (l *Limit) queues() bool {
	if l.limit == nil {
		return l.queued
	}
	of := l.limit()
	if places, ok := rules.PlacesOf(of); ok {
		return places.Queue > 0
	}
	return slices.ContainsFunc(weir.Parts(of), func(part weir.Limit) bool {
		k := rules.KindOf(part)
		return k != nil && k.Queues
	})
}

// DefaultWait is the default of Wait for limits with a queue.
const DefaultWait = 30 * time.Second
