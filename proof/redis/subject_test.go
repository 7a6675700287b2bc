package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
	"github.com/weirflow/weir/weirtest"
)

// world is a server with the test's own clock.
type world struct {
	client rueidis.Client
	serial atomic.Int64
}

// open returns a limit in Redis, on a clock that stands still until it is set: the scripts read it
// from a key. The key is always the same, and so are the scripts, because a server keeps every
// script that it was sent.
func (w *world) open(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
	n := w.serial.Add(1)
	s := &subject{client: w.client, clock: c, clockKey: "clock", limit: l, keys: map[string]bool{}}
	var err error
	s.store, err = weirrueidis.New(w.client, weirredis.Options{Prefix: fmt.Sprintf("t%d:", n), ClockKey: s.clockKey, Grace: time.Hour, Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	s.shared, err = weir.NewShared(l, s.store, weir.Named(weir.Algorithm(l)))
	return s, err
}

// subject is the limit in Redis of a weirtest.Subject.
type subject struct {
	settled  int // settlements with a name
	client   rueidis.Client
	store    *weirredis.Store
	shared   *weir.Shared
	clock    *weirtest.Clock
	clockKey string
	set      int64
	isSet    bool
	limit    weir.Limit
	keys     map[string]bool
}

// setClock writes the clock's reading to the key that the scripts read.
func (s *subject) setClock(key string) {
	s.keys[key] = true
	now := s.clock.Now() / int64(time.Microsecond)
	if s.isSet && now == s.set {
		return
	}
	s.set, s.isSet = now, true
	err := s.client.Do(context.Background(), s.client.B().Hset().Key(s.clockKey).FieldValue().
		FieldValue("s", strconv.FormatInt(now/1e6, 10)).FieldValue("us", strconv.FormatInt(now%1e6, 10)).Build()).Error()
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (s *subject) Take(key string, cost int64) weir.Decision {
	s.setClock(key)
	return must(s.shared.Take(context.Background(), key, cost))
}

func (s *subject) Peek(key string, cost int64) weir.Decision {
	s.setClock(key)
	return must(s.shared.Peek(context.Background(), key, cost))
}

func (s *subject) Reserve(key string, cost int64, maxDelay time.Duration) (weirtest.Reservation, bool) {
	s.setClock(key)
	r, ok, err := s.shared.Reserve(context.Background(), key, cost, maxDelay)
	if err != nil {
		panic(err)
	}
	return reservation{r, s, key}, ok
}

// SetLimit converts all keys at once, as the model does. The store itself converts a key when it is
// next used.
func (s *subject) SetLimit(l weir.Limit) error {
	if err := s.shared.SetLimit(l); err != nil {
		return err
	}
	for key := range s.keys {
		s.setClock(key)
		charge := [1]weir.Charge{{Name: s.shared.Name(), Key: key, Limit: l, Op: weir.OpCarry}}
		if err := s.store.Do(context.Background(), charge[:], make([]weir.Decision, 1)); err != nil {
			return err
		}
	}
	s.limit = l
	return nil
}

// Switch makes the following calls those of a process with another version of the limit.
func (s *subject) Switch(l weir.Limit) error {
	s.limit = l
	return s.shared.SetLimit(l)
}

// Close deletes all keys: those of a walk expire by a clock that may be years ahead.
func (s *subject) Close() error {
	err := s.client.Do(context.Background(), s.client.B().Flushall().Build()).Error()
	return errors.Join(s.store.Close(), err)
}

type reservation struct {
	*weir.SharedReservation
	s   *subject
	key string
}

func (r reservation) Settle(actual int64) { r.SettleInTime(actual) }
func (r reservation) SettleInTime(actual int64) bool {
	r.s.setClock(r.key)
	err := r.SharedReservation.Settle(context.Background(), actual)
	if err != nil && !errors.Is(err, weir.ErrExpired) {
		panic(err)
	}
	return err == nil
}

// TakeKept is a take with Keep.
func (s *subject) TakeKept(key string, cost int64, estimate bool) (weirtest.Reservation, bool) {
	s.setClock(key)
	k := &keptTake{s: s, charge: weir.Charge{Name: s.shared.Name(), Key: key, Limit: s.limit, Cost: cost, Keep: true, Estimate: estimate}}
	k.decision = k.do()
	return k, k.decision.Allowed
}

// TakeSome is OpTakeSome.
func (s *subject) TakeSome(key string, cost int64) (taken int64, d weir.Decision) {
	s.setClock(key)
	k := &keptTake{s: s, charge: weir.Charge{Name: s.shared.Name(), Key: key, Limit: s.limit, Cost: cost, Op: weir.OpTakeSome}}
	d = k.do()
	return k.charge.Taken, d
}

// keptTake is a take with Keep, until it is settled.
type keptTake struct {
	s        *subject
	charge   weir.Charge
	decision weir.Decision
}

func (k *keptTake) do() weir.Decision {
	batch, out := []weir.Charge{k.charge}, make([]weir.Decision, 1)
	if err := k.s.store.Do(context.Background(), batch, out); err != nil && !errors.Is(err, weir.ErrExpired) {
		panic(err)
	}
	k.charge = batch[0]
	return out[0]
}

func (k *keptTake) Delay() time.Duration    { return 0 }
func (k *keptTake) Decision() weir.Decision { return k.decision }
func (k *keptTake) Cancel()                 { k.Settle(0) }
func (k *keptTake) Settle(actual int64)     { k.SettleInTime(actual) }
func (k *keptTake) SettleInTime(actual int64) bool {
	if actual < 0 || actual == k.charge.Cost && !rules.Lists(weir.Parts(k.charge.Limit)) {
		return true
	}
	k.s.setClock(k.charge.Key)
	k.charge.Op, k.charge.Cost = weir.OpSettle, actual
	k.s.settled++
	k.charge.Once, k.charge.OnceFor = strconv.Itoa(k.s.settled), time.Hour
	k.do()
	inTime := k.charge.Err == nil
	if inTime { // a repeat, as after a lost reply, changes nothing, whatever its cost
		k.charge.Cost = actual + 3
		k.do()
	}
	return inTime
}

func (r reservation) Cancel() { r.Settle(0) }
