// Package outstanding keeps the reservations that clients of the services hold between two calls. A client
// gets an identifier, with which a later call settles or cancels the charge.
package outstanding

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/heap"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/policy"
)

// Errors of a Table. errors.Is finds them.
var (
	// ErrFull means that there are too many reservations, or too large ones, in total or of one caller.
	ErrFull = errors.New("too many reservations are open: settle or cancel some, or reserve for a shorter time")
	// ErrExpired means that the reservation has expired: what it has charged stays charged.
	ErrExpired = errors.New("the reservation has expired: what it has charged stays charged")
	// ErrUnsettled means that a store is unavailable: the reservation is still open, and can be settled for
	// 10 minutes, unless it expires before.
	ErrUnsettled = errors.New("the store is unavailable: the reservation is still open, try again")
	// ErrUnknown means that the table has no such reservation: it was settled or cancelled before, was
	// made by another caller or server, or is none.
	ErrUnknown = errors.New("there is no such reservation: it was settled or cancelled before, or another caller or server has made it")
)

// A CostsError means that a reservation was to be settled with a wrong number of costs. It stays open.
type CostsError struct{ Costs, Limits int }

// Error says what is wrong.
func (e *CostsError) Error() string {
	limits := "1 limit"
	if e.Limits != 1 {
		limits = strconv.Itoa(e.Limits) + " limits"
	}
	return fmt.Sprintf("there are %d costs, and the reservation is of %s: it is still open", e.Costs, limits)
}

// Fix says what to write instead.
func (e *CostsError) Fix() string {
	if e.Limits == 1 {
		return "send one cost"
	}
	return fmt.Sprintf("send one cost, for all limits, or %d: one for each, in the order of the reservation", e.Limits)
}

// A Caller makes reservations. It may only end those that a caller with the same name has made.
type Caller struct {
	Name    string // that it has authenticated with; empty where clients need not authenticate
	Address string // of the connection, as net.Addr has it. Nameless callers of an address share a bound
}

// bound returns under what the reservations of a caller are counted. A client that need not authenticate
// could otherwise use up the room of all others.
func (c Caller) bound() string {
	if c.Name != "" {
		return "name " + c.Name
	}
	host, _, err := net.SplitHostPort(c.Address)
	if err != nil { // a Unix socket
		return "address"
	}
	return "address " + policy.ClientKeyOf(host)
}

// Options bound a Table. Zero means the default.
type Options struct {
	Max       int // reservations at once; default: 100,000
	PerCaller int // of one caller, or of one address without names; default: 20,000

	// A reservation of many limits occupies as much memory as many reservations.
	MaxBytes       int64 // of all reservations, see policy.Answer.Size; default: 256 MiB
	PerCallerBytes int64 // of those under PerCaller; default: 64 MiB

	Now func() time.Time // default: time.Now
}

// A Table is the reservations that are open. It is safe for concurrent use. Its methods end expired
// reservations: what is left to do in stores, they leave to a goroutine that runs until it is done. Close waits
// for it.
type Table struct {
	o        Options
	mu       sync.Mutex
	byID     map[identifier]*reservation
	byExpiry heap.Heap[reservation]
	all      amount
	bounds   map[string]amount // by bound of callers
	expired  uint64
	left     []policy.Expired // to be settled in stores
	settling chan struct{}    // while a goroutine settles it: closed at its end
	closed   bool

	// of the calls of stores in the background
	life context.Context
	end  context.CancelFunc
}

// An amount is how many reservations there are, and how many bytes they occupy.
type amount struct {
	number int
	bytes  int64
}

// fits reports whether there is room for another reservation of so many bytes.
func (a amount) fits(bytes, maxBytes int64, most int) bool {
	return a.number < most && a.bytes+bytes <= maxBytes
}

// reservation is an open reservation.
type reservation struct {
	id      identifier
	caller  string // its name
	bound   string
	bytes   int64
	answer  *policy.Answer
	until   int64         // when it expires, in milliseconds of Unix time
	settled chan struct{} // while a call settles it: closed at the end of the call; then it is not in byExpiry
	node    heap.Node[reservation]
}

// repeatFor bounds for how long a reservation can be settled after a first attempt that failed: so long, a
// store remembers each settlement.
const repeatFor = 10 * time.Minute

// An identifier is the expiry, in milliseconds of Unix time, and 128 random bits. By the expiry,
// the table distinguishes an expired reservation from one that never existed.
type identifier [timeBytes + 16]byte

const timeBytes = 8

// New returns an empty table.
func New(o Options) *Table {
	t := &Table{o: o.withDefaults(), byID: map[identifier]*reservation{}, bounds: map[string]amount{}}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

func (o Options) withDefaults() Options {
	o.Max = cmp.Or(o.Max, 100_000)
	o.PerCaller = cmp.Or(o.PerCaller, 20_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 256<<20)
	o.PerCallerBytes = cmp.Or(o.PerCallerBytes, 64<<20)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Add keeps the reservation of an answer for a time. If it returns ErrFull, the reservation is cancelled.
func (t *Table) Add(ctx context.Context, by Caller, a *policy.Answer, keep time.Duration) (id string, err error) {
	ended, id, err := t.add(by, a, keep)
	t.settleExpired(ended)
	if err != nil {
		_ = a.Cancel(ctx) // what a store cannot give back stays charged, as if it had expired
	}
	return id, err
}

func (t *Table) add(by Caller, a *policy.Answer, keep time.Duration) (ended []*reservation, id string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.o.Now()
	ended = t.expire(now.UnixMilli())
	bound, bytes := by.bound(), a.Size()
	if !t.all.fits(bytes, t.o.MaxBytes, t.o.Max) || !t.bounds[bound].fits(bytes, t.o.PerCallerBytes, t.o.PerCaller) {
		return ended, "", ErrFull
	}
	until := now.Add(keep).UnixMilli()
	r := &reservation{caller: by.Name, bound: bound, bytes: bytes, answer: a, until: until}
	binary.BigEndian.PutUint64(r.id[:], uint64(until))
	_, _ = rand.Read(r.id[timeBytes:]) // never fails
	t.byID[r.id] = r
	t.count(r, 1)
	t.byExpiry.Push(&r.node, r, until)
	return ended, base64.RawURLEncoding.EncodeToString(r.id[:]), nil
}

// Settle ends a reservation of the callers of a name and replaces its costs by the actual ones: one for each of
// its limits, in their order, or one for all of them. Without costs, it cancels the reservation. On
// ErrUnsettled and a *CostsError, it is still open; on other errors, nothing has changed.
//
// A call that comes while another one settles the same reservation waits for its end.
func (t *Table) Settle(ctx context.Context, caller, id string, costs []int64) error {
	var of identifier
	if n, err := base64.RawURLEncoding.Strict().Decode(of[:], []byte(bounded(id))); err != nil || n != len(of) {
		return ErrUnknown
	}
	r, err := t.take(ctx, caller, of, len(costs))
	if err != nil {
		return err
	}
	n := len(r.answer.Each)
	switch {
	case len(costs) == 0:
		costs = make([]int64, n)
	case len(costs) < n:
		costs = slices.Repeat(costs, n)
	}
	now := t.o.Now()
	repeat := min(time.UnixMilli(r.until).Sub(now), repeatFor)
	err = r.answer.Settle(ctx, costs, max(repeat, 1))
	open := errors.Is(err, policy.ErrUnsettled)
	t.release(r, open, now.Add(repeat).UnixMilli())
	switch {
	case open:
		return ErrUnsettled
	case errors.Is(err, weir.ErrExpired):
		return ErrExpired
	}
	return nil
}

// bounded returns an identifier of the right length, or an empty one.
func bounded(id string) string {
	if len(id) != base64.RawURLEncoding.EncodedLen(len(identifier{})) {
		return ""
	}
	return id
}

// take returns a reservation that can be settled with so many costs, for this call alone until release. It
// waits for a call that settles the reservation.
func (t *Table) take(ctx context.Context, caller string, id identifier, costs int) (*reservation, error) {
	for {
		ended, r, busy, err := t.tryTake(caller, id, costs)
		t.settleExpired(ended)
		if busy == nil {
			return r, err
		}
		if err := pause.Until(ctx, busy); err != nil {
			return nil, err
		}
	}
}

// tryTake is take without waiting: busy is closed when it may succeed.
func (t *Table) tryTake(caller string, id identifier, costs int) (ended []*reservation, r *reservation, busy chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.o.Now().UnixMilli()
	ended = t.expire(now)
	r = t.byID[id]
	switch {
	case r == nil && binary.BigEndian.Uint64(id[:]) <= uint64(max(now, 0)):
		return ended, nil, nil, ErrExpired
	case r == nil || r.caller != caller:
		return ended, nil, nil, ErrUnknown
	case costs > 1 && costs != len(r.answer.Each):
		return ended, nil, nil, &CostsError{costs, len(r.answer.Each)}
	case r.settled != nil:
		return ended, nil, r.settled, nil
	}
	t.byExpiry.Remove(&r.node)
	r.settled = make(chan struct{})
	return ended, r, nil, nil
}

// release ends a call of take. A reservation that is still open expires by a time at the latest.
func (t *Table) release(r *reservation, open bool, until int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(r.settled)
	r.settled = nil
	if !open {
		t.remove(r)
		return
	}
	r.until = min(r.until, until)
	t.byExpiry.Push(&r.node, r, r.until)
}

// expire ends expired reservations: their charges stay. The lock is held.
func (t *Table) expire(now int64) (ended []*reservation) {
	for {
		r := t.byExpiry.Due(now)
		if r == nil {
			return ended
		}
		t.byExpiry.Remove(&r.node)
		t.remove(r)
		t.expired++
		ended = append(ended, r)
	}
}

func (t *Table) remove(r *reservation) {
	delete(t.byID, r.id)
	t.count(r, -1)
}

// count adds a reservation to what is counted, or takes it away: by is 1 or -1. The lock is held.
func (t *Table) count(r *reservation, by int) {
	bytes := int64(by) * r.bytes
	t.all = amount{t.all.number + by, t.all.bytes + bytes}
	under := t.bounds[r.bound]
	if under = (amount{under.number + by, under.bytes + bytes}); under.number == 0 {
		delete(t.bounds, r.bound)
		return
	}
	t.bounds[r.bound] = under
}

// Sweep ends expired reservations. Call it regularly: until then, limits in memory keep a record of
// each.
func (t *Table) Sweep() {
	t.mu.Lock()
	ended := t.expire(t.o.Now().UnixMilli())
	t.mu.Unlock()
	t.settleExpired(ended)
}

// settleExpired settles reservations that have expired: in memory at once, and in stores in the background.
// The call of another client must not wait for them.
func (t *Table) settleExpired(ended []*reservation) {
	var left []policy.Expired
	for _, r := range ended {
		left = append(left, r.answer.Expire()...)
	}
	if len(left) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return // they stay charged
	}
	if t.left = append(t.left, left...); t.settling == nil {
		t.settling = make(chan struct{})
		go t.settleLeft()
	}
}

// settleLeft settles expired reservations in stores until none are left.
func (t *Table) settleLeft() {
	for {
		t.mu.Lock()
		some := t.left
		t.left = nil
		if len(some) == 0 {
			close(t.settling)
			t.settling = nil
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		policy.SettleExpired(t.life, some)
	}
}

// Close waits until expired reservations are settled in stores, or the context ends: what is not settled by then
// stays charged. The table can still be used, but settles no more of them in stores.
func (t *Table) Close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	settling := t.settling
	t.mu.Unlock()
	if settling == nil {
		t.end()
		return
	}
	_ = pause.Until(ctx, settling) // the next line ends it
	t.end()
	<-settling
}

// Len returns how many reservations are open.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// Expired returns how many reservations have expired.
func (t *Table) Expired() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.expired
}
