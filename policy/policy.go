// Package policy says which limits apply to a request, how their keys are made, and what refused
// requests get. A Policy is plain data. New compiles it into an Engine, whose method Decide decides
// about requests. The gateway, the replay of logs, scripts and middleware all use this Decide.
//
// The package does no I/O. The server module reads policy files in YAML.
package policy

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// A Policy is the content of a policy file, as data.
type Policy struct {
	Listen         Listen
	Admin          Admin
	AccessLog      AccessLog
	DecisionLog    DecisionLog
	TrustedProxies []netip.Prefix // proxies that are trusted to report a client's address
	ClientHeader   string         // the header with that address; default: X-Forwarded-For
	Paths          Paths          // of all routes; a route's own settings come first
	// response headers about limits: "ratelimit", "x-ratelimit"; default: ratelimit
	Headers  []string
	Stores   []Store
	Plans    Plans
	Warnings Warnings
	// which requests adaptive limits refuse last
	Priorities Priorities
	// keeps the counts of limits in memory with a window of an hour or more across restarts; empty for
	// none
	SnapshotFile string
	Limits       []Limit
	Upstreams    []Upstream
	Rooms        []WaitingRoom
	Routes       []Route // the first route that matches applies
}

// Admin says who may change a running server through its admin address. This package reads none of
// the files.
type Admin struct {
	TokenFile string // holds the token that requests must send; empty for none
	Cert, Key string // files of a certificate and of its key; empty for no TLS
	StateFile string // keeps bans and grants across restarts; empty for none
	AuditLog  string // a file, or stderr: gets a line for each change through the API; empty for none
	Recent    int    // how many of the latest requests are kept for previews of a changed policy
}

// MaxRecent is the largest Admin.Recent.
const MaxRecent = 1_000_000

// A Store describes a shared store and how it is used. This package opens no store: see
// Options.Stores.
type Store struct {
	Name string
	URL  string // of any scheme with a store; may contain a password
	// the states that the URL leads to; set by the package that opens the store
	Place     Place
	OnFailure string        // the fallback: "allow", "deny" or "local"; default: local
	Deadline  time.Duration // for one call; default: 20 ms
	Nodes     int           // how many processes share it, until the store reports it; default: 1
	Lease     Lease
	Prefix    string   // of all keys in the store; default: "weir:"
	Regions   *Regions // between which its limits are divided; nil for none
}

// A Place says where the states of a store are. Two URLs that lead to the same states have the same
// Place. Without a Place, each URL counts as a place of its own.
type Place struct {
	Hosts string // separated by commas; two stores have one place if they share a host
	Rest  string // what else separates states, such as a database
	// the store spreads keys over nodes by their tags; a group is one atomic step only within a
	// slot
	Slots bool
}

// Lease says whether tokens are leased ahead of demand, so that most decisions need no round trip.
type Lease struct {
	On       bool
	Lifetime time.Duration // of leased tokens; default: lease.DefaultLifetime
	Max      int64         // tokens of one key on this node; default: the default of package lease
}

// A Limit is a named limit with its key.
type Limit struct {
	Name string
	// parts like "client.ip" and "header.user-id", in order; without parts, all requests share one
	// counter
	Key   []string
	Limit weir.Limit
	// warns each key once in a window when this share of the limit is used, like "80%"; empty for never
	WarnAt string
	// its parameters by plan, each plan once; all other plans have those of Limit
	Plans []PlanLimit
	Cost  string // a whole number, "header.NAME" or "bytes"; default: 1
	Costs Costs  // in place of Cost, for costs that are known only afterwards
	// requests that the limit does not apply to: "10.0.0.0/8", "header.NAME=VALUE", "key.VALUE",
	// "method.NAME" or "preflight"
	Exempt []string
	// for requests without a part of the key: "key", "skip", "skip_empty" (without any part) or
	// "deny"; default: key
	OnMissing string
	Store     string // the name of a store; default: the memory of this process
	OnFailure string // the fallback without the store; default: the store's OnFailure
	// groups limits on a store that spreads keys over nodes: a part of the key, or "const.TEXT";
	// default: by key
	Tag string
	// limits with the same zone share one state for each key; default: a state of the limit's own
	Zone string
	// decided and counted, not enforced; with a Zone its charges count into the zone
	Shadow bool
	// the share of keys that it is enforced for, like "0.5%"; for the others it is a shadow;
	// default: all keys
	RollOut  string
	MaxKeys  int    // how many keys are kept; default: keyed.DefaultMaxKeys
	WhenFull string // for new keys beyond MaxKeys: "evict", "refuse" or "share"; default: evict
	Status   int    // of requests that it refuses; default: the route's
	// the level at which refusals are logged, and delays one below: "error", "warn", "notice" or
	// "info"; default: no lines
	Log string
	// it is written in a descriptor of Envoy's files: its name begins with EnvoyPrefix, and its key has
	// the values of descriptors (value.NAME)
	InEnvoy bool
}

// EnvoyPrefix begins the names of limits in Envoy's files. No other name has a slash.
const EnvoyPrefix = "envoy/"

// A Route says which limits and which upstream apply to which requests.
type Route struct {
	Match    string   // "[METHOD] [HOST]/PATH"
	Address  []string // addresses of Listen.Gateway that the route applies to; default: all
	Upstream string   // the name of an upstream; weir replay needs none

	// UpstreamPath replaces the part of the path that Match names, on the way to the upstream.
	// default: the path is unchanged.
	UpstreamPath string
	AddHeaders   []AddHeader

	Respond  Response // instead of forwarding requests
	Room     string   // the name of a waiting room in front of it; empty for none
	Limits   []string
	Adaptive Adaptive // for all requests of the route, besides Limits
	// of its requests at adaptive limits: "critical_plus", "critical", "sheddable_plus" or "sheddable";
	// default: that of the plan, or critical
	Priority string
	Refused  Refused
	Failed   Refused // for requests whose upstream failed; default Status: 502, 503 or 504
	Waiting  Waiting
	MaxBody  int64 // bytes of a request's body; default: Bounds.MaxBody; below 0: no bound

	// UnderscoreHeaders says what happens to a header field whose name differs from that of a field
	// that matters only in bytes that upstreams fold, like X_Api_Key. default: drop
	UnderscoreHeaders string

	Hold string // when requests leave concurrency limits: "until_client_leaves" or "until_upstream_ends"; default: until_client_leaves

	BufferRequest Buffer // of the requests of this route; default: that of the upstream

	Paths Paths // which paths are one for the upstream

	Parameters string // how the upstream reads the names of query parameters: "strict" or "php"; default: strict
}

// A Response is what the gateway sends by itself, without an upstream. At most one of Body, File
// and Redirect is set.
type Response struct {
	// default: 200, and 302 with a redirect; a Response without Status, Body, File and Redirect is
	// not set
	Status int
	Body   string // unchanged
	File   string // the name of a file with the body
	// the URL to redirect to; {host}, {path}, {uri} (the path with the query), {query} and {?query}
	// (with its ?) stand for parts of the request
	Redirect string
	Type     string // the Content-Type of the body; default: detected
}

// IsSet reports whether there is a response.
func (r Response) IsSet() bool { return r != Response{} }

// StatusCode returns Status, or its default.
func (r Response) StatusCode() int {
	switch {
	case r.Status != 0:
		return r.Status
	case r.Redirect != "":
		return http.StatusFound
	}
	return http.StatusOK
}

// An AddHeader is a header field that is added to the responses of a route.
type AddHeader struct {
	Name, Value string
	// also to refusals and errors; otherwise to the statuses 200, 201, 204, 206, 301 to 304, 307
	// and 308
	Always bool
}

// Refused is the response to refused requests. At most one of Body, File and Redirect is set. Stale
// and Upstream are tried first.
type Refused struct {
	// the last good response to the same request, if at most this old; 0 is none
	Stale    time.Duration
	Upstream string // another upstream, to which no limit applies; empty for none
	Status   int    // default: 429, and 302 with a redirect
	Body     string // unchanged
	File     string // the name of a file with the body
	Redirect string // the URL to redirect to
	Type     string // the Content-Type of the body; default: detected
}

// StatusCode returns Status, or its default.
func (r Refused) StatusCode() int {
	switch {
	case r.Status != 0:
		return r.Status
	case r.Redirect != "":
		return http.StatusFound
	}
	return http.StatusTooManyRequests
}

// RefusedBy returns what requests of a route get that a limit with a Status of its own refuses, by the
// name of the limit: the route's response with that status, which a redirect cannot have. The status of
// adaptive limits is 503: it is not the client that is at fault.
func (p *Policy) RefusedBy(r *Route) map[string]Refused {
	var by map[string]Refused
	add := func(name string, status int) {
		if by == nil {
			by = map[string]Refused{}
		}
		own := r.Refused
		own.Status, own.Redirect = status, ""
		by[name] = own
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Status == 0 || !slices.Contains(r.Limits, l.Name) {
			continue
		}
		add(l.Name, l.Status)
	}
	if u := p.adaptiveUpstream(r); u != nil {
		add(AdaptiveName(u.Name), http.StatusServiceUnavailable)
	}
	if r.Adaptive.On {
		for i, name := range p.adaptiveOf() {
			if &p.Routes[i] == r {
				add(name, http.StatusServiceUnavailable)
			}
		}
	}
	return by
}

// Names of header fields in Policy.Headers.
const (
	// RateLimit and RateLimit-Policy, as in draft-ietf-httpapi-ratelimit-headers-11
	HeaderRateLimit  = "ratelimit"
	HeaderXRateLimit = "x-ratelimit" // X-RateLimit-Limit, -Remaining and -Reset
)

// store returns the store with that name, or nil.
func (p *Policy) store(name string) *Store {
	for i := range p.Stores {
		if p.Stores[i].Name == name {
			return &p.Stores[i]
		}
	}
	return nil
}

// limit returns the limit with that name, or nil.
func (p *Policy) limit(name string) *Limit {
	for i := range p.Limits {
		if p.Limits[i].Name == name {
			return &p.Limits[i]
		}
	}
	return nil
}
