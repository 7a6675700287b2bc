package lease

import (
	"context"
	"math"
	"runtime"

	"github.com/weirflow/weir"
)

// mostCharges is how many charges one round trip of the Store's own carries.
const mostCharges = 128

// A roundTrip is one call of the store.
type roundTrip struct {
	batch []weir.Charge
	out   []weir.Decision
	parts []part
	sent  int64
	err   error

	inFlight int // how many requests it answers, which Close waits for
}

// A part is what a round trip does for one key: some charges return tokens, and then one may ask
// for some.
type part struct {
	e       *entry
	turn    turn // of a caller that requests exactly its own cost
	request *request
	first   int // its charges are batch[first:first+count]
	count   int
	at      int // the charge that requests tokens
	given   int64
}

// A request leases tokens: one for each key at a time.
type request struct {
	e          *entry
	limit      weir.Limit // of e when the request was made: another caller may have changed it since
	n          int64
	generation int
	peek       bool // if less is granted, find out when there is more
	done       chan struct{}
	err        error // set before done

	back  []weir.Charge
	given int64
}

// newRequest returns a request, which the caller sends; nil if the Store is closed. It carries the
// tokens that the key returns.
func (s *Store) newRequest(e *entry, n, now int64) *request {
	if !s.beginRequest() {
		return nil
	}
	a := &request{e: e, limit: e.limit, n: n, generation: e.generation, peek: n > e.estimate(now)/2, done: make(chan struct{}), back: e.back, given: e.given}
	e.request, e.back, e.given = a, nil, 0
	e.lastSent = now
	return a
}

// ahead requests tokens before a grant is used up. Callers that never block could delay the
// goroutine that receives the answer by 10 ms each: so they yield now and then while a request is
// in flight.
func (s *Store) ahead(e *entry, g *grant, now int64) {
	if g.asked.Load() || !g.asked.CompareAndSwap(false, true) {
		if g.left.Load()%64 == 0 {
			runtime.Gosched()
		}
		return
	}
	e.mu.Lock()
	a := s.next(e, now)
	e.mu.Unlock()
	if a != nil {
		s.send(a)
	}
}

// next returns a request for more tokens, if it is time for one and the key needs them.
func (s *Store) next(e *entry, now int64) *request {
	switch {
	case e.removed || e.request != nil || e.direct > 0 || now < e.quiet || len(e.grants) > 1:
		return nil
	case len(e.grants) == 1 && e.grants[0].left.Load() > e.grants[0].low:
		return nil
	}
	left := e.left()
	n := e.amount(now, s.opts.Lifetime, s.opts.MaxOutstanding)
	n = max(n, min(e.need, s.opts.MaxOutstanding)-left) // for callers that wake up just now
	if n < 2 {
		return nil
	}
	for _, g := range e.grants {
		g.asked.Store(true)
	}
	return s.newRequest(e, n, now)
}

// send sends a request and does not wait.
func (s *Store) send(a *request) {
	t := new(roundTrip)
	t.add(a)
	s.run(t)
}

// beginRequest counts a request as in flight until it is received. It reports false if the Store is
// closed.
func (s *Store) beginRequest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.inFlight.Add(1)
	return true
}

// runInBackground makes a round trip in a goroutine.
func (s *Store) runInBackground(t *roundTrip) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
		defer cancel()
		_ = s.transmit(ctx, t) // receive passes the error on to the waiting callers
		s.receive(t)
	}()
}

// transmit makes a round trip, and waits for it.
func (s *Store) transmit(ctx context.Context, t *roundTrip) error {
	t.sent = s.now() // a lease lasts from here on: the store charges it later than this
	t.out = make([]weir.Decision, len(t.batch))
	s.stats.roundTrips.Add(1)
	t.err = s.inner.Do(ctx, t.batch, t.out)
	return t.err
}

// settle adds the tokens that a key returns.
func (t *roundTrip) settle(e *entry) {
	if len(e.back) > 0 {
		t.begin(e, e.back, e.given)
		e.back, e.given = nil, 0
	}
}

func (t *roundTrip) begin(e *entry, back []weir.Charge, given int64) *part {
	t.parts = append(t.parts, part{e: e, first: len(t.batch), count: len(back), at: -1, given: given})
	t.batch = append(t.batch, back...)
	return &t.parts[len(t.parts)-1]
}

// add adds a request.
func (t *roundTrip) add(a *request) {
	t.inFlight++
	p := t.begin(a.e, a.back, a.given)
	p.request, p.at = a, len(t.batch)
	t.batch = append(t.batch, weir.Charge{Name: a.e.name, Key: a.e.key, Limit: a.limit, Op: weir.OpTakeSome, Cost: a.n})
	if a.peek {
		t.batch = append(t.batch, weir.Charge{Name: a.e.name, Key: a.e.key, Limit: a.limit, Op: weir.OpPeek, Cost: 1})
	}
	p.count = len(t.batch) - p.first
}

// own returns the round trip of callers that request exactly their own costs.
func (s *Store) own(turns []turn) *roundTrip {
	t := new(roundTrip)
	for _, turn := range turns {
		var back []weir.Charge
		var given int64
		if e := turn.e; e != nil {
			e.mu.Lock()
			back, given = e.back, e.given
			e.back, e.given = nil, 0
			e.mu.Unlock()
		}
		p := t.begin(turn.e, back, given)
		p.turn, p.at = turn, len(t.batch)
		c := *turn.c
		c.Group = 0
		t.batch = append(t.batch, c)
		p.count = len(t.batch) - p.first
	}
	return t
}

// cut divides a round trip into several with no more than about mostCharges each, and none for
// several shards: a shard that does not answer delays no answer of another.
func (t *roundTrip) cut(shardOf func(*entry) string) (all []*roundTrip) {
	lasts := map[string]*roundTrip{}
	for _, p := range t.parts {
		shard := shardOf(p.e)
		last := lasts[shard]
		if last == nil || len(last.batch)+p.count > mostCharges {
			last = new(roundTrip)
			lasts[shard] = last
			all = append(all, last)
		}
		q := last.begin(p.e, t.batch[p.first:p.first+p.count], p.given)
		if q.request = p.request; p.at >= 0 {
			q.at = q.first + p.at - p.first
			last.inFlight++
		}
	}
	return all
}

// wrong returns the error of one charge.
func (t *roundTrip) wrong(i int) error {
	if t.err == nil {
		return nil
	}
	for j := range t.batch {
		if t.batch[j].Err != nil {
			return t.batch[i].Err // each charge has its own
		}
	}
	return t.err
}

// receive processes the decisions of a round trip.
func (s *Store) receive(t *roundTrip) {
	now := s.now()
	for i := range t.parts {
		p := &t.parts[i]
		if p.e == nil {
			*p.turn.d, p.turn.c.Err = t.decision(p.at), t.wrong(p.at)
			continue
		}
		p.e.mu.Lock()
		s.receiveReturns(t, p)
		switch {
		case p.request != nil:
			s.receiveGrant(t, p, now)
		case p.turn.c != nil:
			s.receiveOwn(t, p, now)
		}
		p.e.mu.Unlock()
	}
	s.inFlight.Add(-t.inFlight)
}

// decision returns the decision about a charge; the zero Decision if the round trip was not made.
func (t *roundTrip) decision(i int) (d weir.Decision) {
	if i < len(t.out) {
		d = t.out[i]
	}
	return d
}

// receiveReturns counts the tokens that were returned.
func (s *Store) receiveReturns(t *roundTrip, p *part) {
	if p.given == 0 {
		return
	}
	for i := p.first; i < p.first+p.count; i++ {
		if t.batch[i].Op == weir.OpSettle && t.wrong(i) != nil {
			s.stats.lost.Add(uint64(p.given))
			return
		}
	}
	s.stats.returned.Add(uint64(p.given))
	p.e.refused.Store(nil) // the store has more now
}

// receiveOwn processes the decision for a caller that requested its own cost.
func (s *Store) receiveOwn(t *roundTrip, p *part, now int64) {
	e, c := p.e, p.turn.c
	e.direct--
	d, err := t.decision(p.at), t.wrong(p.at)
	if c.Err = err; err != nil {
		return
	}
	if c.Limit == e.limit {
		e.noteAnswer(d, now)
		if d.Allowed {
			e.granted()
		} else {
			e.refuse(&d, c.Cost, t.sent, now, s.opts.Lifetime)
		}
	}
	*p.turn.d = d
}

// receiveGrant processes the decision about a request for tokens.
func (s *Store) receiveGrant(t *roundTrip, p *part, now int64) {
	e, a, c := p.e, p.request, &t.batch[p.at]
	defer close(a.done)
	if e.request == a {
		e.request = nil
	}
	if a.err = t.wrong(p.at); a.err != nil {
		s.stats.lost.Add(uint64(a.n))
		e.quiet = plus(now, s.opts.Lifetime/instant)
		return
	}
	d := t.decision(p.at)
	s.stats.leased.Add(uint64(c.Taken))
	if a.generation != e.generation {
		if c.Taken > 0 {
			e.giveBack(c.Limit, c.Receipt, 0, c.Taken)
		}
		return
	}
	e.noteAnswer(d, now)
	e.lastSize, e.last = c.Taken, nil
	if c.Taken > 0 {
		e.granted()
		s.keep(t, c, d, now, e)
	} else {
		e.refuse(&d, 1, t.sent, now, s.opts.Lifetime)
	}
	if short := c.Taken < a.n; short {
		e.quiet = plus(now, max(e.pause, s.opts.Lifetime/instant))
		if i := p.at + 1; c.Taken > 0 && a.peek && t.wrong(i) == nil && !t.decision(i).Allowed {
			d := t.decision(i)
			e.refuse(&d, 1, t.sent, now, s.opts.Lifetime)
		}
	}
}

// keep makes a grant of leased tokens.
func (s *Store) keep(t *roundTrip, c *weir.Charge, d weir.Decision, now int64, e *entry) {
	g := &grant{
		ends:     plus(t.sent, s.opts.Lifetime),
		over:     math.MaxInt64,
		low:      c.Taken / 4,
		size:     c.Taken,
		limit:    c.Limit,
		receipt:  c.Receipt,
		by:       d.By,
		capacity: d.Limit,
		rest:     d.Remaining,
		fresh:    plus(now, d.ResetAfter),
	}
	terms := e.terms
	if c.Limit != e.limit {
		terms = termsOf(c.Limit)
	}
	if span, ok := terms.LeaseEnds(d.ResetAfter, storeTick); ok {
		g.ends = min(g.ends, plus(t.sent, span))
	}
	if terms.LeaseResets() {
		g.over = g.fresh
	}
	g.left.Store(c.Taken)
	if g.ends <= now { // it arrived too late
		e.giveBack(g.limit, g.receipt, 0, g.size)
		return
	}
	e.add(g)
}
