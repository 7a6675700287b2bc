package weirkv

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// A Taker is a driver of a store that can decide about plain takes from a token bucket, a leaky bucket or a
// SmoothBursty by itself, in one round trip and by its own clock, whichever node wrote the key last. All else is
// decided between Get and CompareAndSwap.
type Taker interface {
	// Take has the store decide. Calls of one lane come one after another. After an error the call may have been
	// carried out, or may be later, unless a call of the lane after it has returned without an error.
	Take(ctx context.Context, lane string, t *Take) (Taken, error)

	// MakeLane makes a lane, unless it is there. Its name is a Store's own, in this process and all others. The store
	// keeps it for twice laneRenewed after its latest call.
	MakeLane(ctx context.Context, lane string) error
}

// laneRenewed is for how long a lane is used before it is made again, in case that the store has lost it.
const laneRenewed = 5 * time.Minute

// A lane is one that this Store has.
type lane struct {
	name string
	made time.Time // zero: it is not known to be there
}

// getLane returns a lane that no other round has until it is put into s.lanes again.
func (s *Store) getLane(ctx context.Context, taker Taker) (*lane, error) {
	s.mu.Lock()
	var l *lane
	if n := len(s.lanes); n > 0 {
		l, s.lanes = s.lanes[n-1], s.lanes[:n-1]
	} else {
		s.lastLane++
		l = &lane{name: fmt.Sprintf("%016x/%d", s.node, s.lastLane)}
	}
	s.mu.Unlock()
	if now := time.Now(); now.Sub(l.made) >= laneRenewed {
		err := taker.MakeLane(ctx, l.name)
		if s.heard(err, true); err != nil {
			s.putLane(l)
			return nil, err
		}
		l.made = now
	}
	return l, nil
}

func (s *Store) putLane(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = append(s.lanes, l)
}

// A Take is takes from a key in the order in which they came, for a Taker.
type Take struct {
	Key   string
	Limit []byte // the bytes with which the limit begins in a plain value
	Fresh []byte // what follows the key's clock in the value of a key that does not exist

	TicksPerUnit int64  // microsecond
	Full         int64  // ticks of a bucket that is full
	Passes       int64  // a take is admitted while no more than so many ticks are used before it
	Owing        bool   // Full does not count
	Reach        int64  // microseconds: a bucket that is not full for longer is left to the nodes
	Runs         []byte // of equal takes: the ticks of one in 8 bytes, and how many there are in 4

	Number int64 // of the call; larger than those before it on its lane
	Since  int64 // the number of the first call whose outcome is not known; Number without one

	HasRoom bool  // the key probably exists and has room, so that it is locked at once
	Skew    int64 // microseconds: a server's clock that is further behind the key's does not decide
	Expires int64 // the call does nothing after this time, in microseconds since 1970
	Least   int64 // for how many microseconds the value is kept at least
	Grace   int64 // and after its bucket is full
}

// Taken is what a Taker did.
type Taken struct {
	Outcome    Outcome
	Number     int64 // of Earlier: the number of the call that was carried out
	Now        int64 // when, in microseconds since 1970
	New        bool  // the key did not exist
	Full, Rest int64 // the bucket before it: when it is full, and the ticks beyond that
	Item       Item  // of TakeCharged: what the key holds now
}

// Outcome is what became of a Take.
type Outcome uint8

// Outcomes of a Take.
const (
	TakeOther   Outcome = iota // nothing: the store cannot decide about the value, or the call had expired
	TakeCharged                // some or all were admitted
	TakeRefused                // none was admitted, and nothing was written
	TakeEarlier                // a call from Since on had been carried out, and this one was not
	TakeNoLane                 // nothing: the lane is not there any more
)

// mostRuns bounds the runs of a Take.
const mostRuns = 64

// A taking is the takes of a round, as a Taker is asked for them.
type taking struct {
	taker Taker
	limit *compiled
	rule  rules.BucketRule
	lane  *lane  // nil before the first call
	since int64  // the number of the first call without a reply; 0: there is none
	tries []*try // the calls since then
}

// plainTakes returns how a Taker can be asked for requests; nil if it cannot decide about them.
func (s *Store) plainTakes(batch []*request) *taking {
	taker, ok := s.kv.(Taker)
	if !ok {
		return nil
	}
	k := &taking{taker: taker}
	for _, r := range batch {
		c := &r.charges[0]
		if len(r.charges) > 1 || r.dry || c.Op != weir.OpTake || c.Keep || c.Cost <= 0 {
			return nil
		}
		limit, err := s.limits.of(c.Limit)
		switch {
		case err != nil || k.limit != nil && !k.limit.is(limit):
			return nil
		case k.limit == nil:
			if k.limit, k.rule = limit, plainRule(limit); k.rule == nil {
				return nil
			}
		}
	}
	return k
}

// take has the store decide. It reports, as attempt does, whether all requests have ended; other is whether the
// store cannot decide about this key.
func (r *round) take(ctx context.Context) (done, other bool, err error) {
	k := r.taking
	if k.lane == nil {
		if k.lane, err = r.s.getLane(ctx, k.taker); err != nil {
			return false, false, err
		}
	}
	requests, t, ok := r.s.takeOf(k, r.key, r.batch)
	if !ok && k.since == 0 {
		return false, true, nil
	}
	k.tries = append(k.tries, &try{requests: requests, write: uint64(t.Number)})
	if k.since == 0 {
		k.since = t.Number
	}
	t.Since, t.HasRoom = k.since, r.s.hasRoom(r.key)
	r.s.rememberItem(r.key, Item{})
	taken, err := k.taker.Take(ctx, k.lane.name, t)
	if r.s.heard(err, true); err != nil {
		return false, false, err
	}
	r.s.wasTaken(r.key, taken)
	tries := k.tries
	k.since, k.tries = 0, nil
	decided := tries[len(tries)-1]
	switch taken.Outcome {
	case TakeOther:
		return false, true, nil
	case TakeNoLane:
		if k.lane = nil; len(tries) == 1 {
			return false, false, errNoLane
		}
		r.fail(errNoLane) // an earlier call may have been carried out
		return true, false, nil
	case TakeEarlier:
		i := slices.IndexFunc(tries, func(t *try) bool { return t.write == uint64(taken.Number) })
		if i < 0 {
			r.fail(fmt.Errorf("weirkv: the store returned the reply of call %d, which was not made", taken.Number))
			return true, false, nil
		}
		decided = tries[i]
	}
	r.s.decided(k.limit, decided, taken)
	return r.delivered(decided), false, nil
}

// errNoLane is the error of a call whose lane was lost: by who emptied the store, or with a server that failed.
var errNoLane = errors.New("weirkv: the store has lost the record that tells whether a call was carried out")

// takeOf returns the first of the requests, as many as fit, and what the store is asked for them. ok is false if their
// costs are beyond what it counts in.
func (s *Store) takeOf(k *taking, key string, batch []*request) (requests []*request, t *Take, ok bool) {
	now := s.clock.now()
	t = &Take{Key: key, Limit: plainLimit(k.limit), Number: int64(s.writes.Add(1)),
		Skew: s.skew(), Expires: now + int64(s.o.Timeout/unit), Least: int64(leastTTL / unit), Grace: int64(s.o.Grace / unit)}
	word, ok := k.rule.NewBucketWord(now)
	if !ok {
		return nil, t, false
	}
	fresh := &entry{versions: []*version{newVersion(k.limit, s.o.Remember)}}
	t.Fresh = append(plainLimit(k.limit), fresh.plainRest()...)
	t.TicksPerUnit, t.Full, t.Passes, t.Owing, t.Reach = word.Numbers()
	n, runs := 0, 0
	for n < len(batch) {
		cost, first := batch[n].charges[0].Cost, n
		for n < len(batch) && batch[n].charges[0].Cost == cost {
			n++
		}
		if word.Odd(cost) || runs == mostRuns {
			n = first
			break
		}
		t.Runs = binary.BigEndian.AppendUint64(t.Runs, uint64(word.Need(cost)))
		t.Runs = binary.BigEndian.AppendUint32(t.Runs, uint32(n-first))
		runs++
	}
	return batch[:n], t, n > 0
}

// freeLane ends what the round asks the store to decide.
func (r *round) freeLane() {
	if r.taking != nil && r.taking.lane != nil {
		r.s.putLane(r.taking.lane)
	}
	r.taking = nil
}

// decided notes the decisions about a try, from what the bucket was before it.
func (s *Store) decided(limit *compiled, t *try, taken Taken) {
	v := newVersion(limit, s.o.Remember)
	if !taken.New {
		v.state = []int64{taken.Full, taken.Rest}
	}
	on := &turn{entry: &entry{clock: keyClock{taken.Now}, versions: []*version{v}}, limits: &s.limits, remember: s.o.Remember, now: taken.Now}
	for _, r := range t.requests {
		charges, out := append([]weir.Charge(nil), r.charges...), make([]weir.Decision, len(r.charges))
		on.request(r, charges, out)
		t.charges, t.out = append(t.charges, charges), append(t.out, out)
	}
}

// keyUse is what is known of a key that a Taker was asked about.
type keyUse struct {
	roomy bool // it was charged
	turns int  // so many calls are made before a CompareAndSwap is tried again: other nodes write the key, too
}

// sharedTurns is how long a key whose CompareAndSwap another node made fail is left to the Taker.
const sharedTurns = 32

// hasRoom reports whether a key was charged when the Taker was asked last.
func (s *Store) hasRoom(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[key].roomy
}

// shares notes that other nodes write a key.
func (s *Store) shares(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setUse(key, keyUse{true, sharedTurns})
}

// wasTaken notes what a Taker has done. What it has written is remembered, so that the next charge can be a
// CompareAndSwap, which costs the server less, unless other nodes write the key.
func (s *Store) wasTaken(key string, t Taken) {
	s.mu.Lock()
	use := s.taken[key]
	use.roomy = t.Outcome == TakeCharged
	use.turns = max(use.turns-1, 0)
	s.setUse(key, use)
	s.mu.Unlock()
	if use.roomy && use.turns == 0 {
		s.rememberItem(key, t.Item)
	}
}

func (s *Store) setUse(key string, use keyUse) {
	if len(s.taken) >= mostKnown {
		clear(s.taken)
	}
	if s.taken[key] = use; use == (keyUse{}) {
		delete(s.taken, key)
	}
}
