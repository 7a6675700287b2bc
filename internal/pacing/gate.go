package pacing

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/internal/heap"
)

// GateOptions are the bounds of a Gate.
type GateOptions struct {
	// MaxKeys is how many keys without requests in flight are kept; default: 1024. Beyond it, the key
	// is forgotten whose pause ends first.
	MaxKeys int
	// MaxPause is the longest pause, whatever the server says; default: DefaultMaxPause.
	MaxPause time.Duration
	// Processes is how many processes share the limits of the server; default: 1. Each has requests in
	// flight for half of its share of what remains, and leaves the rest of a fortieth to the others.
	Processes int64
}

// DefaultMaxPause is the default of GateOptions.MaxPause.
const DefaultMaxPause = 5 * time.Minute

// A Gate says when the next request may be sent to a server. There is a state for each key, such as
// the name of a host. It is safe for concurrent use, and starts no goroutine.
//
// A key without requests in flight, and about which the server said nothing that still holds, takes
// no memory.
type Gate struct {
	opts GateOptions

	mu     sync.Mutex
	states map[string]*state
	idle   heap.Heap[state] // those without requests in flight, by the time until which they matter

	changed Signal
}

// A state is what is known about a key.
type state struct {
	key      string
	inFlight int64  // sent, and without a response
	tokens   int64  // what those in flight are expected to take of limits of tokens
	sent     uint64 // how many requests were sent
	quotas   []quota

	until    time.Time // no request may be sent before
	pausedAt time.Time // when until was last set by a response
	refusals int       // pauses in a row for which the server gave no time

	// After a pause, one request goes first. ramp is how many may be in flight then: one more for
	// each response after the first, and twice as many for each second since ramped. 0: no bound.
	//
	// After the first response, one request goes again: a server whose tokens come one by one has none
	// for two, and each refusal is a retry that a request has spent.
	ramp     int64
	ramped   time.Time
	admitted bool // a request that was sent after the pause got a response

	node heap.Node[state] // its place among the idle ones
}

// A quota is what a server said remains of one of its limits.
type quota struct {
	Quota
	ends time.Time // when Remaining is Limit again, as far as is known
	by   uint64    // the request whose response said so
}

// A Quota is what a response says about a limit of the server.
type Quota struct {
	Name      string        // tells the limits of one server apart
	Limit     int64         // how much there is after the reset; 0: unknown
	Remaining int64         // how many more requests may be sent before the reset
	Reset     time.Duration // from now
	Tokens    bool          // Limit and Remaining count tokens, and not requests
	// what was used comes back evenly until the reset, as in a token bucket, and not all at once
	Gradual bool
}

// A Report is what a response says about the server's limits.
type Report struct {
	Refused bool          // the request was refused because of a limit, or of too much load
	Pause   time.Duration // of a refused request: when to send again; 0: the server does not say
	Quotas  []Quota
}

// mostQuotas is how many limits of a server are kept, and longestName how much of their names.
const (
	mostQuotas  = 8
	longestName = 64
)

// The pause after a refusal for which the server gave no time: at first a second, doubled with each
// further refusal up to a minute, of which a half is drawn at random.
const (
	firstPause   = time.Second
	longestGuess = time.Minute
)

// rampTime is how long after a pause or a reset the number of requests in flight is bounded.
const rampTime = 20 * time.Second

// NewGate returns a gate that is open for every key.
func NewGate(o GateOptions) *Gate {
	if o.MaxKeys <= 0 {
		o.MaxKeys = 1024
	}
	if o.MaxPause <= 0 {
		o.MaxPause = DefaultMaxPause
	}
	o.Processes = max(o.Processes, 1)
	return &Gate{opts: o, states: map[string]*state{}}
}

// A Pass is the permission to send one request. Call Done when its response has come, or when it has
// failed.
type Pass struct {
	gate *Gate
	s    *state
	by   uint64
	at   time.Time
	done bool

	tokens int64
}

// Enter returns a Pass if a request may be sent now. Otherwise it returns nil, and a time after which
// to try again; a try before that may succeed when Changed is closed.
func (g *Gate) Enter(key string) (*Pass, time.Duration) { return g.EnterTokens(key, 1) }

// EnterTokens is Enter for a request that is expected to take so much of a limit of tokens.
func (g *Gate) EnterTokens(key string, tokens int64) (*Pass, time.Duration) {
	tokens = min(max(tokens, 1), 1<<40) // so that no sum overflows
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	s := g.states[key]
	if s == nil {
		s = &state{key: key}
	}
	if wait := s.wait(now, tokens, g.opts.Processes); wait > 0 {
		return nil, wait
	}
	if s.node.In() {
		g.idle.Remove(&s.node)
	}
	if g.states[key] == nil {
		g.makeRoom(now)
		g.states[key] = s
	}
	s.inFlight++
	s.tokens += tokens
	s.sent++
	return &Pass{gate: g, s: s, by: s.sent, at: now, tokens: tokens}, 0
}

// wait is 0 if a request may be sent now, and otherwise the time after which to try again.
func (s *state) wait(now time.Time, tokens, processes int64) time.Duration {
	if wait := s.until.Sub(now); wait > 0 {
		return wait
	}
	if s.ramp > 0 {
		since := now.Sub(s.ramped)
		if since < rampTime && s.inFlight >= s.ramp<<(since/time.Second) {
			return time.Second - since%time.Second
		}
	}
	for i := range s.quotas {
		q := &s.quotas[i]
		left, wait := q.left(now)
		if left >= 0 && !s.fits(q, left, tokens, processes, now.Before(q.ends)) {
			return wait
		}
	}
	return 0
}

// left is what remains of a limit now, below 0 if that is unknown, and the time until it is more.
func (q *quota) left(now time.Time) (left int64, more time.Duration) {
	rest := q.ends.Sub(now)
	switch used := q.Limit - q.Remaining; {
	case rest <= -rampTime:
		return -1, 0
	case rest <= 0: // what the server counts now is not known: one request goes first, and its response tells
		since := -rest
		left = 1 << (since / time.Second)
		if q.Limit > 0 && !q.Tokens {
			left = min(left, q.Limit)
		}
		return left, time.Second - since%time.Second
	case q.Gradual && used > 0:
		each := q.Reset / time.Duration(used)
		if each <= 0 {
			return q.Limit, rest
		}
		back := (q.Reset - rest) / each
		return q.Remaining + int64(back), (back+1)*each - (q.Reset - rest)
	}
	return q.Remaining, rest
}

// fits reports whether one more request in flight fits into what remains. What is in flight counts as
// not yet taken from it: the server may have counted it before or after it said what remains. Of
// several processes, each has half of its share in flight: what the others take meanwhile is not
// known yet. known is whether the server has said what remains, since the last reset. Of a limit that
// is small beside the number of processes or the request, one request at a time may use what is left.
func (s *state) fits(q *quota, left, tokens, processes int64, known bool) bool {
	if left <= 0 {
		return false
	}
	more, flying := int64(1), s.inFlight
	if !known { // left is how many requests of this process may go first
		return flying+more <= left
	}
	if q.Tokens {
		more, flying = tokens, s.tokens
	}
	share := left
	if processes > 1 {
		share = left / (2 * processes)
	}
	small := q.Limit == 0 || q.Limit/40 < processes || q.Tokens && left >= q.Limit
	return flying+more <= share || s.inFlight == 0 && small
}

// Left is how long a key is paused from now; 0 if it is not. It does not tell of quotas.
func (g *Gate) Left(key string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.states[key]; s != nil {
		return max(time.Until(s.until), 0)
	}
	return 0
}

// Pause lets no request for a key be sent for a time from now, and at most for MaxPause. A pause that
// ends later stays. After it, one request goes first.
func (g *Gate) Pause(key string, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d <= 0 {
		return
	}
	now := time.Now()
	s := g.states[key]
	if s == nil {
		g.makeRoom(now)
		s = &state{key: key}
		g.states[key] = s
	}
	g.pause(s, now, d)
	g.settle(s, now)
}

func (g *Gate) pause(s *state, now time.Time, d time.Duration) {
	until := now.Add(min(d, g.opts.MaxPause))
	if until.After(s.until) {
		s.until = until
	}
	s.ramp, s.ramped, s.admitted = 1, s.until, false
}

// Changed returns a channel that is closed at the next change: when a Pass is done.
func (g *Gate) Changed() <-chan struct{} { return g.changed.Changed() }

// Done reports what the response said; only the first call counts. It returns how long the key is
// paused because of it; 0 if it is not.
func (p *Pass) Done(r Report) (pause time.Duration) {
	g, s := p.gate, p.s
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.done {
		return 0
	}
	p.done = true
	now := time.Now()
	s.inFlight--
	s.tokens -= p.tokens
	for _, q := range r.Quotas {
		if r.Refused && r.Pause > 0 && q.Remaining == 0 {
			q.Reset = min(q.Reset, r.Pause) // what says when to retry comes before what says when all is back
		}
		s.learn(q, p.by, now, g.opts.MaxPause)
	}
	switch {
	case r.Refused:
		if pause = s.pauseFor(r, p.at); pause > 0 {
			pause = min(pause, g.opts.MaxPause)
			s.pausedAt = now
			g.pause(s, now, pause)
		}
	case p.at.After(s.pausedAt):
		s.refusals = 0
		if s.ramp > 0 && s.admitted {
			s.ramp++
		}
		s.admitted = true
	}
	g.settle(s, now)
	g.changed.Notify()
	return pause
}

// spread lengthens a time at random by up to a twentieth, and at most a second: many processes may have
// been told the same one.
func spread(d time.Duration) time.Duration {
	if longest := min(d/20, time.Second); d < math.MaxInt64-longest {
		d += Jitter(longest)
	}
	return d
}

// Cancel is Done for a request without a response, which says nothing about the server's limits.
func (p *Pass) Cancel() {
	g, s := p.gate, p.s
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.done {
		return
	}
	p.done = true
	s.inFlight--
	s.tokens -= p.tokens
	g.settle(s, time.Now())
	g.changed.Notify()
}

// learn keeps what a response said about a limit. Of responses to requests that were in flight
// together, the least remaining counts: they may arrive in another order than the server wrote them.
func (s *state) learn(said Quota, by uint64, now time.Time, longest time.Duration) {
	if said.Remaining < 0 || said.Reset <= 0 {
		return // it ended before it arrived, or has no end
	}
	said.Reset = min(said.Reset, longest)
	if len(said.Name) > longestName {
		said.Name = said.Name[:longestName]
	}
	next := quota{said, now.Add(said.Reset), by}
	for i := range s.quotas {
		if q := &s.quotas[i]; q.Name == said.Name {
			if next.Limit == 0 {
				next.Limit = q.Limit
			}
			if now.Before(q.ends) && by < q.by {
				q.Remaining = min(q.Remaining, said.Remaining)
				return
			}
			if later := next.ends.Sub(q.ends); now.Before(q.ends) && !said.Gradual && later > 0 && later < time.Second {
				next.ends = q.ends // the same window: servers round up to whole seconds
			}
			next.Name = q.Name
			*q = next
			return
		}
	}
	s.quotas = slices.DeleteFunc(s.quotas, func(q quota) bool { return now.Sub(q.ends) > rampTime })
	if len(s.quotas) < mostQuotas {
		next.Name = strings.Clone(next.Name) // it may be a part of a long header
		s.quotas = append(s.quotas, next)
	}
}

// pauseFor is how long a refusal pauses a key. If the server gave no time, it is that until the reset
// of a limit of which nothing remains, or else a guess. Requests that were sent before the last pause
// began lengthen no guess.
func (s *state) pauseFor(r Report, sent time.Time) time.Duration {
	if r.Pause > 0 {
		s.refusals = 0
		return spread(r.Pause)
	}
	var pause time.Duration
	for _, q := range r.Quotas {
		if q.Remaining == 0 {
			pause = max(pause, q.Reset)
		}
	}
	if pause > 0 {
		s.refusals = 0
		return spread(pause)
	}
	if !sent.After(s.pausedAt) {
		return 0
	}
	guess := doubled(s.refusals, firstPause, longestGuess)
	s.refusals++
	return guess/2 + Jitter(guess/2)
}

// settle forgets a state without requests in flight that says nothing any more, and keeps the others
// where makeRoom finds them.
func (g *Gate) settle(s *state, now time.Time) {
	if s.node.In() {
		g.idle.Remove(&s.node)
	}
	if s.inFlight > 0 {
		return
	}
	until := s.until
	if s.ramp > 0 {
		until = s.ramped.Add(rampTime)
	}
	for _, q := range s.quotas {
		if ends := q.ends.Add(rampTime); until.Before(ends) {
			until = ends
		}
	}
	if !until.After(now) {
		if g.states[s.key] == s {
			delete(g.states, s.key)
		}
		return
	}
	g.idle.Push(&s.node, s, until.UnixNano())
}

// makeRoom forgets what has ended, and then what ends first until there is room for one more key.
func (g *Gate) makeRoom(now time.Time) {
	for {
		first, until := g.idle.First()
		if first == nil || until > now.UnixNano() && len(g.states) < g.opts.MaxKeys {
			return
		}
		g.idle.Remove(&first.node)
		delete(g.states, first.key)
	}
}

// Len is how many keys are kept.
func (g *Gate) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.states)
}
