package weirtest

import (
	"time"

	"github.com/weirflow/weir"
)

// A reference is the model of one key that a Subject is compared with: a Model, or for stores the
// Versions of the key's limit.
type reference interface {
	Take(now, cost int64) weir.Decision
	Peek(now, cost int64) weir.Decision
	Reserve(now, cost, within int64) (id int, delay time.Duration, d weir.Decision)
	// TakeKept is a take in a store whose charge can be settled; estimate is whether it will be
	TakeKept(now, cost int64, estimate bool) (id int, d weir.Decision)
	// Settle reports whether the reservation has expired
	Settle(now int64, id int, actual int64) (expired bool)
	SetLimit(now int64, l weir.Limit)
	Touched() bool

	idle(now int64) bool // every state equals an unused one
	algorithms() []algorithm

	Join(now, cost, within int64) (id int, delay time.Duration, d weir.Decision)
	JoinKept(now, cost, within int64) (id int, delay time.Duration, d weir.Decision)
	SettlePlace(now int64, id int, actual int64)
	Leave(now int64, id int) bool
	Waits(now int64, id int) bool
	NextTurn() (int64, bool)
}

// limiterKey is a key of a limiter in process.
type limiterKey struct{ *Model }

// TakeKept is of a store that keeps its limiters in process: a reservation without a delay.
func (k limiterKey) TakeKept(now, cost int64, _ bool) (id int, d weir.Decision) {
	id, _, d = k.Reserve(now, cost, 0)
	return id, d
}

func (k limiterKey) Settle(now int64, id int, actual int64) (expired bool) {
	k.Model.Settle(now, id, actual)
	return false
}

func (m *Model) idle(now int64) bool     { return m.Clone().Peek(now, 0).ResetAfter == 0 }
func (m *Model) algorithms() []algorithm { return []algorithm{m.algorithm} }

// sharedKey is a key in a store, as the callers see it that have the present limit of a walk. It has
// no queue.
type sharedKey struct {
	*Versions
	limit *weir.Limit
	of    map[int]weir.Limit // under which a reservation was made
}

func (k sharedKey) Take(now, cost int64) weir.Decision { return k.Versions.Take(*k.limit, now, cost) }
func (k sharedKey) Peek(now, cost int64) weir.Decision { return k.Versions.Peek(*k.limit, now, cost) }
func (k sharedKey) Reserve(now, cost, within int64) (id int, delay time.Duration, d weir.Decision) {
	id, delay, d = k.Versions.Reserve(*k.limit, now, cost, within)
	k.of[id] = *k.limit
	return id, delay, d
}

func (k sharedKey) TakeKept(now, cost int64, estimate bool) (id int, d weir.Decision) {
	id, d = k.Versions.TakeKept(*k.limit, now, cost, estimate)
	k.of[id] = *k.limit
	return id, d
}

func (k sharedKey) Settle(now int64, id int, actual int64) (expired bool) {
	l := k.of[id]
	return l != nil && k.Versions.Settle(l, now, id, actual)
}

func (k sharedKey) SetLimit(now int64, l weir.Limit) { k.Carry(l, now) }
func (k sharedKey) Touched() bool                    { return k.Len() > 0 }
func (k sharedKey) idle(now int64) bool              { return k.Idle(now) }
func (k sharedKey) algorithms() (all []algorithm) {
	for _, v := range k.kept {
		all = append(all, v.algorithm)
	}
	return all
}

func (sharedKey) Join(int64, int64, int64) (id int, delay time.Duration, d weir.Decision) {
	panic("weirtest: a store has no queue")
}
func (sharedKey) JoinKept(int64, int64, int64) (id int, delay time.Duration, d weir.Decision) {
	panic("weirtest: a store has no queue")
}
func (sharedKey) SettlePlace(int64, int, int64) {}
func (sharedKey) Leave(int64, int) bool         { return false }
func (sharedKey) Waits(int64, int) bool         { return false }
func (sharedKey) NextTurn() (int64, bool)       { return 0, false }
