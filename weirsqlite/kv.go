package weirsqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir/weirkv"
)

// KV is the driver for weirkv over a file. It is a weirkv.Updater. Reads have a connection of their own, so that
// they need not wait for writes.
type KV struct {
	config        Config
	reads, writes *lane
	stop          context.CancelFunc
	running       sync.WaitGroup
}

// NewKV returns the driver over a file, which is opened with the first call.
func NewKV(config Config) *KV {
	ctx, stop := context.WithCancel(context.Background())
	k := &KV{config: config, stop: stop}
	k.reads, k.writes = newLane(config), newLane(config)
	k.running.Go(func() { k.reads.run(ctx, (*session).read) })
	k.running.Go(func() { k.writes.run(ctx, (*session).write) })
	k.running.Go(func() { k.sweep(ctx) })
	return k
}

// Get implements weirkv.KV.
func (k *KV) Get(ctx context.Context, key string) (weirkv.Item, error) {
	o := &operation{key: key}
	err := k.reads.do(ctx, o)
	if err != nil {
		return weirkv.Item{}, err
	}
	return o.item, nil
}

// CompareAndSwap implements weirkv.KV.
func (k *KV) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (next uint64, swapped bool, err error) {
	next, err = k.Update(ctx, key, func(item weirkv.Item) ([]byte, time.Duration, bool) {
		swapped = item.Revision == revision
		return value, ttl, swapped
	})
	return next, swapped && err == nil, err
}

// Update implements weirkv.Updater.
func (k *KV) Update(ctx context.Context, key string, next func(weirkv.Item) (value []byte, ttl time.Duration, write bool)) (revision uint64, err error) {
	o := &operation{key: key, next: next}
	if err := k.writes.do(ctx, o); err != nil {
		return 0, err
	}
	return o.item.Revision, nil
}

// Close closes the file, after the transaction that is in flight. Calls that wait fail.
func (k *KV) Close() error {
	k.stop()
	k.running.Wait()
	return nil
}

// errClosed is the error of a call of a KV that is closed.
var errClosed = errors.New("weirsqlite: the file is closed")

// An operation reads a key, updates it, or removes rows that have expired.
type operation struct {
	key   string
	next  func(weirkv.Item) (value []byte, ttl time.Duration, write bool) // of an update
	sweep func(s *session) error

	mu   sync.Mutex // held while next runs
	left bool       // the caller has left

	done chan struct{} // closed when item or err is there
	item weirkv.Item
	err  error
}

// hasLeft reports whether the caller has left.
func (o *operation) hasLeft() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.left
}

// A lane carries out operations in order, by one connection. Those that come while others are carried out go
// into the next step together.
type lane struct {
	config Config
	wake   chan struct{}
	locked atomic.Bool // another process holds the lock that the lane waits for

	mu      sync.Mutex
	waiting []*operation
	closed  bool
}

func newLane(config Config) *lane { return &lane{config: config, wake: make(chan struct{}, 1)} }

// mostTogether bounds the operations of one transaction: meanwhile other processes wait.
const mostTogether = 128

// do has an operation carried out.
func (l *lane) do(ctx context.Context, o *operation) error {
	o.done = make(chan struct{})
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return errClosed
	}
	l.waiting = append(l.waiting, o)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
	}
	o.mu.Lock()
	o.left = true
	o.mu.Unlock()
	if l.locked.Load() {
		return fmt.Errorf("weirsqlite: another process holds the lock of %s: %w", l.config.Path, ctx.Err())
	}
	return ctx.Err()
}

// take returns the operations that are carried out next.
func (l *lane) take() (batch []*operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.waiting), mostTogether)
	batch, l.waiting = l.waiting[:n:n], l.waiting[n:]
	return batch
}

// run carries out operations until the context ends.
func (l *lane) run(ctx context.Context, step func(s *session, ctx context.Context, l *lane, batch []*operation) error) {
	var s *session
	for ctx.Err() == nil {
		batch := l.take()
		if len(batch) == 0 {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		var err error
		if s != nil && s.moved() {
			s.close()
			s = nil
		}
		if s == nil {
			s, err = openSession(ctx, l.config)
		}
		if err == nil {
			err = step(s, ctx, l, batch)
		}
		if err != nil {
			s.close() // nothing of a transaction that has failed remains
			s = nil
		}
		finish(batch, err)
	}
	s.close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for batch := l.take(); len(batch) > 0; batch = l.take() {
		finish(batch, errClosed)
	}
}

// finish lets the callers have the results.
func finish(batch []*operation, err error) {
	for _, o := range batch {
		o.err = err
		close(o.done)
	}
}
