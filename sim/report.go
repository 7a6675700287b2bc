package sim

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weirflow/weir/internal/topk"
	"github.com/weirflow/weir/policy"
)

// A Report is the result of a replay.
type Report struct {
	Reading
	NoRoute   int64 // requests without a route, which are allowed
	Invalid   int64 // requests with an invalid cost or an ambiguous path, which are refused
	Allowed   int64 // requests admitted at once
	Limited   int64 // requests refused by a limit
	Delayed   int64 // requests that waited in a queue
	Limits    []LimitCount
	Routes    []RouteCount
	Clients   ClientCounts
	FirstHour Span                 // the first hour of UTC in which a request was limited
	WorstHour Span                 // that with the most of them
	Missing   []policy.MissingPart // parts of keys that no request had
	Most      []LimitedKey
	MostError int64 // by how much a count of Most may be too high

	Adaptive   []AdaptiveCount // the adaptive limits: of routes, then of upstreams
	NoDuration int64           // requests for them whose duration the log does not have

	Timeline []Span          // the requests in slots of equal length; at most 600
	Slot     time.Duration   // their length
	Heat     Heat            // of a token bucket for each client; only with Options.Profiles
	Doing    []LimitedClient // the clients that were limited most; only with Options.Profiles

	timeline timeline
	visitors *clientTable[visitor] // nil without Options.Profiles
	top      *topKeys
	clients  *clientTable[clientCount]
	hours    hours
	limitOf  map[string]int // the places of limits in Limits
	bitWords int            // of clientCount.by
}

// RouteCount counts the requests of a route.
type RouteCount struct {
	Match                               string
	Requests, Allowed, Limited, Delayed int64
	ClientsLimited                      int64 // distinct clients with a request that was refused
}

// ClientCounts is what a report says of distinct clients.
type ClientCounts struct {
	Seen    int64
	Limited int64 // with a request that was refused
	Delayed int64 // with a request that waited
	Sampled bool  // there were so many that all counts of clients are estimates from a sample

	// Peaks are quantiles of the most requests that a client sent in a second, a minute and an hour of UTC.
	Peaks [len(peakWindows)]Quantiles
	// Used are quantiles of the largest part of a limit, in percent, that a client used which was never
	// limited; Close is how many of them used at least 80 %.
	Used  Quantiles
	Close int64
}

// Quantiles of clients: half of them have at most the first value.
type Quantiles struct {
	Half, P90, P99, P999, Max int64
}

// quantilesOf sorts values, and returns their quantiles: the smallest value that at least this share has
// at most.
func quantilesOf(values []int64) (q Quantiles) {
	if len(values) == 0 {
		return q
	}
	slices.Sort(values)
	at := func(permille int) int64 { return values[(len(values)*permille+999)/1000-1] }
	return Quantiles{at(500), at(900), at(990), at(999), at(1000)}
}

// LimitCount counts the decisions of one limit. A request counts once for each limit that was
// evaluated; a refused request counts only for the limit that refused it.
type LimitCount struct {
	Limit                     string
	Shadow                    bool
	Allowed, Limited, Delayed int64
	ClientsLimited            int64 // distinct clients that it refused, or as a shadow would have refused
	// the shadow of the limit before it, for keys outside its roll_out
	Rest bool

	// for a limit whose costs are known only afterwards: the sums of what was charged before and after,
	// and how many requests' costs the logs did not have
	Settles                    bool
	Estimated, Actual, Unknown int64
}

// LimitedKey is a key and how often a limit refused it.
type LimitedKey struct {
	Limit string
	Key   string // its parts, separated by commas
	Count int64
}

const (
	mostKeys    = 10
	trackedKeys = 10_000
)

func newReport(p *policy.Policy) *Report {
	r := &Report{top: newTopKeys(trackedKeys), clients: newClientTable[clientCount](maxClients), limitOf: make(map[string]int)}
	for i, l := range p.Limits {
		r.limitOf[l.Name] = i
	}
	for _, route := range p.Routes {
		r.Routes = append(r.Routes, RouteCount{Match: route.Match})
	}
	r.bitWords = (2*len(p.Limits) + len(p.Routes) + 63) / 64
	return r
}

// add counts a request.
func (r *Report) add(d *decided) {
	r.request(d.at)
	r.countTimes(d.at, d.outcome)
	if r.visitors != nil {
		if visitor := r.visitors.of(d.client); visitor != nil {
			visitor.add(&d.visit)
			if d.outcome == policy.Deny {
				visitor.limited++
			}
		}
	}
	client := r.clients.of(d.client)
	if client != nil {
		client.add(d.at)
	}
	var route *RouteCount
	if d.route >= 0 && d.route < len(r.Routes) {
		route = &r.Routes[d.route]
		route.Requests++
	}
	switch d.outcome {
	case policy.Deny:
		r.Limited++
		r.top.add(d.limit, d.key)
		if route != nil {
			route.Limited++
		}
		if client != nil {
			client.limited++
		}
		r.limitedClient(client, d)
	case policy.Delay:
		r.Delayed++
		if route != nil {
			route.Delayed++
		}
		if client != nil {
			client.delayed++
		}
	case policy.Invalid:
		r.Invalid++
	case policy.NoRoute, policy.Allow:
		r.Allowed++
		if d.outcome == policy.NoRoute {
			r.NoRoute++
		}
		if route != nil {
			route.Allowed++
		}
	}
	if client == nil {
		return
	}
	for _, limit := range d.shadows {
		r.note(client, len(r.limitOf)+limit)
	}
	if d.most > 0 && d.outcome != policy.Deny {
		client.used = max(client.used, 1-float32(max(d.remaining, 0))/float32(d.most))
	}
}

// countTimes counts a request in its hour and its slot of time.
func (r *Report) countTimes(at int64, o policy.Outcome) {
	for _, span := range [2]*Span{r.hours.at(at), r.timeline.at(at)} {
		span.Requests++
		switch o {
		case policy.Deny:
			span.Limited++
		case policy.Delay:
			span.Delayed++
		case policy.NoRoute, policy.Allow:
			span.Allowed++
		}
	}
}

// limitedClient notes by which limit and on which route a client was refused.
func (r *Report) limitedClient(c *clientCount, d *decided) {
	if c == nil {
		return
	}
	if i, ok := r.limitOf[d.limit]; ok {
		r.note(c, i)
	}
	if d.route >= 0 {
		r.note(c, 2*len(r.limitOf)+d.route)
	}
}

// note notes one bit of a client.
func (r *Report) note(c *clientCount, bit int) {
	if c.by == nil {
		c.by = make([]uint64, r.bitWords)
	}
	c.by[bit/64] |= 1 << (bit % 64)
}

// shadows is the Observer of a replay: it notes which shadow limits would have refused the request.
type shadows struct {
	limitOf map[string]int
	refused []int // the numbers of the limits
}

func (s *shadows) Sees(o policy.Outcome, limit string, shadow bool) bool {
	if shadow && o == policy.Deny {
		s.refused = append(s.refused, s.limitOf[limit])
	}
	return false
}

func (*shadows) Observe(policy.Observed)      {}
func (*shadows) Timed(time.Duration)          {}
func (*shadows) Queued(string, time.Duration) {}

// countClients completes what the report says of clients.
func (r *Report) countClients() {
	c := &r.Clients
	c.Sampled = r.clients.halvings > 0
	var peaks [len(peakWindows)][]int64
	var used []int64
	counts := make([]int, 64*r.bitWords)
	limited, delayed, near := 0, 0, 0
	for _, client := range r.clients.all {
		for i := range peaks {
			peaks[i] = append(peaks[i], int64(client.peak[i]))
		}
		if client.delayed > 0 {
			delayed++
		}
		for i := range client.by {
			for word := client.by[i]; word != 0; word &= word - 1 {
				counts[64*i+bits.TrailingZeros64(word)]++
			}
		}
		if client.limited == 0 {
			used = append(used, int64(math.Round(100*float64(client.used))))
			if client.used >= 0.8 {
				near++
			}
			continue
		}
		limited++
	}
	t := r.clients
	c.Seen, c.Limited, c.Delayed, c.Close = t.scaled(len(t.all)), t.scaled(limited), t.scaled(delayed), t.scaled(near)
	for i := range peaks {
		c.Peaks[i] = quantilesOf(peaks[i])
	}
	c.Used = quantilesOf(used)
	for i := range r.Limits {
		l := &r.Limits[i]
		bit := r.limitOf[l.Limit]
		if l.Rest || l.Shadow {
			bit += len(r.limitOf)
		}
		l.ClientsLimited = t.scaled(counts[bit])
	}
	for i := range r.Routes {
		r.Routes[i].ClientsLimited = t.scaled(counts[2*len(r.limitOf)+i])
	}
}

// count copies the counters of the engine.
func (r *Report) count(e *policy.Engine) {
	for _, c := range e.Counts() {
		r.Limits = append(r.Limits, LimitCount{
			Limit: c.Limit, Shadow: c.Shadow, Rest: c.Rest, Settles: c.Settles,
			Allowed: int64(c.Allowed), Limited: int64(c.Limited), Delayed: int64(c.Delayed),
			Estimated: int64(c.Estimated), Actual: int64(c.Actual), Unknown: int64(c.Unknown),
		})
	}
	r.Missing = e.Missing()
	r.Most, r.MostError = r.top.most(mostKeys)
	r.hours.end()
	r.FirstHour, r.WorstHour = r.hours.first, r.hours.worst
	r.Timeline, r.Slot = r.timeline.spans(), time.Duration(r.timeline.width)
	r.countClients()
	if r.visitors != nil {
		r.describe()
	}
}

// topKeys counts how often keys were refused, in bounded memory.
type topKeys struct {
	sketch *topk.Sketch[[2]string] // of limit and key
	seed   maphash.Seed
}

func newTopKeys(capacity int) *topKeys {
	return &topKeys{topk.NewSerial[[2]string](capacity), maphash.MakeSeed()}
}

func (t *topKeys) add(limit, key string) {
	k := [2]string{limit, key}
	// of two texts, maphash.Comparable takes more than twice as long
	t.sketch.Add(k, maphash.String(t.seed, key)+3*maphash.String(t.seed, limit), 1)
}

// most returns the n most frequent keys, and by how much a count may be too high.
func (t *topKeys) most(n int) (all []LimitedKey, over int64) {
	counted := t.sketch.Heaviest(trackedKeys)
	slices.SortFunc(counted, func(a, b topk.Counted[[2]string]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key[0], b.Key[0]), strings.Compare(a.Key[1], b.Key[1]))
	})
	for _, c := range counted[:min(n, len(counted))] {
		all = append(all, LimitedKey{c.Key[0], keyParts(c.Key[1]), int64(c.Count)})
		over = max(over, int64(c.Error))
	}
	return all, over
}

// keyParts formats a key as its parts, separated by commas.
func keyParts(key string) string {
	parts, err := policy.DecodeKey(key)
	if err != nil {
		return "(a long key)"
	}
	if len(parts) == 0 {
		return "(all)"
	}
	for i, p := range parts {
		if p == "" || strings.ContainsAny(p, ",\" \t\n") || !printable(p) {
			parts[i] = fmt.Sprintf("%q", p)
		}
	}
	return strings.Join(parts, ",")
}

// printable reports whether a text can be shown as it is: no control characters, and none that
// change the order of what is shown (those of bidirectional text are not printable either).
func printable(s string) bool {
	for _, r := range s {
		if r == '\uFFFD' || !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// shownName returns a name of the policy as it can be shown.
func shownName(s string) string {
	if !printable(s) {
		return fmt.Sprintf("%q", s)
	}
	return s
}
