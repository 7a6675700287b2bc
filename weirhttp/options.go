package weirhttp

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/usage"
	"github.com/weirflow/weir/policy"
)

// An Option changes a middleware.
type Option func(*settings)

// settings are what the options change.
type settings struct {
	name    string
	headers []string // nil: the default
	status  int
	refused http.Handler
	cost    func(*http.Request) int64
	missing Missing
	wait    time.Duration
	waits   bool // wait was given
	waiting policy.Waiting
	shadow  bool
	observe func(Response)
	context bool
	failure failover.Options
	settled bool
	given   []string // the names of the options, for Policy and Pace

	// of Policy alone
	unmatched bool // requests without a route go on
	plainOnly bool // refused is for routes without a response of their own
	log       *slog.Logger
	client    func(*http.Request) (addr netip.Addr, trusted bool)
	values    func(*http.Request) policy.Values
	route     int
	routed    bool // route was given

	// of Pace alone
	actual func(*http.Response) (int64, bool)
	usage  *usage.Spec
}

// option returns an option, whose name Policy can check.
func option(name string, set func(*settings)) Option {
	return func(s *settings) {
		s.given = append(s.given, name)
		set(s)
	}
}

func newSettings(options []Option) settings {
	s := settings{status: http.StatusTooManyRequests, failure: failover.Options{OnFailure: failover.Local, Nodes: 1}}
	for _, o := range options {
		o(&s)
	}
	return s
}

// Name is the name of the limit in header fields and problem+json. default: Decision.By, which is
// the name that the limiter was made with, or else "default".
func Name(name string) Option {
	if strings.ContainsFunc(name, unicode.IsControl) {
		panic(fmt.Sprintf("weirhttp: Name(%q): write a name without line ends and other control characters, like \"search\"", name))
	}
	return option("Name", func(s *settings) { s.name = name })
}

// Headers names the header fields about the limit that responses get: policy.HeaderRateLimit,
// policy.HeaderXRateLimit, both, or with no names none. Retry-After is always set. default:
// policy.HeaderRateLimit
func Headers(names ...string) Option {
	for _, n := range names {
		if n != policy.HeaderRateLimit && n != policy.HeaderXRateLimit {
			panic(fmt.Sprintf("weirhttp: Headers(%q): write policy.HeaderRateLimit or policy.HeaderXRateLimit", n))
		}
	}
	return option("Headers", func(s *settings) { s.headers = append([]string{}, names...) })
}

// Status is the status of refused requests, from 400 to 599. default: 429
func Status(status int) Option {
	if status < 400 || status > 599 {
		panic(fmt.Sprintf("weirhttp: Status(%d): write one within 400 and 599, like 503", status))
	}
	return option("Status", func(s *settings) { s.status = status })
}

// Refused is called for refused requests, instead of the default response. The header fields about
// the limit and Retry-After are set already; the handler writes the status and a body. ResponseFrom
// tells it which limit refused, and why.
func Refused(h http.Handler) Option {
	if h == nil {
		panic("weirhttp: Refused without a handler")
	}
	return option("Refused", func(s *settings) { s.refused = h })
}

// Cost returns what a request takes of the limit. A request with a cost of 0 passes without being
// counted, one with a cost below 0 gets 400. default: 1
func Cost(of func(r *http.Request) int64) Option {
	if of == nil {
		panic("weirhttp: Cost without a function")
	}
	return option("Cost", func(s *settings) { s.cost = of })
}

// Missing says what happens to requests without a key.
type Missing uint8

// The ways to treat requests without a key.
const (
	MissingKey    Missing = iota // they share one key, the empty text
	MissingSkip                  // they are not limited
	MissingRefuse                // they are refused with 429, without Retry-After; Response.Missing tells why
)

// OnMissing says what happens to requests without a key. default: MissingKey
func OnMissing(m Missing) Option {
	if m > MissingRefuse {
		panic(fmt.Sprintf("weirhttp: OnMissing(%d): write MissingKey, MissingSkip or MissingRefuse", m))
	}
	return option("OnMissing", func(s *settings) { s.missing = m })
}

// DefaultWait is the default of Wait for limits with a queue.
const DefaultWait = 30 * time.Second

// Wait lets requests over the limit wait for their turn, in order of arrival, for at most this long.
// A request that would have to wait longer is refused at once. 0 lets none wait. default:
// DefaultWait for a limit with a queue (LeakyBucket, Concurrency with Queue), 0 for all others
//
// A request whose client leaves gives up its place. net/http notices that only once the body of the
// request has been read: a request with a body can keep its place until its turn.
func Wait(longest time.Duration) Option {
	if longest < 0 {
		panic(fmt.Sprintf("weirhttp: Wait(%v): write a time of at least 0, like 3*time.Second", longest))
	}
	return option("Wait", func(s *settings) { s.wait, s.waits = longest, true })
}

// Waiting bounds how many requests wait at once: in total, and with PerClient of each key. Further
// requests are refused. default: 10,000, and no bound of each key. Wait says for how long they may wait;
// the Timeout has no effect here.
func Waiting(w policy.Waiting) Option {
	if w.Max < 0 || w.PerClient < 0 {
		panic(fmt.Sprintf("weirhttp: Waiting(%+v): write numbers of at least 0, like {Max: 1000, PerClient: 10}", w))
	}
	return option("Waiting", func(s *settings) { s.waiting = w })
}

// Shadow makes the limit decide and count, but refuse and delay nobody, and set no header fields:
// use it with Observe, to see what a limit would do. A limit in a store decides in the background.
func Shadow() Option { return option("Shadow", func(s *settings) { s.shadow = true }) }

// Observe calls a function with each decision, for metrics and logs. It is called before the
// request is passed on or refused, from many goroutines at once. Keys may be private: keep them out
// of metrics.
func Observe(f func(Response)) Option {
	return option("Observe", func(s *settings) { s.observe = f })
}

// InContext puts the Response into the context of admitted requests, for DecisionFrom and
// ResponseFrom. It costs a copy of the request. Handlers given to Refused have it in any case.
func InContext() Option { return option("InContext", func(s *settings) { s.context = true }) }

// PassUnmatched is an option of Policy: requests that no route matches go to the handler, and no
// limit applies to them. default: they get 404
func PassUnmatched() Option {
	return option("PassUnmatched", func(s *settings) { s.unmatched = true })
}

// Log is an option of Policy: where limits with log write a line for each request that they refuse
// or delay. The lines are nginx's, and do not name the client.
func Log(to *slog.Logger) Option {
	if to == nil {
		panic("weirhttp: Log without a logger")
	}
	return option("Log", func(s *settings) { s.log = to })
}

// Client is an option of Policy: it says what the client's address is, and whether a trusted proxy
// sent the request, in place of the policy's trusted_proxies. It is for servers that know it already.
func Client(of func(r *http.Request) (addr netip.Addr, trusted bool)) Option {
	if of == nil {
		panic("weirhttp: Client without a function")
	}
	return option("Client", func(s *settings) { s.client = of })
}

// RefusedByDefault is an option of Policy. It is like Refused, for routes without a refused of their own:
// the others respond as the policy says.
func RefusedByDefault(h http.Handler) Option {
	if h == nil {
		panic("weirhttp: RefusedByDefault without a handler")
	}
	return option("RefusedByDefault", func(s *settings) { s.refused, s.plainOnly = h, true })
}

// Values is an option of Policy: it gives requests their values, for value.NAME in keys and costs. The
// engine needs policy.Options.Values.
func Values(of func(r *http.Request) policy.Values) Option {
	if of == nil {
		panic("weirhttp: Values without a function")
	}
	return option("Values", func(s *settings) { s.values = of })
}

// Route is an option of Policy: the limits of one route of the policy, counted from 0, apply to all
// requests, whatever its match is. It is for servers with a router of their own.
func Route(index int) Option {
	return option("Route", func(s *settings) { s.route, s.routed = index, true })
}

// Fallback says what decides while the store of a *weir.Shared is unavailable, and how long a call
// may take: see package failover. Set Nodes to how many processes share the limit. A store that is
// a failover.Store already keeps its own settings. default: failover.Local with one node, so that
// this process enforces the limit by itself
//
// All middlewares of one *weir.Shared have one fallback: Limit panics if they are given different
// ones. Of several functions OnTransition, that of the first middleware is called.
//
// When a Limiter of your own returns an error, its requests are refused, or with failover.Allow
// admitted.
func Fallback(o failover.Options) Option {
	return option("Fallback", func(s *settings) { s.failure = o })
}
