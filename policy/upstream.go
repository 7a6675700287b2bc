package policy

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Upstream is one server behind the gateway, or several that serve the same requests.
type Upstream struct {
	Name        string
	URL         string   // the only target
	Targets     []Target // instead of URL
	Protocol    string   // "auto", "http1", "h2" or "h2c"; default: auto
	TLS         UpstreamTLS
	Timeouts    Timeouts
	MaxRequests int // requests in flight to each target; 0 is no bound
	MaxIdle     int // idle connections kept to each target; default: 1024
	Retries     Retries
	Health      Health
	Adaptive    Adaptive // of each target

	BufferRequest Buffer // default: 1 MiB for targets that certainly speak HTTP/1, off for others
}

// Buffer is how much of a request's body is buffered before a target gets the request. A longer body is
// streamed once as much has come.
type Buffer struct {
	Off    bool
	Memory int64 // most bytes in memory; default: 1 MiB
	File   int64 // most bytes in all, with those in a temporary file; default: Memory
}

// A Target is one of the servers of an upstream.
type Target struct {
	URL    string
	Weight int // its share relative to the others; default: 1
}

// UpstreamTLS is how a target is verified, and the gateway's client certificate. CA, Certificate
// and Key are names of PEM files.
type UpstreamTLS struct {
	CA          string // the authorities; default: the system's
	ServerName  string // the name in the target's certificate; default: the URL's host
	Certificate string // the client certificate, with Key
	Key         string
	Insecure    bool // accept any certificate
}

// Timeouts are the time limits of requests to an upstream.
type Timeouts struct {
	Connect time.Duration // for a connection, and again for its TLS; default: 5 s
	// from the end of the request to the header of the response; default: 60 s
	Response time.Duration
	Idle     time.Duration // without a byte of a body in either direction; default: 5 minutes
	Upgraded time.Duration // of a WebSocket, without a byte in either direction; default: 1 hour
}

// Retries say how often a request is sent to another target. Only idempotent requests are retried,
// and those that reached no target.
type Retries struct {
	Max    int // for one request; default: 1 with several targets; below 0: none
	Budget int // retries per 100 requests; default: 20
}

// Health says when a target is down: by checks, if Path is set, and by failed requests.
type Health struct {
	Path      string        // of the checks; empty for none
	Host      string        // of the checks; default: the host of the target's URL
	Every     time.Duration // between checks; default: 5 s
	Timeout   time.Duration // of a check; default: 2 s
	DownAfter int           // failed checks in a row; default: 3
	UpAfter   int           // successful checks in a row; default: 2
	// failed requests in a row that mark a target as down; default: 5; below 0: never
	Failures int
	DownFor  time.Duration // at first; doubles each time; default: 10 s
	AllDown  string        // while all targets are down: "try" or "refuse"; default: try
}

// Waiting bounds how many requests of a route wait in queues, and for how long.
type Waiting struct {
	Max       int // of all clients; default: 10000
	PerClient int // of one client address; 0 is no bound besides Max

	// Timeout is how long a request waits for places of Concurrency limits, after which it is refused;
	// default: 5 minutes. Queues of limits with a rate have a bound of their own.
	Timeout time.Duration
}

// All returns the targets of an upstream, with their weights.
func (u *Upstream) All() []Target {
	if u.URL != "" {
		return []Target{{URL: u.URL, Weight: 1}}
	}
	all := slices.Clone(u.Targets)
	for i := range all {
		all[i].Weight = max(all[i].Weight, 1)
	}
	return all
}

// Limits of an upstream's settings.
const (
	maxTargets = 1024
	maxWeight  = 1000
)

// numberSetting is a whole number in a policy, with its key.
type numberSetting struct {
	name string
	n    int
}

var (
	protocols = []string{"auto", "http1", "h2", "h2c"}
	allDown   = []string{"try", "refuse"}
)

func (c *checker) upstreams() {
	seen := map[string]bool{}
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		c.name("an upstream", u.Name, seen, "upstreams", u.Name)
		c.targets(u)
		c.protocol(u)
		c.numbers(u)
		if r := u.Retries; r.Max > 0 && len(u.All()) == 1 {
			c.warn("a request is sent again to another target only, and there is none", "add a target, or take retries out", "upstreams", u.Name, "retries")
		}
		c.health(u)
		c.buffer(u.BufferRequest, "upstreams", u.Name, "buffer_request")
		c.adaptive(u.Adaptive, "upstreams", u.Name, "adaptive")
	}
}

func (c *checker) targets(u *Upstream) {
	switch {
	case u.URL != "" && len(u.Targets) > 0:
		c.wrong("url and targets exclude each other", "put the url among the targets", "upstreams", u.Name, "url")
	case u.URL == "" && len(u.Targets) == 0:
		c.wrong("the upstream has no url, and no targets", "url: http://127.0.0.1:9000", "upstreams", u.Name)
	case u.URL != "":
		c.target(u.URL, "upstreams", u.Name, "url")
	case len(u.Targets) > maxTargets:
		c.wrong(fmt.Sprintf("%d targets are too many", len(u.Targets)), fmt.Sprintf("write at most %d", maxTargets), "upstreams", u.Name, "targets")
	}
	for i, t := range u.Targets {
		at := strconv.Itoa(i)
		c.target(t.URL, "upstreams", u.Name, "targets", at)
		if slices.ContainsFunc(u.Targets[:i], func(o Target) bool { return hostOf(o.URL) == hostOf(t.URL) }) {
			c.wrong(fmt.Sprintf("%q is there twice", hostOf(t.URL)), "give it a larger weight instead", "upstreams", u.Name, "targets", at)
		}
		if t.Weight < 0 || t.Weight > maxWeight {
			c.wrong(fmt.Sprintf("%d is not a weight", t.Weight), fmt.Sprintf("write one from 1 to %d", maxWeight), "upstreams", u.Name, "targets", at)
		}
	}
}

// hostOf returns the host and port of a URL.
func hostOf(text string) string {
	_, host, _ := strings.Cut(text, "://")
	return strings.ToLower(strings.TrimSuffix(host, "/"))
}

func (c *checker) target(text string, path ...string) {
	if problem := checkURL(text); problem != "" {
		c.wrong(problem, "write it like http://127.0.0.1:9000", path...)
	}
}

// protocol checks that all targets support the protocol, and that a target has https if TLS is
// configured.
func (c *checker) protocol(u *Upstream) {
	if u.Protocol != "" && !slices.Contains(protocols, u.Protocol) {
		c.wrong(fmt.Sprintf("%q is not a protocol", u.Protocol), suggest(u.Protocol, protocols), "upstreams", u.Name, "protocol")
	}
	secure := 0
	for _, t := range u.All() {
		if strings.HasPrefix(t.URL, "https://") {
			secure++
		}
	}
	switch {
	case secure > 0 && u.Protocol == "h2c":
		c.wrong("h2c is HTTP/2 without TLS, and a target is https", "write h2, or http:// in the target", "upstreams", u.Name, "protocol")
	case secure < len(u.All()) && u.Protocol == "h2":
		c.wrong("h2 is HTTP/2 over TLS, and a target is http", "write h2c, or https:// in the target", "upstreams", u.Name, "protocol")
	case secure == 0 && u.TLS != UpstreamTLS{}:
		c.wrong("no target is https", "write https:// in the target, or take tls out", "upstreams", u.Name, "tls")
	}
	if (u.TLS.Certificate == "") != (u.TLS.Key == "") {
		c.wrong("certificate and key go together", "name the other file too", "upstreams", u.Name, "tls")
	}
	if u.TLS.Insecure {
		c.warn("any certificate is accepted: an attacker on the network can read and change everything", "name a ca instead", "upstreams", u.Name, "tls", "insecure")
		if u.TLS.CA != "" || u.TLS.ServerName != "" {
			c.wrong("with insecure nothing is checked that ca and server_name say", "take insecure out", "upstreams", u.Name, "tls", "insecure")
		}
	}
}

func (c *checker) numbers(u *Upstream) {
	for _, v := range []numberSetting{{"max_requests", u.MaxRequests}, {"max_idle", u.MaxIdle}} {
		if v.n < 0 || v.n > math.MaxInt32 {
			c.wrong(fmt.Sprintf("%d is not a valid %s", v.n, v.name), "write at least 1, or take it out", "upstreams", u.Name, v.name)
		}
	}
	if u.Retries.Max > 10 {
		c.wrong(fmt.Sprintf("%d retries of one request are too many", u.Retries.Max), "write at most 10", "upstreams", u.Name, "retries", "max")
	}
	if u.Retries.Budget < 0 || u.Retries.Budget > 100 {
		c.wrong(fmt.Sprintf("%d%% is not a part of the requests", u.Retries.Budget), "write one from 1% to 100%", "upstreams", u.Name, "retries", "budget")
	}
}

func (c *checker) health(u *Upstream) {
	h := &u.Health
	if h.Path != "" {
		if p, err := url.ParseRequestURI(h.Path); err != nil || !strings.HasPrefix(h.Path, "/") || p.Host != "" {
			c.wrong(fmt.Sprintf("%q is not a path", h.Path), "write it like /healthz", "upstreams", u.Name, "health", "path")
		}
	}
	if strings.ContainsAny(h.Host, "\r\n /") {
		c.wrong(fmt.Sprintf("%q is not a host", h.Host), "write it like shop.example", "upstreams", u.Name, "health", "host")
	}
	for _, v := range []numberSetting{{"down_after", h.DownAfter}, {"up_after", h.UpAfter}} {
		if v.n < 0 || v.n > 1000 {
			c.wrong(fmt.Sprintf("%d is not a number of checks in a row", v.n), "write one from 1 to 1000", "upstreams", u.Name, "health", v.name)
		}
	}
	if h.Every != 0 && h.Every < 100*time.Millisecond {
		c.wrong(fmt.Sprintf("a check every %v keeps targets busy with checks", h.Every), "write at least 100ms", "upstreams", u.Name, "health", "every")
	}
	if h.AllDown != "" && !slices.Contains(allDown, h.AllDown) {
		c.wrong(fmt.Sprintf("%q is not known for all_down", h.AllDown), suggest(h.AllDown, allDown), "upstreams", u.Name, "health", "all_down")
	}
}

// checkURL says what is wrong with the URL of a target.
func checkURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Sprintf("%q is not a URL", text)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("%q does not begin with http:// or https://", text)
	case u.Host == "" || u.Hostname() == "":
		return fmt.Sprintf("%q names no host", text)
	case u.User != nil:
		return "a URL with a user and a password would show them in logs"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Sprintf("%q has more than a host: a request is passed on with its own path", text)
	}
	return ""
}

// fallbackUpstream checks the fallback upstream for refused or failed requests.
func (c *checker) fallbackUpstream(r Refused, own string, path ...string) {
	if r.Stale < 0 {
		c.wrong(fmt.Sprintf("%v is not an age", r.Stale), "write one like 10m", append(path, "stale")...)
	}
	switch {
	case r.Upstream == "":
	case !slices.ContainsFunc(c.Upstreams, func(u Upstream) bool { return u.Name == r.Upstream }):
		c.unknown("upstream", r.Upstream, names(c.Upstreams, func(u Upstream) string { return u.Name }), append(path, "upstream")...)
	case r.Upstream == own:
		c.wrong("what the route protects its upstream from would go there", "name another upstream", append(path, "upstream")...)
	}
}

// waiting checks how many requests may wait.
func (c *checker) waiting(w Waiting, at string) {
	for _, v := range []numberSetting{{"max", w.Max}, {"per_client", w.PerClient}} {
		if v.n < 0 || v.n > math.MaxInt32 {
			c.wrong(fmt.Sprintf("%d is not a number of requests", v.n), "write at least 1, or take it out", "routes", at, "waiting", v.name)
		}
	}
	if w.Timeout < 0 {
		c.wrong(fmt.Sprintf("%v is not a time to wait", w.Timeout), "write one like 5m, or take it out", "routes", at, "waiting", "timeout")
	}
	if w.Max > 0 && w.PerClient > w.Max {
		c.wrong(fmt.Sprintf("one client may hold %d, and all together %d", w.PerClient, w.Max), "lower per_client", "routes", at, "waiting", "per_client")
	}
}

// buffer checks how much of a request's body is buffered.
func (c *checker) buffer(b Buffer, path ...string) {
	memory := b.Memory
	if memory == 0 {
		memory = 1 << 20
	}
	if b.File != 0 && b.File < memory && !b.Off {
		c.wrong(fmt.Sprintf("file (%d bytes) is the most of a body in all, and below memory (%d bytes)", b.File, memory),
			"raise file, or lower memory", append(path, "file")...)
	}
}
