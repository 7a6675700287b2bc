package weirredis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/internal/pause"
)

// queues hold the requests that wait for a round trip. There is one for a single server, and one for
// each node of a cluster, so that requests of the same moment are sent together, and a node that
// does not answer delays no request for another. Where a slot of a cluster is not answered, it has a
// queue of its own for a while: a slot that moves then delays no other for long.
type queues struct {
	mu     sync.Mutex
	shared queue             // of a single server, and of slots whose node is not known
	nodes  map[string]*queue // by the names of the shards
	apart  map[uint16]*queue // by slot, while requests come
	parts  [parts]part
	closed bool
}

// parts is how many ranges of slots are watched: enough to keep the slots of different nodes apart,
// mostly, as nodes have ranges of slots; and few enough that a node that is down is soon known to
// be in all of its ranges.
const parts = 64

// A part is a range of slots.
type part struct {
	clock    clock        // of the node that has them
	failures atomic.Int32 // calls without a reply since the last reply
	answers  atomic.Bool  // the last call got a reply
	silent   atomic.Int64 // until when its slots are apart, in nanoseconds since clock.start
}

// part returns the range that a slot is in. On a single server there is one.
func (all *queues) part(slot uint16) *part { return &all.parts[slot/(slots/parts)] }

// heard records whether a call got a reply. A single call without a reply may be chance.
func (p *part) heard(answered bool) {
	if p.answers.Load() != answered {
		p.answers.Store(answered)
	}
	if answered {
		p.failures.Store(0)
	} else if p.failures.Add(1) > 1 {
		p.silent.Store(int64(time.Since(p.clock.start) + apartFor))
	}
}

// apartFor is how long slots have queues of their own after a call without a reply.
const apartFor = 5 * time.Second

func (p *part) isSilent() bool {
	until := p.silent.Load()
	return until > 0 && int64(time.Since(p.clock.start)) < until
}

// queue returns the queue for a slot.
func (all *queues) queue(s *Store, slot uint16) *queue {
	if !s.opts.Cluster {
		return &all.shared
	}
	if all.part(slot).isSilent() {
		q := all.apart[slot]
		if q == nil {
			if all.apart == nil {
				all.apart = map[uint16]*queue{}
			}
			q = &queue{slot: slot, apart: true}
			all.apart[slot] = q
		}
		return q
	}
	name := s.topology.shard(slot)
	if name == "" {
		return &all.shared
	}
	q := all.nodes[name]
	if q == nil {
		if all.nodes == nil {
			all.nodes = map[string]*queue{}
		}
		q = &queue{}
		all.nodes[name] = q
	}
	return q
}

// prune removes the queues of nodes that serve no slot any more.
func (all *queues) prune(names []string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for name, q := range all.nodes {
		if q.isEmpty() && !slices.Contains(names, name) {
			delete(all.nodes, name)
		}
	}
}

// begin counts a goroutine that Close waits for. It reports false after the end.
func (all *queues) begin(s *Store) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return false
	}
	s.sending.Add(1)
	return true
}

// A queue has a few senders at a time: goroutines that make round trips, each with all requests
// that wait, up to a bound.
type queue struct {
	slot    uint16 // of a queue that is apart
	apart   bool
	waiting []*request
	// with so many waiting, those that are late are removed: while no round trip ends, no sender
	// does it
	sweepAt int
	senders int
}

// minSweep is how many requests may always wait.
const minSweep = 256

// maxIdle is how much room a queue keeps while it is empty.
const maxIdle = 64

// maxCharges is how many charges a call carries, unless one batch has more: so that no script
// blocks the server for long.
const maxCharges = 128

// errLate is for a request whose end has come, and which was not carried out.
var errLate = fmt.Errorf("weirredis: no reply in time; nothing was charged: %w", context.DeadlineExceeded)

// add hands requests in. It reports false after the end.
func (all *queues) add(s *Store, requests ...*request) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return false
	}
	for _, r := range requests {
		q := all.queue(s, r.slot)
		if len(q.waiting) >= max(q.sweepAt, minSweep) {
			q.sweep(time.Now())
		}
		q.waiting = append(q.waiting, r)
		if q.senders < s.opts.RoundTrips {
			q.senders++
			s.sending.Add(1)
			go s.send(q)
		}
	}
	return true
}

// sweep ends requests that are late. Those with a callback are left to a sender, as a callback may
// take the lock that the caller of add holds.
func (q *queue) sweep(now time.Time) {
	q.waiting = slices.DeleteFunc(q.waiting, func(r *request) bool {
		if r.then != nil || r.end.After(now) {
			return false
		}
		r.finish(errLate)
		return true
	})
	q.sweepAt = 2 * len(q.waiting)
}

// drop removes a queue that is apart and empty. The lock is held.
func (all *queues) drop(q *queue) {
	if q.apart && q.isEmpty() {
		delete(all.apart, q.slot)
	}
}

func (q *queue) isEmpty() bool { return q.senders == 0 && len(q.waiting) == 0 }

func (all *queues) close() {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.closed = true
}

// next returns what a sender takes from its queue; nothing means that the sender ends. A request
// that is late is not sent, as its caller has left.
func (all *queues) next(q *queue, into []*request) []*request {
	var late []*request
	defer func() { // without the lock, as callbacks hand in requests
		for _, r := range late {
			r.finish(errLate)
		}
	}()
	all.mu.Lock()
	defer all.mu.Unlock()
	into = into[:0]
	now, n, charges := time.Now(), 0, 0
	for ; n < len(q.waiting); n++ {
		r := q.waiting[n]
		if len(into) > 0 && charges+r.size() > maxCharges {
			break
		}
		if !r.end.After(now) {
			late = append(late, r)
			continue
		}
		into = append(into, r)
		charges += r.size()
	}
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	if len(into) > 0 {
		return into
	}
	q.senders--
	all.drop(q)
	if cap(q.waiting) > maxIdle {
		q.waiting = nil
	}
	return nil
}

// send makes round trips while requests wait.
func (s *Store) send(q *queue) {
	defer s.sending.Done()
	var requests []*request
	for requests = s.queues.next(q, requests); requests != nil; requests = s.queues.next(q, requests) {
		s.roundTrip(q, requests)
	}
}

// roundTrip carries out requests: one call for each slot and script.
func (s *Store) roundTrip(q *queue, requests []*request) {
	if s.opts.Cluster {
		s.askAgain(askEvery)
	}
	s.carryOn(s.exchanges(requests), s.opts.Cluster && !q.apart)
}

// carryOn is carry until the last caller leaves.
func (s *Store) carryOn(all []*exchange, shared bool) {
	ctx, cancel := context.WithDeadline(s.ctx, lastEnd(all))
	defer cancel()
	s.carry(ctx, all, shared)
}

// lastEnd is when the last caller of some exchanges leaves.
func lastEnd(all []*exchange) time.Time {
	end := all[0].end
	for _, x := range all {
		if x.end.After(end) {
			end = x.end
		}
	}
	return end
}

// carry makes attempts until all is answered, or the context ends. An exchange that shares round
// trips with others and fails is repeated apart from them.
func (s *Store) carry(ctx context.Context, all []*exchange, shared bool) {
	for {
		failed := 0
		for _, x := range all {
			if x.failure != nil {
				failed = max(failed, x.tries)
			}
		}
		if failed > 0 {
			s.pause(ctx, failed)
		}
		if all = s.attempt(ctx, all); len(all) == 0 {
			return
		}
		if shared {
			all = s.separate(all)
		}
	}
}

// attempt makes an attempt for each exchange that needs one, and returns those.
func (s *Store) attempt(ctx context.Context, all []*exchange) (sent []*exchange) {
	var calls []Call
	for _, x := range all {
		if x.again(ctx) {
			calls, sent = append(calls, x.call()), append(sent, x)
		}
	}
	if len(sent) > 0 {
		for i, reply := range s.evaluate(ctx, calls) {
			sent[i].receive(reply)
		}
	}
	return sent
}

// separate lets exchanges that failed go on in a goroutine of their own, and returns the others.
func (s *Store) separate(all []*exchange) (rest []*exchange) {
	var failed []*exchange
	for _, x := range all {
		if x.failure != nil {
			failed = append(failed, x)
		} else {
			rest = append(rest, x)
		}
	}
	if failed != nil {
		for _, x := range failed {
			x.requests = slices.Clone(x.requests) // the sender overwrites its own
		}
		s.sending.Add(1)
		go func() {
			defer s.sending.Done()
			s.carryOn(failed, false)
		}()
	}
	return rest
}

// pause waits before another attempt: from 2 ms after the first up to 50 ms.
func (s *Store) pause(ctx context.Context, tries int) {
	// whether the context has ended is seen by the caller
	_ = pause.For(ctx, min(time.Millisecond<<min(tries, 6), 50*time.Millisecond))
}

// evaluate sends calls once. It waits no longer than Timeout: a connection may be dead without a
// sign of it.
func (s *Store) evaluate(ctx context.Context, calls []Call) []Reply {
	if end, _ := ctx.Deadline(); time.Until(end) > s.opts.Timeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.opts.Timeout)
		defer cancel()
	}
	replies := make([]Reply, len(calls))
	if len(calls) == 1 {
		replies[0].Text, replies[0].Err = s.evaler.Eval(ctx, calls[0])
	} else {
		s.evaler.EvalAll(ctx, calls, replies)
	}
	return replies
}
