package weirredis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A gate is what a Store needs for all its Concurrency: questions that wait for a trip, the holds of this process, and one timer for their
// heartbeats. There are a few flights at a time, as of charges.
type gate struct {
	mu      sync.Mutex
	waiting []*request
	flights int
	closed  bool
	leaves  sync.WaitGroup // under way
	holds   map[*held]struct{}
	timer   *time.Timer
	due     time.Time // when it goes off
}

// The operations of concurrency.lua, and what becomes of them.
const (
	opEnter = iota
	opLeave
	opExtend
	opLook
)

const (
	codeRefused = iota
	codeHeld
	codeWaits
	codeLate // the call came after its expiry
	codeGone // nothing is known of the id
)

// A request is one question to concurrency.lua.
type request struct {
	op                       int
	key, id                  string
	cost, limit, queue, span int64
	end                      time.Time      // it is not carried out after that, where it is to enter
	unsure                   time.Time      // of opLeave: the end of a question to enter that may still be heard
	then                     func(*request) // called once, by a goroutine of the store's that must not wait

	repeated bool      // an attempt before may have been carried out, or may yet be
	sent     time.Time // the attempt that was answered
	answer   entrance
	err      error
}

// entrance is an answer of concurrency.lua.
type entrance struct{ code, fence, place, retry, remaining, reset int64 }

// put hands a request in. It reports false after the end.
func (s *Store) put(rs ...*request) bool {
	g := &s.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	return s.putLocked(rs...)
}

func (s *Store) putLocked(rs ...*request) bool {
	g := &s.gate
	if g.closed {
		return false
	}
	g.waiting = append(g.waiting, rs...)
	if len(rs) > 0 && g.flights < s.opts.Flights {
		g.flights++
		s.flying.Add(1)
		go s.pass()
	}
	return true
}

// next is what the next flight takes; nothing means that it ends.
func (g *gate) next() []*request {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxCharges)
	if n == 0 {
		g.flights--
		return nil
	}
	rs := append([]*request(nil), g.waiting[:n]...)
	rest := copy(g.waiting, g.waiting[n:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
	return rs
}

// pass makes trips while somebody waits for one.
func (s *Store) pass() {
	defer s.flying.Done()
	for rs := s.gate.next(); rs != nil; rs = s.gate.next() {
		s.escort(s.passages(rs))
	}
}

// A passage is requests that are one call, from the first attempt to the last.
type passage struct {
	requests []*request
	tries    int
	source   bool // the server lacks the script
	failure  error
}

// passages parts requests into those that can be one call.
func (s *Store) passages(rs []*request) (all []*passage) {
	if !s.opts.Cluster {
		return []*passage{{requests: rs}}
	}
	at := map[uint16]*passage{}
	for _, r := range rs {
		slot := slotOf(r.key)
		if at[slot] == nil {
			at[slot] = &passage{}
			all = append(all, at[slot])
		}
		at[slot].requests = append(at[slot].requests, r)
	}
	return all
}

// escort makes calls, again and again until they are answered, and leaves out requests whose time is over.
func (s *Store) escort(all []*passage) {
	for {
		var under []*passage
		pause := 0
		for _, p := range all {
			if p.failure != nil {
				pause = max(pause, p.tries)
			}
		}
		if pause > 0 {
			s.pause(s.ctx, pause)
		}
		for _, p := range all {
			if p.requests = s.lasting(p); len(p.requests) > 0 {
				p.tries++
				under = append(under, p)
			}
		}
		if len(under) == 0 {
			return
		}
		sent := time.Now()
		for i, r := range s.attempt(under) {
			under[i].landed(s, sent, r)
		}
		all = under
	}
}

// landed reads the reply to an attempt.
func (p *passage) landed(s *Store, sent time.Time, r Reply) {
	p.failure = nil
	switch {
	case r.Err == nil:
		s.passed(p.requests, sent, r.Text)
	case strings.HasPrefix(r.Err.Error(), "NOSCRIPT"):
		p.source = true
		return
	case passing(r.Err):
		p.failure = r.Err
		for _, r := range p.requests {
			r.repeated = true
		}
		return
	default:
		settle(p.requests, fmt.Errorf("weirredis: %w", r.Err))
	}
	p.requests = nil
}

// pause is that before another attempt.
func (s *Store) pause(ctx context.Context, tries int) {
	pause := time.NewTimer(min(time.Millisecond<<min(tries, 6), 50*time.Millisecond))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// lasting is those that are to be asked still; the others are told.
func (s *Store) lasting(p *passage) (rest []*request) {
	now := time.Now()
	for _, r := range p.requests {
		switch {
		case s.ctx.Err() != nil:
			settle([]*request{r}, errClosed)
		case now.Before(r.end):
			rest = append(rest, r)
		case p.failure == nil:
			settle([]*request{r}, fmt.Errorf("weirredis: no answer: %w", context.DeadlineExceeded))
		default:
			settle([]*request{r}, fmt.Errorf("weirredis: no answer: %w", p.failure))
		}
	}
	return rest
}

// settle ends requests that nothing has come of.
func settle(rs []*request, err error) {
	for _, r := range rs {
		r.err = err
		r.then(r)
	}
}

// margin is how much later a call to enter may expire than we think now, as our idea of the server's clock changes.
const margin = time.Second

// lease is how long one who waits is waited for, who does not ask again.
const lease = time.Second

// attempt sends calls once.
func (s *Store) attempt(all []*passage) []Reply {
	calls, replies := make([]Call, len(all)), make([]Reply, len(all))
	var end time.Time
	for i, p := range all {
		calls[i] = s.callOf(p)
		for _, r := range p.requests {
			if r.end.After(end) {
				end = r.end
			}
		}
	}
	if most := time.Now().Add(s.opts.Timeout); most.Before(end) {
		end = most
	}
	ctx, cancel := context.WithDeadline(s.ctx, end)
	defer cancel()
	if len(all) == 1 {
		replies[0].Text, replies[0].Err = s.evaler.Eval(ctx, calls[0])
	} else {
		s.evaler.EvalAll(ctx, calls, replies)
	}
	return replies
}

// callOf writes requests down.
func (s *Store) callOf(p *passage) Call {
	b := appendInt(appendArray(nil, 4), version)
	b = appendInt(b, int64(s.opts.Grace/time.Millisecond))
	b = appendInt(b, int64(lease/tick))
	b = appendArray(b, 7*len(p.requests))
	keys := make([]string, 0, len(p.requests))
	for _, r := range p.requests {
		expiry := int64(0)
		switch {
		case r.op == opEnter:
			expiry = s.by(r.end)
		case !r.unsure.IsZero():
			expiry = s.by(r.unsure) + int64(margin/tick)
		}
		keys = append(keys, r.key)
		b = appendString(appendInt(b, int64(r.op)), r.id)
		for _, v := range [...]int64{r.cost, r.limit, r.queue, r.span, expiry} {
			b = appendInt(b, v)
		}
	}
	return Call{Script: s.scripts.concurrency(), Send: p.source, Keys: keys, Args: []string{string(b)}}
}

// by is a time of ours by the server's clock; 1, long past, where that is not known yet: the refusal tells it.
func (s *Store) by(end time.Time) int64 {
	return s.clock.expiry(end)
}

// passed reads the answers to a call.
func (s *Store) passed(rs []*request, sent time.Time, text string) {
	in := &reader{b: text}
	in.array()
	now := in.int()
	late := false
	for _, r := range rs {
		r.sent = sent
		if in.text() {
			r.err = fmt.Errorf("%w: %s", ErrCharge, in.string())
			continue
		}
		r.answer = entrance{in.int(), in.int(), in.int(), in.int(), in.int(), in.int()}
		late = late || r.answer.code == codeLate
	}
	if in.err != nil {
		settle(rs, errAnswer)
		return
	}
	if late {
		s.clock.set(now)
	} else {
		s.clock.see(now, sent)
	}
	for _, r := range rs {
		r.then(r)
	}
}

// ask carries out a request and waits for it, no longer than the context. It reports false where the context ended first: the request may
// then be carried out still.
func (s *Store) ask(ctx context.Context, r *request) (answered bool) {
	done := make(chan struct{})
	r.then = func(*request) { close(done) }
	if !s.put(r) {
		r.err = errClosed
		return true
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
