package pacing

import (
	"math"
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
	// flight for half of its share of what remains, and sends the last ones evenly until the reset.
	Processes int64
	// NoRate learns no rate from refusals.
	NoRate bool
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
	inFlight int64     // sent, and without a response
	tokens   int64     // what those in flight are expected to take of limits of tokens
	sent     uint64    // how many requests were sent
	last     time.Time // when the last one was
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

	// The first pause tells little about the server's rate. Until a rate is learned, ramp grows by one
	// for as many responses as are in flight: round is how many more.
	round int64

	rate learnedRate

	node heap.Node[state] // its place among the idle ones
}

// A Report is what a response says about the server's limits.
type Report struct {
	Refused bool          // the request was refused because of a limit, or of too much load
	Limit   bool          // because of a limit: its rate is learned
	Pause   time.Duration // of a refused request: when to send again; 0: the server does not say
	Quotas  []Quota
}

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
func (g *Gate) Enter(key string) (*Pass, time.Duration) {
	p, wait, _ := g.EnterTokens(key, 1)
	return p, wait
}

// EnterTokens is Enter for a request that is expected to take so much of a limit of tokens. sooner
// reports whether the response to a request in flight may let this one go before the time.
func (g *Gate) EnterTokens(key string, tokens int64) (p *Pass, wait time.Duration, sooner bool) {
	tokens = min(max(tokens, 1), 1<<40) // so that no sum overflows
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	s := g.states[key]
	if s == nil {
		s = &state{key: key}
	}
	if wait, sooner = s.wait(now, tokens, g.opts.Processes); wait > 0 {
		return nil, wait, sooner
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
	s.last = now
	s.rate.send(now)
	return &Pass{gate: g, s: s, by: s.sent, at: now, tokens: tokens}, 0, false
}

// wait is 0 if a request may be sent now, and otherwise the time after which to try again. sooner is as
// in EnterTokens.
func (s *state) wait(now time.Time, tokens, processes int64) (d time.Duration, sooner bool) {
	if wait := s.until.Sub(now); wait > 0 {
		return wait, false
	}
	if s.ramp > 0 {
		since := now.Sub(s.ramped)
		if since < rampTime && s.inFlight >= s.ramp<<(since/time.Second) {
			s.rate.delayed = true
			return time.Second - since%time.Second, true
		}
	}
	for i := range s.quotas {
		if wait, sooner := s.more(&s.quotas[i], tokens, processes, now); wait > 0 {
			return wait, sooner
		}
	}
	return s.rate.wait(1, now), false
}

// Turn is the time until the n-th request from now may be sent at the rate that was learned from
// refusals, counted from 1; 0 if none was. It does not tell of pauses and quotas.
func (g *Gate) Turn(key string, n int64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.states[key]; s != nil {
		return s.rate.wait(n, time.Now())
	}
	return 0
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

// Held reports whether the server holds back requests with a key, or has done so lately: this is no
// time for requests that need not be.
func (g *Gate) Held(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.states[key]
	if s == nil {
		return false
	}
	now := time.Now()
	return now.Before(s.until) || s.ramp > 0 && now.Sub(s.ramped) < rampTime || s.rate.gap > 0
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
		if r.Limit {
			s.rate.refusals++
		}
		if pause = s.pauseFor(r, p.at); pause > 0 {
			pause = min(pause, g.opts.MaxPause)
			s.pausedAt = now
			g.pause(s, now, pause)
			if r.Limit && !g.opts.NoRate {
				s.rate.refuse(now, pause, g.opts.MaxPause)
			}
		}
	case p.at.After(s.pausedAt):
		s.refusals = 0
		s.widen()
		s.admitted = true
	}
	if !r.Refused {
		s.rate.admit(p.at, p.at.After(s.pausedAt))
	}
	if len(s.quotas) > 0 || now.After(s.rate.until) { // what the server says is better than what it lets guess
		s.rate = learnedRate{off: s.rate.off, until: s.rate.off}
	}
	g.settle(s, now)
	g.changed.Notify()
	return pause
}

// widen lets more requests be in flight, after a response to one that was sent after the pause.
func (s *state) widen() {
	if s.ramp == 0 || !s.admitted {
		return
	}
	if s.round--; s.round > 0 {
		return
	}
	s.ramp++
	if s.round = 0; s.rate.open && s.rate.gap == 0 {
		s.round = s.ramp
	}
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
	guess := doubled(s.refusals, s.rate.pause(), longestGuess)
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
	if until.Before(s.rate.until) {
		until = s.rate.until
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
