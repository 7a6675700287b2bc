package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// mostAsides is how many probes of a shard, and how many heartbeats, may be in flight at once: more
// than one only if the store does not return.
const mostAsides = 8

// errGone is the error of a call that ended its goroutine.
var errGone = errors.New("weir: the store ended the goroutine of the call")

// A call is the store's own copy of a caller's batch, so that the caller can leave.
type call struct {
	batch []weir.Charge
	out   []weir.Decision
	err   error
	done  chan struct{} // has room for one
}

// ask calls the store. It returns when the context ends, whatever the store does, unless
// Options.Direct says that the store does so itself.
func (s *Store) ask(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if s.opts.Direct {
		return s.call(ctx, batch, out)
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	c := s.calls.Get().(*call)
	c.batch = append(c.batch[:0], batch...)
	c.out = slices.Grow(c.out[:0], len(batch))[:len(batch)]
	inner, end := s.sooner(ctx, batch)
	go s.carryOut(inner, end, c)
	select {
	case <-c.done:
	case <-ctx.Done():
		select {
		case <-c.done: // at the same moment: the answer counts
		default:
			return ctx.Err()
		}
	}
	copy(batch, c.batch)
	copy(out, c.out)
	err := c.err
	clear(c.batch) // which hold keys and receipts
	s.calls.Put(c)
	return err
}

// sooner returns the context of a call in a goroutine of its own. If the call is about several shards,
// it ends a little before the caller leaves, so that the store can say which of them have answered.
func (s *Store) sooner(ctx context.Context, batch []weir.Charge) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || !s.several(batch) {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end.Add(-time.Until(end)/8))
}

// carryOut is the goroutine of a call.
func (s *Store) carryOut(ctx context.Context, end context.CancelFunc, c *call) {
	c.err = errGone
	defer func() {
		end()
		<-s.slots
		c.done <- struct{}{}
	}()
	c.err = s.call(ctx, c.batch, c.out)
}

// call calls the store; a panic becomes its error.
func (s *Store) call(ctx context.Context, batch []weir.Charge, out []weir.Decision) (err error) {
	if s.opts.OnCall != nil {
		defer s.measured(time.Now())
	}
	defer recovered(&err)
	return s.inner.Do(ctx, batch, out)
}

// measured reports a call that has ended.
func (s *Store) measured(began time.Time) { s.opts.OnCall(time.Since(began)) }

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("weir: the store panicked: %v", p)
	}
}

var errAsides = errors.New("weir: earlier probes of the store have not returned")

// An answer is the answer to a probe or a heartbeat.
type answer struct {
	nodes int
	err   error
}

// aside makes a call that carries no charges, for at most the deadline, and leaves if the store
// does not return.
func (s *Store) aside(f func(context.Context) (int, error)) (nodes int, err error) {
	select {
	case s.asides <- struct{}{}:
	default:
		return 0, errAsides
	}
	ctx, cancel := context.WithTimeout(s.life, s.opts.Deadline)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		a := answer{err: errGone}
		defer func() {
			<-s.asides
			done <- a
		}()
		defer recovered(&a.err)
		a.nodes, a.err = f(ctx)
	}()
	select {
	case a := <-done:
		return a.nodes, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// probe asks whether a shard answers.
func (s *Store) probe(d *shard) error {
	if d.probes.Add(1) > mostAsides {
		d.probes.Add(-1)
		return errAsides
	}
	_, err := s.aside(func(ctx context.Context) (int, error) {
		defer d.probes.Add(-1)
		if s.shards.sharded != nil && d.name != "" {
			return 0, s.shards.sharded.PingShard(ctx, d.name)
		}
		if p, ok := find[Pinger](s.inner); ok {
			return 0, p.Ping(ctx)
		}
		var out [1]weir.Decision
		batch := [1]weir.Charge{{Name: "probe", Key: "probe", Limit: weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, Op: weir.OpPeek}}
		return 0, s.inner.Do(ctx, batch[:], out[:])
	})
	if err == errAsides { // it was not made
		d.probes.Add(-1)
	}
	if !ofStore(err) {
		return nil
	}
	return err
}
