package outstanding

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/heap"
)

// Errors of Places. errors.Is finds them.
var (
	// ErrPlacesFull means that there are too many places, in total or of one caller.
	ErrPlacesFull = errors.New("too many requests are in flight: leave some places, or hold them for a shorter time")
	// ErrPlaceExpired means that the place has expired: others may have it.
	ErrPlaceExpired = errors.New("the place has expired, and is free: the end of the request says nothing any more")
	// ErrNoPlace means that there is no such place: it was left before, was given to another caller or by another
	// server, or is none.
	ErrNoPlace = errors.New("there is no such place: it was left before, or another caller or server has it")
)

// Places are the places at concurrency limits and adaptive limits that clients of the services hold between two
// calls: the second one says that the work has ended. A place that expires before is free, and says nothing
// about how long the work takes. It is safe for concurrent use.
type Places struct {
	o        Options
	mu       sync.Mutex
	byID     map[identifier]*place
	byExpiry heap.Heap[place]
	bounds   map[string]int // of places and claims, by bound of callers
	claims   int
	closed   bool
}

type place struct {
	id     identifier
	caller string // its name
	bound  string
	done   func(weir.Outcome)
	node   heap.Node[place]
}

// NewPlaces returns no places. Of the options, Max, PerCaller and Now matter.
func NewPlaces(o Options) *Places {
	o = o.withDefaults()
	return &Places{o: o, byID: map[identifier]*place{}, bounds: map[string]int{}}
}

// A Claim is room for a place of a request that is not decided yet. Keep or Release ends it.
type Claim struct {
	of            *Places
	caller, bound string
}

// Claim claims room for a place of a caller, so that a request for which there is none is not charged. The error is
// ErrPlacesFull.
func (p *Places) Claim(by Caller) (*Claim, error) {
	p.mu.Lock()
	now, bound := p.o.Now(), by.bound()
	expired := p.expire(now)
	full := p.closed || len(p.byID)+p.claims >= p.o.Max || p.bounds[bound] >= p.o.PerCaller
	if !full {
		p.claims++
		p.bounds[bound]++
	}
	p.mu.Unlock()
	end(expired)
	if full {
		return nil, ErrPlacesFull
	}
	return &Claim{p, by.Name, bound}, nil
}

// Keep keeps a place for a time. done gives it back; it is called once, unless there is an error: ErrPlacesFull, if
// Close was called since.
func (c *Claim) Keep(done func(weir.Outcome), keep time.Duration) (id string, err error) {
	p := c.of
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims--
	if p.closed {
		p.unbound(c.bound)
		return "", ErrPlacesFull
	}
	until := p.o.Now().Add(keep).UnixMilli()
	one := &place{caller: c.caller, bound: c.bound, done: done}
	binary.BigEndian.PutUint64(one.id[:], uint64(until))
	_, _ = rand.Read(one.id[timeBytes:]) // never fails
	p.byID[one.id] = one
	p.byExpiry.Push(&one.node, one, until)
	return base64.RawURLEncoding.EncodeToString(one.id[:]), nil
}

// Release gives the room back.
func (c *Claim) Release() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.of.claims--
	c.of.unbound(c.bound)
}

// Outcome returns how the work of a request has ended, by its word in the services: ok (also without a word), ignored
// or dropped. It reports false for others.
func Outcome(word string) (o weir.Outcome, ok bool) {
	switch word {
	case "", "ok":
		return weir.OK, true
	case "ignored":
		return weir.Ignore, true
	case "dropped":
		return weir.Dropped, true
	}
	return o, false
}

// Leave gives a place of the callers of a name back, and says how the work has ended.
func (p *Places) Leave(caller, id string, o weir.Outcome) error {
	var of identifier
	if n, err := base64.RawURLEncoding.Strict().Decode(of[:], []byte(bounded(id))); err != nil || n != len(of) {
		return ErrNoPlace
	}
	p.mu.Lock()
	now := p.o.Now()
	expired := p.expire(now)
	one := p.byID[of]
	mine := one != nil && one.caller == caller
	if mine {
		p.remove(one)
	}
	p.mu.Unlock()
	end(expired)
	switch {
	case mine:
		one.done(o)
		return nil
	case one == nil && binary.BigEndian.Uint64(of[:]) <= uint64(max(now.UnixMilli(), 0)):
		return ErrPlaceExpired
	}
	return ErrNoPlace
}

// Sweep frees the places that have expired.
func (p *Places) Sweep() {
	p.mu.Lock()
	expired := p.expire(p.o.Now())
	p.mu.Unlock()
	end(expired)
}

// Len returns how many places there are.
func (p *Places) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byID)
}

// Close frees all places. There are no more afterwards.
func (p *Places) Close() {
	p.mu.Lock()
	p.closed = true
	all := make([]*place, 0, len(p.byID))
	for _, one := range p.byID {
		all = append(all, one)
	}
	for _, one := range all {
		p.remove(one)
	}
	p.mu.Unlock()
	end(all)
}

// expire takes out the places that have expired. p.mu is locked; the caller ends them after that.
func (p *Places) expire(now time.Time) (expired []*place) {
	for one := p.byExpiry.Due(now.UnixMilli()); one != nil; one = p.byExpiry.Due(now.UnixMilli()) {
		p.remove(one)
		expired = append(expired, one)
	}
	return expired
}

func (p *Places) remove(one *place) {
	delete(p.byID, one.id)
	p.byExpiry.Remove(&one.node)
	p.unbound(one.bound)
}

// unbound ends one place or claim of a caller. p.mu is locked.
func (p *Places) unbound(bound string) {
	if p.bounds[bound]--; p.bounds[bound] == 0 {
		delete(p.bounds, bound)
	}
}

// end frees places whose holders have not said how the work has ended.
func end(all []*place) {
	for _, one := range all {
		one.done(weir.Ignore)
	}
}
