package weirhttp

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/group"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/internal/usage"
	"github.com/weirflow/weir/policy"
)

// ByHost counts requests by the host that they are sent to, with its port unless that is the scheme's
// own: a key for Transport.
func ByHost() KeyFunc {
	return func(r *http.Request) (string, bool) {
		if r.URL == nil || r.URL.Host == "" {
			return "", false
		}
		host := strings.ToLower(r.URL.Host)
		switch r.URL.Scheme {
		case "https":
			host = strings.TrimSuffix(host, ":443")
		case "http":
			host = strings.TrimSuffix(host, ":80")
		}
		return host, true
	}
}

// Pace is an option of Transport: requests keep to a limit, and wait for their turn. Give it several
// times for several limits, such as requests, tokens and requests in flight: a request is charged to
// all of them at one moment, or to none. A retry is charged like a request.
//
// The limiter is One, Keyed, InFlight or a *weir.Shared. Several limiters in one One or Keyed become
// one Pace each. The key is as for Limit: Global, ByHost, or ByHeader for an API key. The options are
// Cost, Actual, ActualFrom, OnMissing and Fallback.
//
// A place of InFlight is held until the response's body has been closed or read to its end.
//
// Pace panics if an argument is invalid, as Limit does.
func Pace(l Limiter, key KeyFunc, options ...Option) TransportOption {
	s := newSettings(options)
	for _, name := range s.given {
		if !slices.Contains([]string{"Cost", "Actual", "ActualFrom", "OnMissing", "Fallback"}, name) {
			panic("weirhttp: " + name + " is no option of Pace")
		}
	}
	switch v := reflect.ValueOf(l); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		panic("weirhttp: Pace without a limiter: pass One, Keyed, InFlight or a *weir.Shared")
	case key == nil:
		panic("weirhttp: Pace without a key: pass ByHost(), or Global() for all requests together")
	}
	p := &paced{key: key, cost: s.cost, missing: s.missing, actual: s.actual, usage: s.usage}
	switch l := l.(type) {
	case one:
		p.charge = func(_ string, cost int64) group.Charge { return group.One(l.l, cost) }
		p.peek = func(_ string, cost int64) weir.Decision { return l.l.Peek(cost) }
		p.limit = l.Limit
	case perKey:
		p.charge = func(key string, cost int64) group.Charge { return group.Keyed(l.l, key, cost) }
		p.peek = l.l.Peek
		p.limit = l.Limit
	case inFlight:
		p.charge = func(key string, cost int64) group.Charge { return group.KeyedInFlight(l.places, key, cost) }
		p.limit, p.places = l.Limit, true
	case *weir.Shared:
		over, err := failover.ForShared(l, s.failure)
		if err != nil {
			panic("weirhttp: Fallback: " + err.Error())
		}
		p.charge = func(key string, cost int64) group.Charge { return group.Shared(over.Shared(), key, cost) }
		p.limit = l.Limit
	default:
		panic(fmt.Sprintf("weirhttp: Pace of a %T: pass One, Keyed or InFlight with one limiter, or a *weir.Shared; give Pace once for each limit", l))
	}
	if p.places && (p.actual != nil || p.usage != nil) {
		panic("weirhttp: Pace of InFlight with Actual: a place has no cost that is known afterwards")
	}
	return func(t *transportSettings) { t.limits = append(t.limits, p) }
}

// Actual is an option of Pace for costs that are known only afterwards: Cost is then an estimate,
// which is replaced by what the function returns about the response. It is called once, when the
// body has been closed or read to its end, so trailers are there; it must not read the body. If it
// returns false, the estimate stays charged.
//
// A request that the server has refused because of a limit costs nothing then.
func Actual(of func(*http.Response) (cost int64, known bool)) Option {
	return option("Actual", func(s *settings) { s.actual = of })
}

// ActualFrom is Actual with a cost that is read from the response while it passes through: "openai",
// "anthropic" or "gemini" for the tokens of these APIs, also of streams, or one of their parts like
// "openai.completion", "json.usage.total" for a field of JSON, "header.x-cost" for a field of the
// header. Several are added up. CostFrom returns it after the body has ended.
//
// It panics if a name is invalid.
func ActualFrom(names ...string) Option {
	terms := make([]usage.Term, len(names))
	for i, name := range names {
		terms[i] = usage.Term{Of: name, Weight: 1}
	}
	spec, err := usage.Compile(terms)
	if err == nil && len(terms) == 0 {
		err = errors.New("it needs a name, like openai")
	}
	if err != nil {
		panic("weirhttp: ActualFrom: " + err.Error())
	}
	return option("ActualFrom", func(s *settings) { s.usage = spec })
}

// paced is a limit that requests keep to.
type paced struct {
	key     KeyFunc
	cost    func(*http.Request) int64
	missing Missing
	actual  func(*http.Response) (int64, bool)
	usage   *usage.Spec

	places bool // it limits requests in flight
	charge func(key string, cost int64) group.Charge
	peek   func(key string, cost int64) weir.Decision // nil for limits in stores, and for places
	limit  func() weir.Limit
}

// settles reports whether the cost is known only afterwards.
func (p *paced) settles() bool { return p.actual != nil || p.usage != nil }

// A due is what a request is charged of one limit.
type due struct {
	*paced
	index int    // of the limit
	text  string // the key
	cost  int64
}

// errMissing is the error of requests without a key, with MissingRefuse.
var errMissing = fmt.Errorf("weirhttp: the request has no key for its limit: %w", weir.ErrLimited)

// dues returns what a request is charged.
func dues(limits []*paced, r *http.Request) (all []due, err error) {
	all = make([]due, 0, len(limits))
	for i, p := range limits {
		d := due{paced: p, index: i, cost: 1}
		key, ok := p.key(r)
		switch {
		case ok:
			d.text = policy.SealKey(key)
		case p.missing == MissingSkip:
			continue
		case p.missing == MissingRefuse:
			return nil, errMissing
		}
		if p.cost != nil {
			d.cost = p.cost(r)
		}
		switch {
		case d.cost < 0:
			return nil, weir.ErrCost
		case d.cost == 0:
			continue
		}
		all = append(all, d)
	}
	return all, nil
}

// never reports whether no wait helps: the cost is above the limit.
func (d *due) never() bool {
	if p, ok := rules.PlacesOf(d.limit()); ok {
		return d.cost > p.Limit
	}
	return d.peek != nil && d.peek(d.text, d.cost).RetryAfter == weir.Never
}
