package weirredis

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A flight is one call, from the first attempt to the last.
type flight struct {
	store   *Store
	part    *part // the slots that it is about
	asks    []*ask
	kinds   kindSet
	short   bool      // by the short way
	end     time.Time // of the last caller
	nonce   string
	expiry  int64     // the same by the server's clock, or unknown
	sent    time.Time // the first attempt with this nonce
	unsure  bool      // one with this nonce may have been carried out
	source  bool      // the server lacks the script
	tries   int
	over    bool
	failure error   // of the latest attempt
	times   []int64 // at which windows of calendars are needed, beside those of now
}

func newFlight(s *Store, asks []*ask) *flight {
	f := &flight{store: s, part: s.lanes.part(asks[0].slot), asks: asks, short: asks[0].short, end: latestEnd(asks)}
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
	if ctx.Err() == nil && time.Now().Before(f.end) {
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
	f.finish(fmt.Errorf("weirredis: no answer: %w", err))
	return false
}

// finish gives up.
func (f *flight) finish(err error) {
	f.over = true
	for _, a := range f.asks {
		a.finish(err)
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
		f.expiry, f.sent = f.part.clock.expiry(f.end), time.Now()
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
	b = appendArray(b, 7*charges)
	groups := int64(0)
	for _, a := range f.asks {
		early := f.early(a)
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
			b = appendInt(b, early)
		}
	}
	return string(append(b, calendars...))
}

// early is how much sooner than the call an ask expires, in milliseconds: its caller may be one of several, and leave first.
func (f *flight) early(a *ask) int64 {
	return int64((f.end.Sub(a.end) + time.Millisecond - 1) / time.Millisecond)
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
	b = appendArray(b, 5*charges)
	for _, a := range f.asks {
		early := f.early(a)
		for i := range a.questions {
			q := &a.questions[i]
			b = appendInt(b, int64(index(limits, q.limit))+1)
			b = appendInt(b, 1-int64(q.op)) // a take charges, a peek does not
			b = appendInt(q.limit.short.appendCost(b, q.cost), early)
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
	f.failure, f.source = nil, false
	defer func() { f.part.tell(f.failure == nil) }()
	if r.Err == nil {
		f.read(r.Text)
		return
	}
	switch text := r.Err.Error(); {
	case strings.HasPrefix(text, "NOSCRIPT"):
		f.source = true
	case strings.HasPrefix(text, "WEIRFULL") && f.short:
		f.short = false
	case strings.HasPrefix(text, "WEIRFULL") && f.kinds != full:
		f.kinds = full
	case strings.HasPrefix(text, "WEIRLATE "):
		f.late(text)
	case strings.HasPrefix(text, "WEIRCALENDAR "):
		f.lacking(text)
	case refused(text):
		f.failure = r.Err
	case lost(r.Err):
		f.failure, f.unsure = r.Err, f.unsure || f.expiry != unknown
	case f.short && strings.Contains(text, "script"): // a key holds what it cannot read: the other script says which
		f.short = false
	default:
		f.finish(fmt.Errorf("weirredis: %w", r.Err))
	}
}

// late is for a call that came after its expiry, and was not carried out: as our idea of the server's clock was wrong, or there was none. Where
// an attempt before may have been carried out it is the end: that one's answer may be gone by now.
func (f *flight) late(text string) {
	now, err := strconv.ParseInt(strings.TrimPrefix(text, "WEIRLATE "), 10, 64)
	if err != nil {
		f.finish(fmt.Errorf("weirredis: %s", text))
		return
	}
	f.part.clock.set(now)
	if f.unsure {
		f.finish(errors.New("weirredis: no answer in time: the charge may have been carried out or not"))
		return
	}
	f.nonce = ""
}

// refused reports whether an error is the server's, who did nothing, and may be gone when the call is repeated: the server is busy with
// something else, or another one has become the master.
func refused(text string) bool {
	for _, p := range []string{"LOADING", "READONLY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "BUSY", "MOVED", "ASK", "NOREPLICAS"} {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// lost reports whether an error is none of the server's: the call may have been carried out.
func lost(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true // whether there is time for another one is seen there
	}
	code, _, _ := strings.Cut(err.Error(), " ")
	return code != strings.ToUpper(code) || code == "EOF" // errors of the server begin with a word in capitals
}

// passing reports whether an error may be gone when the call is repeated.
func passing(err error) bool { return refused(err.Error()) || lost(err) }

// read gives each question its answer. What came late by the server's clock, but is not by ours, goes again: it was not carried out, and now
// that clock is known.
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
		f.finish(errAnswer)
		return
	}
	f.part.clock.see(now, f.sent)
	var again []*ask
	for _, a := range f.asks {
		switch {
		case a.questions[0].err != errLate:
			a.finish(nil)
		case !a.late(time.Now()):
			again = append(again, a)
		}
	}
	if f.over = again == nil; !f.over {
		f.asks, f.end, f.nonce, f.unsure = again, latestEnd(again), "", false
	}
}
