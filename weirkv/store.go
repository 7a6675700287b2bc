package weirkv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
)

// A Store is a weir.Store over a KV. It is safe for concurrent use. It is also a failover.Pinger and a
// failover.Beater. Do returns when its context ends, whatever the KV does.
type Store struct {
	kv     KV
	o      Options
	limits limits
	clock  nodeClock
	node   uint64        // identifies this Store in values
	writes atomic.Uint64 // the number of the latest write

	mu     sync.Mutex
	keys   map[string]*queue
	known  map[string]Item   // what was written last to some keys
	taken  map[string]keyUse // what is known of keys that a Taker was asked about
	closed bool

	lanes    []*lane // of a Taker, not in use
	lastLane int     // its number

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	responds atomic.Bool             // the latest call of the KV succeeded
	failure  atomic.Pointer[failure] // the latest error that has not been followed by a success

	steps   atomic.Uint64
	stepped atomic.Int64 // Unix nanoseconds
	inexact atomic.Uint64
	swaps   atomic.Uint64
	lost    atomic.Uint64
}

// New returns a Store over a KV. The Store does not close it.
func New(kv KV, o Options) (*Store, error) {
	if err := CheckPrefix(o.Prefix); err != nil {
		return nil, err
	}
	if o.Skew < 0 || o.Grace < 0 || o.Timeout < 0 || o.Attempts < 0 || o.Remember < 0 {
		return nil, errors.New("weirkv: an option is below 0: leave it out for its default")
	}
	s := &Store{kv: kv, o: o.withDefaults(), node: rand.Uint64N(1<<63-1) + 1, keys: map[string]*queue{}, known: map[string]Item{}, taken: map[string]keyUse{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.clock.read = s.o.Clock
	if s.clock.read == nil {
		s.clock.read = func() int64 { return time.Now().UnixNano() }
		if from, ok := kv.(Clocked); ok {
			s.running.Go(func() { s.followClock(from) })
		}
	}
	return s, nil
}

// followClock corrects the node's clock by that of the server.
func (s *Store) followClock(from Clocked) {
	for {
		ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
		err := s.clock.learn(ctx, from)
		cancel()
		next := sampleEvery
		if err != nil {
			next = time.Second
		}
		if pause.For(s.ctx, next) != nil {
			return
		}
	}
}

// Close ends what the Store has started. It does not close the KV. What is in flight ends with
// ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
	return nil
}

// ClockSteps returns how many times a key went on by a clock of its own because this node's was behind, and when
// that was last; zero for never.
func (s *Store) ClockSteps() (keys uint64, last time.Time) {
	if keys = s.steps.Load(); keys > 0 {
		last = time.Unix(0, s.stepped.Load())
	}
	return keys, last
}

// Inexact returns how many reservations were too many to be given back exactly.
func (s *Store) Inexact() uint64 { return s.inexact.Load() }

// Writes returns how many writes were tried, and how many of these failed because another node had written the key.
func (s *Store) Writes() (tried, conflicts uint64) { return s.swaps.Load(), s.lost.Load() }

// Do carries out a batch, as weir.Store specifies. Charges of different keys are carried out at the same
// time, those of one key in order.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if len(out) < len(batch) {
		return fmt.Errorf("weirkv: %d charges, and room for %d decisions", len(batch), len(out))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	var asked []*request
	for i := 0; i < len(batch); i++ {
		r := &request{at: []int{i}, charges: []weir.Charge{batch[i]}, out: make([]weir.Decision, 1)}
		if g := batch[i].Group; g > 0 {
			if !first(batch, i) {
				continue
			}
			r = members(batch, g)
		}
		asked = append(asked, r)
	}
	err := s.start(ctx, asked)
	if err == nil {
		err = collect(ctx, asked, batch, out)
	} else {
		for _, r := range asked {
			r.left.Store(true)
		}
	}
	if ctx.Err() != nil && err == ctx.Err() {
		err = s.because(err)
	}
	return err
}

// A failure is an error of the KV.
type failure struct {
	err   error
	write bool // of a write
}

// heard notes the outcome of a call of the KV. That a context ended says less than an earlier error does, and a
// read that succeeds says nothing of writes: a store with a full disk can be read.
func (s *Store) heard(err error, write bool) {
	s.responds.Store(err == nil)
	switch before := s.failure.Load(); {
	case err == nil && (write || before == nil || !before.write):
		s.failure.Store(nil)
	case err != nil && (before == nil || !saysEnded(err)):
		s.failure.Store(&failure{err, write})
	}
}

// saysEnded reports whether an error says only that a context has ended.
func saysEnded(err error) bool { return err == context.DeadlineExceeded || err == context.Canceled }

// because is the error of a caller whose context has ended, with the reason: the KV is called again and again,
// and may fail each time.
func (s *Store) because(ended error) error {
	if why := s.failure.Load(); why != nil && !saysEnded(why.err) {
		return fmt.Errorf("weirkv: %w; the latest error of the store: %w", ended, why.err)
	}
	return ended
}

// first reports whether a charge is the first of its group.
func first(batch []weir.Charge, i int) bool {
	for _, c := range batch[:i] {
		if c.Group == batch[i].Group {
			return false
		}
	}
	return true
}

// start starts requests. Those before a group that has several keys are waited for, so that the
// batch is carried out in order.
func (s *Store) start(ctx context.Context, asked []*request) error {
	for i, r := range asked {
		if r.done = make(chan struct{}); r.oneKey() {
			if err := s.submit(r); err != nil {
				return err
			}
			continue
		}
		for _, before := range asked[:i] {
			if wait(ctx, before.done) != nil {
				return ctx.Err()
			}
		}
		if err := s.startGroup(ctx, r); err != nil {
			return err
		}
		if wait(ctx, r.done) != nil {
			return ctx.Err()
		}
	}
	return nil
}

// collect waits for the requests of a batch, and writes their results to it.
func collect(ctx context.Context, asked []*request, batch []weir.Charge, out []weir.Decision) (err error) {
	for _, r := range asked {
		if wait(ctx, r.done) != nil {
			for _, r := range asked {
				r.left.Store(true)
			}
			return ctx.Err()
		}
	}
	for _, r := range asked {
		for j, i := range r.at {
			batch[i], out[i] = r.charges[j], r.out[j]
			if err == nil {
				err = batch[i].Err
			}
		}
	}
	return err
}

// wait waits until done is closed, or the context ends; if both have happened, done counts.
func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
