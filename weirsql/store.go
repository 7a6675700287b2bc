// Package weirsql keeps limits in PostgreSQL: each batch of charges is decided by one call of a stored
// function, in units of a microsecond of the server's clock, exactly as in process, and in one round
// trip.
//
// It contains no driver: use weirpgx, or DB with any driver for database/sql, or write the two methods
// of a Querier. It needs PostgreSQL 14 or later, and works through pgbouncer in transaction mode, as it
// uses neither prepared statements nor settings of a session.
package weirsql

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/scripted"
)

// A Querier sends statements to a server: what a Store needs of a driver. It must not repeat a
// statement by itself, as one whose reply was lost may have been carried out; the Store repeats calls
// so that they are carried out once. Both methods are safe for concurrent use, and end when their
// context does. Errors of the server have a method SQLState() string, as those of pgx and lib/pq do.
type Querier interface {
	// Query carries out one SELECT, outside of any transaction, and returns its result: one row with one
	// text. Its parameters are texts.
	Query(ctx context.Context, statement string, args ...string) (string, error)

	// Exec carries out a script of several statements.
	Exec(ctx context.Context, script string) error
}

// Options are the settings of a Store.
type Options struct {
	Schema Schema

	// Prefix begins all keys, so that several programs can use the same tables: UTF-8, without NUL.
	// Default: none.
	Prefix string

	// Durable calls wait until the write-ahead log is on disk. Without it, a crash of the server forgets
	// the charges of the last moments: three times wal_writer_delay, which is 200 ms by default.
	// Unlogged tables are lost in a crash anyway. Default: not durable.
	Durable bool

	// Grace is how long a row is kept after its state is idle: steps of the server's clock back by no
	// more than that give nothing away. Default: a minute.
	Grace time.Duration

	// Timeout is how long a call without a deadline may take, for each 128 charges of it: 2 s for a batch
	// of 200. A call that has more time is repeated if it was not answered after so long. Default: 1 s.
	Timeout time.Duration

	// RoundTrips is how many calls, and so connections, are in flight at once; what comes meanwhile
	// shares the next one. Default: 2.
	RoundTrips int

	// SweepEvery is how often this process looks for rows that are idle, to remove them: up to 1,000 rows
	// a time, and on at once while many of them are. Default: 10 s. Negative: never.
	SweepEvery time.Duration
}

// Store is a weir.Store in PostgreSQL. Callers share round trips: those that come while some are in
// flight are sent together in the next one. It is safe for concurrent use.
type Store struct {
	querier Querier
	opts    Options
	schema  string
	limits  scripted.Limits[*limit]
	clock   clock
	queue   queue
	failure atomic.Pointer[error] // of the latest attempt, where it may succeed later; nil after a reply
	probes  int64                 // the lane of Ping
	probed  atomic.Int64          // the number of its latest call
	steps   scripted.StepWatch
	inexact atomic.Uint64

	ctx     context.Context
	cancel  context.CancelFunc
	sending sync.WaitGroup
}

// errClosed is what callers get after Close.
var errClosed = errors.New("weirsql: the store is closed")

// New returns a Store over a driver. It makes no tables: see Schema.Migrate. Close ends calls in flight;
// the driver's connections stay open.
func New(q Querier, o Options) (*Store, error) {
	name, err := o.Schema.quoted()
	if err != nil {
		return nil, err
	}
	if err := CheckPrefix(o.Prefix); err != nil {
		return nil, err
	}
	if o.Grace < 0 || o.Timeout < 0 || o.RoundTrips < 0 {
		return nil, fmt.Errorf("weirsql: a negative number among the options: %+v", o)
	}
	if o.Grace == 0 {
		o.Grace = time.Minute
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.RoundTrips == 0 {
		o.RoundTrips = 2
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = 10 * time.Second
	}
	s := &Store{querier: q, opts: o, schema: name, clock: clock{start: time.Now()}, probes: newLane().id}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for range o.RoundTrips {
		s.queue.lanes = append(s.queue.lanes, newLane())
	}
	if o.SweepEvery > 0 {
		s.sending.Go(s.sweep)
	}
	return s, nil
}

// CheckPrefix returns why PostgreSQL cannot keep a prefix as text, as Beat does.
func CheckPrefix(prefix string) error {
	if !utf8.ValidString(prefix) || strings.Contains(prefix, "\x00") {
		return fmt.Errorf("weirsql: the prefix %q is no text of PostgreSQL: write it in UTF-8, without NUL", prefix)
	}
	return nil
}

// Inexact returns how many reservations of this Store were too many to be remembered in the states of
// their keys: cancelling them, or settling them for less, may give back less than was charged.
func (s *Store) Inexact() uint64 { return s.inexact.Load() }

// Close refuses new calls, ends those in flight, and waits for them.
func (s *Store) Close() error {
	s.queue.close()
	s.cancel()
	s.sending.Wait()
	return nil
}

// Beat is a heartbeat of the node called id, which counts for ttl. It returns how many nodes are alive.
func (s *Store) Beat(ctx context.Context, id string, ttl time.Duration) (nodes int, err error) {
	text, err := s.querier.Query(ctx, "SELECT "+s.schema+".beat($1::text, $2::text, $3::bigint)", s.opts.Prefix, id, fmt.Sprint(int64(ttl/tick)))
	if err != nil {
		return 0, fmt.Errorf("weirsql: %w", err)
	}
	if _, err := fmt.Sscan(text, &nodes); err != nil {
		return 0, errReply
	}
	return nodes, nil
}

// Do carries out a batch of charges: see weir.Store.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if len(out) < len(batch) {
		return fmt.Errorf("weirsql: room for %d decisions about %d charges", len(out), len(batch))
	}
	if len(batch) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(s.timeout(len(batch)))
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end) // whatever the driver does
		defer cancel()
	}
	r, err := s.request(batch)
	if err != nil {
		return err
	}
	r.end, r.done = end, make(chan struct{})
	if !s.queue.add(s, r) {
		return errClosed
	}
	if err = s.wait(ctx, r); err == nil {
		err = r.err
	}
	if err != nil {
		if failure := s.failure.Load(); failure != nil && (err == ctx.Err() || err == errLate) {
			err = because(err, *failure)
		}
		r.fail(batch, err)
		return err
	}
	return r.deliver(batch, out)
}

// because adds to the error of a caller that left why the latest attempt failed: the deadline alone would
// not say that the server is a standby.
func because(err, failure error) error {
	if errors.Is(failure, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: the latest attempt: %w", err, failure)
}

// timeout returns how long an attempt of so many charges may take.
func (s *Store) timeout(charges int) time.Duration {
	n := time.Duration((charges + maxCharges - 1) / maxCharges)
	return min(s.opts.Timeout, math.MaxInt64/n) * n
}

// newLane returns a lane with an identity that no other has.
func newLane() *lane {
	var id [8]byte
	for {
		rand.Read(id[:])
		l := &lane{id: int64(uint64(id[0]) | uint64(id[1])<<8 | uint64(id[2])<<16 | uint64(id[3])<<24 | uint64(id[4])<<32 | uint64(id[5])<<40 | uint64(id[6])<<48 | uint64(id[7])<<56)}
		if l.id != 0 { // of calls that charge nothing
			return l
		}
	}
}
