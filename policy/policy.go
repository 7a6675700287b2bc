// Package policy says which limits a request meets, by which keys, and what the refused get. A Policy is plain data; New compiles it
// once into an Engine, whose Decide is what the gateway, the replay of logs, scripts and middleware all use.
//
// The package does no I/O. A policy file in YAML is read by the server module.
package policy

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/weirflow/weir"
)

// A Policy is what a policy file says, as data.
type Policy struct {
	Listen         Listen
	Admin          Admin
	AccessLog      AccessLog
	TrustedProxies []netip.Prefix // who is believed about the address of a client
	ClientHeader   string         // the header field that they write it to; empty means X-Forwarded-For
	Headers        []string       // which header fields tell a client about its limits: "ratelimit", "x-ratelimit"; nil means ratelimit
	Stores         []Store
	Limits         []Limit
	Upstreams      []Upstream
	Rooms          []WaitingRoom
	Routes         []Route // the first that matches wins
}

// Admin is who may change a running server through its admin address, and what it keeps of that. The package reads none of the files.
type Admin struct {
	TokenFile string // holds what a request has to bring; empty for none
	Cert, Key string // files of a certificate and of its key; empty for no TLS
	StateFile string // keeps bans and grants over a restart; empty for not at all
}

// A Store is somewhere that limits can be shared, and how it is used. The package opens none: see Options.Stores.
type Store struct {
	Name      string
	URL       string        // of any scheme for which there is a store; it may have a password
	Place     Place         // where the URL leads, as told by the package that opens it
	OnFailure string        // what decides without it: "allow", "deny" or "local"; empty means local
	Deadline  time.Duration // how long it may take to answer; 0 means 20 ms
	Nodes     int           // how many processes share it, until that is learned from it; 0 means 1
	Lease     Lease
	Prefix    string // what all keys there begin with; default: "weir:"
}

// A Place is where the states of a store are: two URLs that lead to the same states have one. Without it, each URL is a place of its own.
type Place struct {
	Hosts string // separated by commas; the places of two stores are one where they have a host in common
	Rest  string // what else tells states apart, such as a database; it is compared as it is
	Slots bool   // keys are spread over nodes by their tags, and a group is one step only within a slot
}

// Lease says whether tokens are taken ahead from a store, so that most decisions need no trip.
type Lease struct {
	On       bool
	Lifetime time.Duration // for how long they may be used; 0 means a default
	Max      int64         // how many of a key this node may hold; 0 means a default
}

// A Limit is a named limit with the key that it is kept by.
type Limit struct {
	Name      string
	Key       []string // parts like "client.ip" and "header.user-id", in order; none is one state for all
	Limit     weir.Limit
	Cost      string   // a whole number, "header.NAME" or "bytes"; empty means 1
	Exempt    []string // requests that the limit does not apply to: "10.0.0.0/8", "header.NAME=VALUE", "key.VALUE", "method.NAME" or "preflight"
	OnMissing string   // what becomes of a request without a part of the key: "key", "skip", "skip_empty" (without any of it) or "deny"; empty means key
	Store     string   // the name of a store; empty is the memory of this process
	OnFailure string   // what decides without the store, in place of the store's OnFailure
	Tag       string   // what is kept together on a store that spreads its keys over nodes: a part of the key, or "const.TEXT"; empty is what has the same key
	Zone      string   // limits with the same zone share one state for each key; empty is a state of the limit's own
	Shadow    bool     // decided and counted, not enforced; with a Zone its charges count into the zone
	RollOut   string   // the share of the keys that it is enforced for, like "0.5%": for the others it is a shadow; empty is all
	MaxKeys   int      // how many keys are kept at once; 0 means keyed.DefaultMaxKeys
	WhenFull  string   // what becomes of a new key beyond that: "forget", "refuse" or "share"; empty means forget
	Status    int      // what those get that it refuses; 0 is what the route says
	Log       string   // the level at which refusals are logged, and delays one below: "error", "warn", "notice" or "info"; empty is not at all
}

// A Route says which requests meet which limits.
type Route struct {
	Match    string   // "[METHOD] [HOST]/PATH"
	Address  []string // which addresses of Listen.Gateway the route is for; none is all
	Upstream string   // the name of an upstream; replay and the limit service need none

	// UpstreamPath takes the place of the part of the path that Match says, on the way to the upstream. Empty leaves the path as it is.
	UpstreamPath string
	AddHeaders   []AddHeader

	Respond Response // instead of passing requests on
	Room    string   // the name of a waiting room in front of it; empty for none
	Limits  []string
	Refused Refused
	Failed  Refused // what those get whom the upstream did not answer; a Status of 0 is 502, 503 or 504 there
	Waiting Waiting
	MaxBody int64 // bytes of a request's body; 0 means Bounds.MaxBody, and below 0 there is no bound
}

// A Response is what the gateway answers by itself, without an upstream. At most one of Body, File and Redirect is set.
type Response struct {
	Status   int    // 0 means 200, and 302 with a redirect; a Response with neither Status nor Redirect, Body or File is none
	Body     string // as it is
	File     string // the name of a file with the body
	Redirect string // where to go instead; {host}, {path}, {uri} (the path with the query), {query} and {?query} (with its ?) are those of the request
	Type     string // the Content-Type of the body; empty means that it is found out
}

// IsSet reports whether there is a response at all.
func (r Response) IsSet() bool { return r != Response{} }

// StatusCode is the status of the response.
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
	Always      bool // also to refusals and errors; otherwise to the statuses 200, 201, 204, 206, 301 to 304, 307 and 308
}

// Refused is what a refused request is answered with. At most one of Body, File and Redirect is set. Stale and Upstream are tried first.
type Refused struct {
	Stale    time.Duration // the last good answer to the same request, where it is at most that old; 0 is none
	Upstream string        // another upstream, which no limit is asked about; empty is none
	Status   int           // 0 means 429, and 302 with a redirect
	Body     string        // as it is
	File     string        // the name of a file with the body
	Redirect string        // where to go instead
	Type     string        // the Content-Type of the body; empty means that it is found out
}

// StatusCode is the status that the refused get: Status, or what it means where it is 0.
func (r Refused) StatusCode() int {
	switch {
	case r.Status != 0:
		return r.Status
	case r.Redirect != "":
		return http.StatusFound
	}
	return http.StatusTooManyRequests
}

// Names of header fields in Policy.Headers.
const (
	HeaderRateLimit  = "ratelimit"   // RateLimit and RateLimit-Policy, as in draft-ietf-httpapi-ratelimit-headers-11
	HeaderXRateLimit = "x-ratelimit" // X-RateLimit-Limit, -Remaining and -Reset
)

// store returns the store of that name, nil where there is none.
func (p *Policy) store(name string) *Store {
	for i := range p.Stores {
		if p.Stores[i].Name == name {
			return &p.Stores[i]
		}
	}
	return nil
}

// limit returns the limit of that name, nil where there is none.
func (p *Policy) limit(name string) *Limit {
	for i := range p.Limits {
		if p.Limits[i].Name == name {
			return &p.Limits[i]
		}
	}
	return nil
}
