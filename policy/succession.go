package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
)

// A succession passes the quotas that are kept in memory on to another process, which goes on counting
// them while this one still serves. The engines of a process share it. It is a store: first the tables of
// this process decide, and from Done on the other process.
//
// A decision enters the gate before it charges a table. Once the gate is closed, and those inside have left,
// nothing charges the tables any more, so that what is passed on then is complete. Decisions that find the
// gate closed are made by an engine that has the quotas in this store, and wait in Do until the other
// process has the counts.
type succession struct {
	gate   gate
	latest atomic.Pointer[Engine]
	tables tables

	handing sync.Mutex // held from HandOver to Done or Abandon

	mu      sync.Mutex
	engine  *Engine       // what decides while the gate is closed
	pending chan struct{} // closed when it is clear which process goes on; nil for none
	next    weir.Store    // the other process; nil for none
}

func newSuccession() *succession {
	s := &succession{}
	s.tables.engine = s.latest.Load
	return s
}

// isPassedOn reports whether a limit is one of those that are passed on.
func (l *Limit) isPassedOn() bool { return l.Store == "" && !l.Shadow && l.isQuota() }

// passesOn reports whether some of the limits are charged in a table that is passed on.
func passesOn(all []*limit) bool {
	return slices.ContainsFunc(all, func(l *limit) bool { return l.passes && l.store == nil })
}

// enter returns the engine that decides about limits by name. Leave what it returns after the decision.
func (e *Engine) enter() (*Engine, pass) {
	if !e.handsOver {
		return e, pass{}
	}
	in, ok := e.succession.gate.enter()
	if ok {
		return e, in
	}
	e.succession.mu.Lock()
	defer e.succession.mu.Unlock()
	return e.succession.engine, pass{}
}

// decideLater decides about a request that has found the gate closed.
func (e *Engine) decideLater(ctx context.Context, m *Match, v *Verdict) {
	next, _ := e.enter()
	if next == e { // the gate was opened again
		e.DecideInto(ctx, m, v)
		return
	}
	if again := next.Match(m.request.Request); m.Route >= len(next.routes) || next.policy.Routes[m.Route].Match != e.policy.Routes[m.Route].Match {
		again.request.upstreams = m.request.upstreams
		m = &again // of another version of the policy
	}
	next.DecideInto(ctx, m, v)
}

// A HandOver is the handover of the quotas in memory to another process. Either Done or Abandon is called, once.
type HandOver struct{ s *succession }

// HandOver writes the counts of the quotas that are kept in memory, as WriteSnapshot does, for another
// process that goes on with them. From then on nothing is decided about these limits until Done or
// Abandon: their requests wait.
//
// What was reserved before counts as used. When it is settled, the other process is told what changes.
// Shadow limits are written too, and go on in both processes.
func (e *Engine) HandOver(to io.Writer) (*HandOver, error) {
	s := e.succession
	s.handing.Lock()
	h := &HandOver{s}
	o := e.opts
	o.moved = true
	next, err := build(e.policy, o, e)
	if err != nil {
		s.handing.Unlock()
		return nil, err // cannot happen: the policy is in force
	}
	s.mu.Lock()
	s.engine, s.pending, s.next = next, make(chan struct{}), nil
	s.mu.Unlock()
	s.gate.close()
	if _, err := e.writeSnapshot(to, s); err != nil {
		h.Abandon()
		return nil, err
	}
	return h, nil
}

// Done makes another process decide about the quotas from now on: next calls the store of its Quotas. If
// that fails, this process goes on with the counts that it has.
func (h *HandOver) Done(next weir.Store) { h.end(next) }

// Abandon makes this process go on with the quotas, as if nothing had happened.
func (h *HandOver) Abandon() {
	h.s.gate.open()
	h.end(nil)
}

func (h *HandOver) end(next weir.Store) {
	s := h.s
	s.mu.Lock()
	s.next = next
	close(s.pending)
	s.pending = nil
	s.mu.Unlock()
	s.handing.Unlock()
}

// Quotas is the store of the quotas that are kept in memory, for the process that has handed them over.
// It knows limits by the names of their states, and has no use for the Limit of a charge. The charges that
// nobody has settled when forget is called stay as they are.
func (e *Engine) Quotas() (quotas weir.Store, forget func()) {
	return e.succession, e.succession.tables.forget
}

// Do carries out charges in the tables of this process, or in the process that goes on with them.
func (s *succession) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if slices.ContainsFunc(batch, s.tables.has) {
		return s.doEach(ctx, batch, out)
	}
	for {
		if in, ok := s.gate.enter(); ok {
			defer in.leave()
			return s.tables.Do(ctx, batch, out)
		}
		s.mu.Lock()
		pending, next := s.pending, s.next
		s.mu.Unlock()
		switch {
		case pending != nil:
			select {
			case <-pending:
			case <-ctx.Done():
				return ctx.Err()
			}
		case next == nil:
			return s.tables.Do(ctx, batch, out)
		default:
			err := next.Do(ctx, batch, out)
			if errors.Is(err, ErrNoQuota) { // it has carried out nothing
				return s.tables.Do(ctx, batch, out)
			}
			if err == nil || isOfCharge(err) || ctx.Err() != nil {
				return err
			}
			s.lose(next)
		}
	}
}

// doEach settles the reservations that were made in the tables of this process where they were made, also
// after the handover: settled tells the other process what changes. The rest goes where it belongs.
func (s *succession) doEach(ctx context.Context, batch []weir.Charge, out []weir.Decision) (first error) {
	var rest []weir.Charge
	var at []int
	for i := range batch {
		if c := &batch[i]; !s.tables.has(*c) {
			rest, at = append(rest, *c), append(at, i)
		} else if first = errors.Join(first, s.tables.Do(ctx, batch[i:i+1], out[i:i+1])); ctx.Err() != nil {
			return first
		}
	}
	if len(rest) == 0 {
		return first
	}
	decisions := make([]weir.Decision, len(rest))
	err := s.Do(ctx, rest, decisions)
	for k, i := range at {
		batch[i], out[i] = rest[k], decisions[k]
	}
	return errors.Join(first, err)
}

// Close has nothing to end.
func (s *succession) Close() error { return nil }

// lose goes on without a process that does not respond.
func (s *succession) lose(next weir.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == next {
		s.next = nil
	}
}

// settled tells the other process what a settlement has changed, of a charge that was made before.
func (s *succession) settled(name, key string, difference int64) {
	s.mu.Lock()
	moves := s.pending != nil || s.next != nil
	s.mu.Unlock()
	if !moves {
		return
	}
	c := weir.Charge{Name: name, Key: key, Op: weir.OpSettle, Cost: difference}
	if difference < 0 {
		c.Op, c.Cost = weir.OpGiveBack, -difference
	}
	s.correct(c)
}

// correct carries out a charge in the other process, and not here, where it was carried out before.
func (s *succession) correct(c weir.Charge) {
	ctx, cancel := context.WithTimeout(context.Background(), patienceOfHandOver)
	defer cancel()
	s.mu.Lock()
	pending := s.pending
	s.mu.Unlock()
	if pending != nil {
		select {
		case <-pending:
		case <-ctx.Done():
			return
		}
	}
	s.mu.Lock()
	next := s.next
	s.mu.Unlock()
	if next == nil {
		return
	}
	batch := []weir.Charge{c}
	if err := next.Do(ctx, batch, make([]weir.Decision, 1)); err != nil && !isOfCharge(err) {
		s.lose(next)
	}
}

// patienceOfHandOver is how long a settlement waits for the other process. It is more than that process
// may take to read the counts.
const patienceOfHandOver = 30 * time.Second

// A gate lets decisions pass until it is closed.
type gate struct {
	closed atomic.Bool
	inside [8]struct { // striped, as in a tally.Counter
		n atomic.Int64
		_ [56]byte
	}
}

// A pass is what a decision got when it entered.
type pass struct{ n *atomic.Int64 }

func (p pass) leave() {
	if p.n != nil {
		p.n.Add(-1)
	}
}

// enter reports false if the gate is closed.
func (g *gate) enter() (pass, bool) {
	p := pass{&g.inside[rand.Uint32()%uint32(len(g.inside))].n}
	p.n.Add(1)
	if g.closed.Load() {
		p.leave()
		return pass{}, false
	}
	return p, true
}

// close returns when nobody is inside any more.
func (g *gate) close() {
	g.closed.Store(true)
	for i := range g.inside {
		for spins := 0; g.inside[i].n.Load() != 0; spins++ {
			if runtime.Gosched(); spins > 1000 {
				<-time.After(time.Millisecond) // somebody waits for a store
			}
		}
	}
}

func (g *gate) open() { g.closed.Store(false) }

// ErrNoQuota is the error of Quotas about a limit that this process does not keep in memory. The process that
// has handed the quotas over goes on with such a limit by itself. errors.Is finds it.
var ErrNoQuota = errors.New("this process keeps no quota of that name in memory")

var errNoReceipt = errors.New("there is no such reservation, or it was settled before")

func quotaError(err error, name string) error {
	return fmt.Errorf("%w: %w: %q", weir.ErrCharge, err, name)
}
