package lease

import (
	"context"
	"math"
	"runtime"

	"github.com/weirflow/weir"
)

// mostCharges is how many charges a trip of the Store's own takes along.
const mostCharges = 128

// trip is a call of the store.
type trip struct {
	batch []weir.Charge
	out   []weir.Decision
	parts []part
	sent  int64
	err   error

	flights int // what Close waits for until it has landed
}

// part is what a trip does for one key: some charges give back, and then there may be one that asks.
type part struct {
	e     *entry
	turn  turn // of a caller who asks for exactly its own cost
	ask   *ask
	first int // its charges are batch[first:first+count]
	count int
	at    int // the one that asks
	given int64
}

// ask is a question for tokens: one for each key at a time.
type ask struct {
	e    *entry
	n    int64
	era  int
	peek bool // where it brings less, ask when there is more
	done chan struct{}
	err  error // set before done

	back  []weir.Charge
	given int64
}

// request makes a question, which is to be launched; nil where the Store is closed. It takes along what is to be given back.
func (s *Store) request(e *entry, n, now int64) *ask {
	if !s.depart() {
		return nil
	}
	a := &ask{e: e, n: n, era: e.era, peek: n > e.estimate(now)/2, done: make(chan struct{}), back: e.back, given: e.given}
	e.ask, e.back, e.given = a, nil, 0
	e.lastSent = now
	return a
}

// ahead asks for the next tokens before a grant is used up. Callers who never block could keep the answer from being taken in, for 10 ms
// each, and so those who come meanwhile let others go first, now and then.
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
		s.launch(a)
	}
}

// next returns a question for the next tokens, where it is time for it and a key needs them.
func (s *Store) next(e *entry, now int64) *ask {
	switch {
	case e.gone || e.ask != nil || e.direct > 0 || now < e.quiet || len(e.held) > 1:
		return nil
	case len(e.held) == 1 && e.held[0].left.Load() > e.held[0].low:
		return nil
	}
	left := e.left()
	n := e.amount(now, s.opts.Lifetime, s.opts.MaxOutstanding)
	n = max(n, min(e.need, s.opts.MaxOutstanding)-left) // for those who wake up just now
	if n < 2 {
		return nil
	}
	for _, g := range e.held {
		g.asked.Store(true)
	}
	return s.request(e, n, now)
}

// launch sends a question on its way, and waits for nothing.
func (s *Store) launch(a *ask) {
	t := new(trip)
	t.add(a)
	s.carry(t)
}

// depart notes that something will be under way until it lands. It reports false where the Store is closed.
func (s *Store) depart() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.flights.Add(1)
	return true
}

// fly makes a trip in a goroutine.
func (s *Store) fly(t *trip) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
		defer cancel()
		_ = s.call(ctx, t) // land tells those who wait
		s.land(t)
	}()
}

// call makes a trip, and waits for it.
func (s *Store) call(ctx context.Context, t *trip) error {
	t.sent = s.now() // a lease counts from here on: the store charges it later
	t.out = make([]weir.Decision, len(t.batch))
	s.stats.trips.Add(1)
	t.err = s.inner.Do(ctx, t.batch, t.out)
	return t.err
}

// settle adds what a key gives back.
func (t *trip) settle(e *entry) {
	if len(e.back) > 0 {
		t.begin(e, e.back, e.given)
		e.back, e.given = nil, 0
	}
}

func (t *trip) begin(e *entry, back []weir.Charge, given int64) *part {
	t.parts = append(t.parts, part{e: e, first: len(t.batch), count: len(back), at: -1, given: given})
	t.batch = append(t.batch, back...)
	return &t.parts[len(t.parts)-1]
}

// add adds a question.
func (t *trip) add(a *ask) {
	t.flights++
	p := t.begin(a.e, a.back, a.given)
	p.ask, p.at = a, len(t.batch)
	t.batch = append(t.batch, weir.Charge{Name: a.e.name, Key: a.e.key, Limit: a.e.limit, Op: weir.OpTakeSome, Cost: a.n})
	if a.peek {
		t.batch = append(t.batch, weir.Charge{Name: a.e.name, Key: a.e.key, Limit: a.e.limit, Op: weir.OpPeek, Cost: 1})
	}
	p.count = len(t.batch) - p.first
}

// own is the trip of callers who ask for exactly their own costs.
func (s *Store) own(turns []turn) *trip {
	t := new(trip)
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

// cut divides a trip of the Store's own into several of no more than about mostCharges.
func (t *trip) cut() (trips []*trip) {
	var last *trip
	for _, p := range t.parts {
		if last == nil || len(last.batch)+p.count > mostCharges {
			last = new(trip)
			trips = append(trips, last)
		}
		q := last.begin(p.e, t.batch[p.first:p.first+p.count], p.given)
		if q.ask = p.ask; p.at >= 0 {
			q.at = q.first + p.at - p.first
			last.flights++
		}
	}
	return trips
}

// wrong is what went wrong with one charge of a trip.
func (t *trip) wrong(i int) error {
	if t.err == nil {
		return nil
	}
	for j := range t.batch {
		if t.batch[j].Err != nil {
			return t.batch[i].Err // each is told by itself
		}
	}
	return t.err
}

// land takes in what a trip has brought.
func (s *Store) land(t *trip) {
	now := s.now()
	for i := range t.parts {
		p := &t.parts[i]
		if p.e == nil {
			*p.turn.d, p.turn.c.Err = t.decision(p.at), t.wrong(p.at)
			continue
		}
		p.e.mu.Lock()
		s.returned(t, p)
		switch {
		case p.ask != nil:
			s.landed(t, p, now)
		case p.turn.c != nil:
			s.answered(t, p, now)
		}
		p.e.mu.Unlock()
	}
	s.flights.Add(-t.flights)
}

// decision is that about a charge; none where the trip was not made.
func (t *trip) decision(i int) (d weir.Decision) {
	if i < len(t.out) {
		d = t.out[i]
	}
	return d
}

// returned notes what was given back.
func (s *Store) returned(t *trip, p *part) {
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
	p.e.no.Store(nil) // there is more now
}

// answered takes in what the store said to a caller who asked by itself.
func (s *Store) answered(t *trip, p *part, now int64) {
	e, c := p.e, p.turn.c
	e.direct--
	d, err := t.decision(p.at), t.wrong(p.at)
	if c.Err = err; err != nil {
		return
	}
	if c.Limit == e.limit {
		e.hear(d, now)
		if d.Allowed {
			e.granted()
		} else {
			e.refuse(&d, c.Cost, t.sent, now, s.opts.Lifetime)
		}
	}
	*p.turn.d = d
}

// landed takes in the answer to a question for tokens.
func (s *Store) landed(t *trip, p *part, now int64) {
	e, a, c := p.e, p.ask, &t.batch[p.at]
	defer close(a.done)
	if e.ask == a {
		e.ask = nil
	}
	if a.err = t.wrong(p.at); a.err != nil {
		s.stats.lost.Add(uint64(a.n))
		e.quiet = plus(now, s.opts.Lifetime/instant)
		return
	}
	d := t.decision(p.at)
	s.stats.leased.Add(uint64(c.Taken))
	if a.era != e.era {
		if c.Taken > 0 {
			e.giveBack(c.Limit, c.Receipt, 0, c.Taken)
		}
		return
	}
	e.hear(d, now)
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

// keep makes a grant of what was taken.
func (s *Store) keep(t *trip, c *weir.Charge, d weir.Decision, now int64, e *entry) {
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
	if g.ends <= now { // it came too late
		e.giveBack(g.limit, g.receipt, 0, g.size)
		return
	}
	e.add(g)
}
