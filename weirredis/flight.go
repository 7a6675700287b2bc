package weirredis

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A lane is where asks wait for a trip. There are a few flights at a time; each takes all that wait, up to a bound.
type lane struct {
	mu      sync.Mutex
	waiting []*ask
	flights int
	closed  bool
}

// maxCharges is how many charges a call carries, unless one batch has more: so that no script holds up the server for long.
const maxCharges = 128

// add hands an ask in. It reports false after the end.
func (l *lane) add(s *Store, a *ask) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.waiting = append(l.waiting, a)
	begin := l.flights < s.opts.Flights
	if begin {
		l.flights++
		s.flying.Add(1)
	}
	l.mu.Unlock()
	if begin {
		go s.fly()
	}
	return true
}

// alone reports whether nobody else is there, and begins a flight then, which ends by left.
func (l *lane) alone(s *Store) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.flights > 0 {
		return false
	}
	l.flights++
	s.flying.Add(1)
	return true
}

// left ends the flight of someone who was alone: who came meanwhile goes on with it.
func (l *lane) left(s *Store) {
	l.mu.Lock()
	onward := len(l.waiting) > 0
	if !onward {
		l.flights--
	}
	l.mu.Unlock()
	if onward {
		go s.fly()
		return
	}
	s.flying.Done()
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// next is what the next flight takes; nothing means that it ends.
func (l *lane) next(into []*ask) []*ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, charges := 0, 0
	for n < len(l.waiting) && (n == 0 || charges+len(l.waiting[n].questions) <= maxCharges) {
		charges += len(l.waiting[n].questions)
		n++
	}
	if n == 0 {
		l.flights--
		return nil
	}
	into = append(into[:0], l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return into
}

// fly makes trips while somebody waits.
func (s *Store) fly() {
	defer s.flying.Done()
	var asks []*ask
	for asks = s.lane.next(asks); asks != nil; asks = s.lane.next(asks) {
		s.trip(asks)
	}
}

// trip carries out asks, for as long as any of them has time.
func (s *Store) trip(asks []*ask) {
	end := asks[0].end
	for _, a := range asks {
		if a.end.After(end) {
			end = a.end
		}
	}
	ctx, cancel := context.WithDeadline(s.ctx, end)
	defer cancel()
	s.carry(ctx, asks)
}

// carry carries out asks until the context ends.
func (s *Store) carry(ctx context.Context, asks []*ask) {
	flights := s.flights(asks)
	for {
		var calls []Call
		var under []*flight
		for _, f := range flights {
			if f.again(ctx) {
				calls, under = append(calls, f.call()), append(under, f)
			}
		}
		switch len(under) {
		case 0:
			return
		case 1:
			text, err := s.evaler.Eval(ctx, calls[0])
			under[0].landed(Reply{text, err})
			continue
		}
		replies := make([]Reply, len(calls))
		s.evaler.EvalAll(ctx, calls, replies)
		for i, f := range under {
			f.landed(replies[i])
		}
	}
}

// flights parts asks into calls: by their slots, and by whether they can go the short way.
func (s *Store) flights(asks []*ask) (flights []*flight) {
	type way struct {
		slot  uint16
		short bool
	}
	alike := true
	for _, a := range asks {
		alike = alike && a.slot == asks[0].slot && a.short == asks[0].short
	}
	if alike {
		return append(flights, newFlight(s, asks))
	}
	by := map[way]int{}
	for _, a := range asks {
		w := way{a.slot, a.short}
		i, ok := by[w]
		if !ok {
			i = len(flights)
			by[w], flights = i, append(flights, &flight{store: s})
		}
		flights[i].asks = append(flights[i].asks, a)
	}
	for i, f := range flights {
		flights[i] = newFlight(s, f.asks)
	}
	return flights
}

// A flight is one call, from the first attempt to the last.
type flight struct {
	store   *Store
	asks    []*ask
	kinds   kindSet
	short   bool // by the short way
	nonce   string
	expiry  int64
	unsure  bool // an attempt with this nonce may have been carried out
	source  bool // the server lacks the script
	tries   int
	over    bool
	failure error   // of the latest attempt
	times   []int64 // at which windows of calendars are needed, beside those of now
}

func newFlight(s *Store, asks []*ask) *flight {
	f := &flight{store: s, asks: asks, short: asks[0].short}
	for _, a := range asks {
		for i := range a.questions {
			f.kinds |= a.questions[i].limit.kinds
		}
	}
	return f
}

// again reports whether there is to be an attempt, after a pause where the latest one failed. Where there is none, who asked is told.
func (f *flight) again(ctx context.Context) bool {
	if f.over {
		return false
	}
	if f.failure != nil {
		pause := time.NewTimer(min(time.Millisecond<<min(f.tries, 6), 50*time.Millisecond))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		f.tries++
		return true
	}
	err := f.failure
	if err == nil {
		err = context.DeadlineExceeded
	}
	if f.store.ctx.Err() != nil {
		err = errClosed
	}
	f.end(fmt.Errorf("weirredis: no answer: %w", err))
	return false
}

// end gives up, or is done where err is nil.
func (f *flight) end(err error) {
	f.over = true
	for _, a := range f.asks {
		a.err = err
		close(a.done)
	}
}

// call makes a call of the questions. A repeat has the nonce of the first attempt, so that at most one of them is carried out.
func (f *flight) call() Call {
	s := f.store
	if f.nonce == "" {
		var id [16]byte
		copy(id[:], s.self[:])
		binary.BigEndian.PutUint64(id[8:], s.nonces.Add(1))
		key := f.asks[0].questions[0].key
		f.nonce = key[:strings.IndexByte(key, '}')+1] + ":nonce:" + hex.EncodeToString(id[:])
		f.expiry = s.expiry(f.asks)
	}
	kinds, request := f.kinds, f.request
	if f.short {
		kinds, request = short, f.shortRequest
	}
	keys := make([]string, 1, 1+len(f.asks))
	keys[0] = f.nonce
	var limits []*limit
	for _, a := range f.asks {
		for i := range a.questions {
			limits = add(limits, a.questions[i].limit)
			keys = append(keys, a.questions[i].key)
		}
	}
	return Call{Script: s.scripts.of(kinds), Send: f.source, Keys: keys, Args: []string{request(limits, len(keys)-1)}}
}

// request writes down what is asked, for main.lua.
func (f *flight) request(limits []*limit, charges int) string {
	b := make([]byte, 0, 256)
	calendars := f.calendars()
	elements := 6
	if calendars != "" {
		elements++
	}
	b = appendInt(appendArray(b, elements), version)
	b = appendInt(b, f.expiry)
	b = appendInt(b, int64(f.store.opts.Grace/time.Millisecond))
	b = appendInt(b, 1)
	b = appendArray(b, len(limits))
	for _, l := range limits {
		b = appendString(b, l.def)
	}
	b = appendArray(b, 6*charges)
	groups := int64(0)
	for _, a := range f.asks {
		from, last := groups, 0
		for i := range a.questions {
			q := &a.questions[i]
			b = appendInt(b, int64(q.op))
			b = appendInt(b, int64(index(limits, q.limit))+1)
			b = appendInt(b, q.cost)
			if q.group > 0 && (q.group != last || groups == from) {
				groups++ // each caller has groups of his own
			}
			if last = q.group; q.group > 0 {
				b = appendInt(b, groups)
			} else {
				b = appendInt(b, 0)
			}
			b = appendInt(b, q.more)
			b = appendString(b, string(q.paper))
		}
	}
	b = append(b, calendars...)
	return string(b)
}

// shortRequest does so for take.lua.
func (f *flight) shortRequest(limits []*limit, charges int) string {
	b := make([]byte, 0, 256)
	b = appendInt(appendArray(b, 5), version)
	b = appendInt(b, f.expiry)
	b = appendInt(b, int64(f.store.opts.Grace/time.Millisecond))
	b = appendArray(b, len(limits))
	for _, l := range limits {
		b = append(b, l.short.text...)
	}
	b = appendArray(b, 4*charges)
	for _, a := range f.asks {
		for i := range a.questions {
			q := &a.questions[i]
			b = appendInt(b, int64(index(limits, q.limit))+1)
			b = appendInt(b, 1-int64(q.op)) // a take charges, a peek does not
			b = q.limit.short.appendCost(b, q.cost)
		}
	}
	return string(b)
}

// add adds a limit that is not there yet. There are few.
func add(all []*limit, l *limit) []*limit {
	if index(all, l) < 0 {
		all = append(all, l)
	}
	return all
}

func index(all []*limit, l *limit) int {
	for i := range all {
		if all[i] == l {
			return i
		}
	}
	return -1
}

// landed reads the reply to an attempt.
func (f *flight) landed(r Reply) {
	f.failure = nil
	if r.Err == nil {
		f.read(r.Text)
		return
	}
	switch text := r.Err.Error(); {
	case strings.HasPrefix(text, "NOSCRIPT"):
		f.source = true
	case strings.HasPrefix(text, "WEIRFULL") && f.short:
		f.short, f.source = false, false
	case strings.HasPrefix(text, "WEIRFULL") && f.kinds != full:
		f.kinds, f.source = full, false
	case strings.HasPrefix(text, "WEIRLATE "):
		f.late(text)
	case strings.HasPrefix(text, "WEIRCALENDAR "):
		f.lacking(text)
	case passing(r.Err):
		f.failure, f.unsure = r.Err, true
	case f.short && strings.Contains(text, "script"): // a key holds what it cannot read: the other script says which
		f.short, f.source = false, false
	default:
		f.end(fmt.Errorf("weirredis: %w", r.Err))
	}
}

// late is for a call that came after its expiry, and was not carried out: as our idea of the server's clock was wrong, or there was none. Where
// an attempt before may have been carried out it is the end: that one's answer may be gone by now.
func (f *flight) late(text string) {
	now, err := strconv.ParseInt(strings.TrimPrefix(text, "WEIRLATE "), 10, 64)
	if err != nil {
		f.end(fmt.Errorf("weirredis: %s", text))
		return
	}
	f.store.set(now)
	if f.unsure {
		f.end(errors.New("weirredis: no answer in time: the charge may have been carried out or not"))
		return
	}
	f.nonce = ""
}

// passing reports whether an error may be gone when the call is repeated: the connection was lost, the server is busy with something else, or
// another one has become the master.
func passing(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // whether there is time for another one is seen there
	}
	text := err.Error()
	for _, p := range []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "MOVED", "ASK", "NOREPLICAS"} {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	code, _, _ := strings.Cut(text, " ")
	return code != strings.ToUpper(code) || code == "EOF" // errors of the server begin with a word in capitals
}

// read gives each question its answer.
func (f *flight) read(text string) {
	r := &reader{b: text}
	elements := r.array()
	now := r.int()
	for _, a := range f.asks {
		for i := range a.questions {
			a.questions[i].read(r)
		}
	}
	if r.err != nil || elements == 0 {
		f.end(errAnswer)
		return
	}
	f.store.see(now)
	f.end(nil)
}

// expiry is when the call is to be carried out at the latest, by the server's clock. It is 1, long past, where that clock is not known yet: the
// refusal tells it.
func (s *Store) expiry(asks []*ask) int64 {
	offset := s.offset.Load()
	if offset == 0 {
		return 1
	}
	end := asks[0].end
	for _, a := range asks {
		if a.end.After(end) {
			end = a.end
		}
	}
	return offset + int64(end.Sub(s.start)/time.Microsecond)
}

// see learns the server's clock from an answer: what it reads is a little in the past. So the latest reading is the nearest, unless the clock
// was put back.
func (s *Store) see(now int64) {
	offset := now - int64(time.Since(s.start)/time.Microsecond)
	if old := s.offset.Load(); offset > old || offset < old-int64(10*time.Second/time.Microsecond) {
		s.offset.CompareAndSwap(old, offset)
	}
}

// set is see where it is known that the clock is another one.
func (s *Store) set(now int64) { s.offset.Store(now - int64(time.Since(s.start)/time.Microsecond)) }
