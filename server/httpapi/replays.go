package httpapi

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Bounds of the answers that are kept for calls with an Idempotency-Key.
const (
	rememberFor  = time.Minute
	maxReplays   = 100_000
	maxReplaySum = 64 << 20 // bytes of all answers
	maxKey       = 64
	callTime     = time.Minute // for a call whose client has left; stores have deadlines of their own

	callerShare = 4 // one caller gets at most a fourth of each bound
)

// replays keeps the answers to calls with an Idempotency-Key for a minute, so that a call that is
// sent again is not charged again. They end with the process.
type replays struct {
	now   func() time.Time
	mu    sync.Mutex
	byKey map[string]*replay
	order list.List       // of *replay, oldest first
	size  int             // bytes of all answers
	uses  map[string]*use // by caller
}

// use is what is kept for a caller.
type use struct {
	calls, size int
	order       list.List // of *replay, oldest first
}

// add remembers a new call. The lock is held.
func (m *replays) add(p *replay) {
	u := m.uses[p.caller]
	if u == nil {
		u = &use{}
		m.uses[p.caller] = u
	}
	u.calls++
	m.byKey[p.key] = p
	p.place, p.own = m.order.PushBack(p), u.order.PushBack(p)
}

// grow counts the bytes of an answer. The lock is held.
func (m *replays) grow(p *replay, size int) {
	m.size += size
	m.uses[p.caller].size += size
	p.size = size
}

// remove drops a call. The lock is held.
func (m *replays) remove(p *replay) {
	u := m.uses[p.caller]
	m.order.Remove(p.place)
	u.order.Remove(p.own)
	delete(m.byKey, p.key)
	m.size -= p.size
	u.size -= p.size
	if u.calls--; u.calls == 0 {
		delete(m.uses, p.caller)
	}
}

// room makes room for another call of a caller, by evicting the oldest answers to this caller. It
// reports false if that is not enough. Without tokens, all callers count as one. The lock is held.
func (m *replays) room(caller string) bool {
	share := 1
	if caller != "" {
		share = callerShare
	}
	for {
		u := m.uses[caller]
		full := len(m.byKey) >= maxReplays || m.size >= maxReplaySum
		if !full && (u == nil || u.calls < maxReplays/share && u.size < maxReplaySum/share) {
			return true
		}
		if u == nil || !u.order.Front().Value.(*replay).answered() {
			return false
		}
		m.remove(u.order.Front().Value.(*replay))
	}
}

// replay is a call that was answered, or is being answered.
type replay struct {
	key    string
	caller string
	sum    [sha256.Size]byte // of the call
	done   chan struct{}
	reply  *reply
	err    error
	size   int // of the answer
	until  time.Time
	place  *list.Element // in the order of all
	own    *list.Element // in that of the caller
}

// answered reports whether the call has an answer.
func (p *replay) answered() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func newReplays(now func() time.Time) *replays {
	return &replays{now: now, byKey: map[string]*replay{}, uses: map[string]*use{}}
}

// once carries a call out, or returns the answer to the same call before.
func (m *replays) once(c *call, do func() (*reply, error)) (*reply, error) {
	key := c.r.Header.Get("Idempotency-Key")
	if key == "" || c.r.Method == http.MethodGet {
		return do()
	}
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &problem{Status: http.StatusBadRequest, Field: "Idempotency-Key", Detail: "it is not 1 to 64 letters, digits and signs of ASCII", Fix: "send a random text, such as a UUID"}
	}
	p, first, err := m.begin(c.caller(), key, sha256.Sum256([]byte(c.r.URL.RequestURI()+"\x00"+string(c.data))))
	if err != nil {
		return nil, err
	}
	if first {
		defer m.end(p)
		// the client may leave and send the call again: then it gets this answer, and stores are asked once
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), callTime)
		defer cancel()
		c.r = c.r.WithContext(ctx)
		p.reply, p.err = do()
		return p.reply, p.err
	}
	select {
	case <-p.done:
		return p.reply, p.err
	case <-c.r.Context().Done():
		return nil, c.r.Context().Err()
	}
}

// begin returns the call with a key, and whether it is a new one.
func (m *replays) begin(caller, key string, sum [sha256.Size]byte) (p *replay, first bool, err error) {
	key = caller + "\x00" + key
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if p := m.byKey[key]; p != nil {
		if p.sum != sum {
			return nil, false, &problem{Status: http.StatusUnprocessableEntity, Field: "Idempotency-Key", Detail: "another call had this key within the last minute", Fix: "send a new key with each new call"}
		}
		return p, false, nil
	}
	if !m.room(caller) {
		return nil, false, &problem{Status: http.StatusServiceUnavailable, Detail: "too many calls with an Idempotency-Key are remembered: nothing is charged", Fix: "retry later, or send fewer of them"}
	}
	p = &replay{key: key, caller: caller, sum: sum, done: make(chan struct{}), until: m.now().Add(rememberFor)}
	m.add(p)
	return p, true, nil
}

// end gives the answer to callers that wait with the same key. A call that failed has charged
// nothing, so it may be sent again.
func (m *replays) end(p *replay) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.reply != nil {
		m.grow(p, len(p.reply.body))
	} else {
		m.remove(p)       // an error may be as long as the body that caused it
		if p.err == nil { // a call that panicked
			p.err = errors.New("the call did not end")
		}
	}
	close(p.done)
}

// expire removes calls older than a minute. The lock is held.
func (m *replays) expire() {
	now := m.now()
	for e := m.order.Front(); e != nil; e = m.order.Front() {
		p := e.Value.(*replay)
		if now.Before(p.until) || !p.answered() {
			return
		}
		m.remove(p)
	}
}

func (m *replays) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
}
