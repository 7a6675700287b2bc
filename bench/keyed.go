package main

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
	weirkeyed "github.com/weirflow/weir/keyed"
)

const (
	hotKeys  = 100_000   // one of which is taken at random
	liveKeys = 1_000_000 // the memory of which is measured

	// A key gets a token a second, and owes so many from the start that none is back at its untouched state, and so let go, while it
	// is measured.
	keyBurst = 1_000_000_000
	keyOwes  = 1_000_000
)

// keyAlone is the reference of keyed: what making the key costs.
const keyAlone = "key"

// keyed measures one limit for each of many keys. It is for information: there is no target yet.
func keyed(r *report) error {
	for _, procs := range crews() {
		c, err := keyedContest(hotKeys, procs)
		if err != nil {
			return err
		}
		if err := r.contest(c); err != nil {
			return err
		}
	}
	return keyMemory(r)
}

// A keyTable holds a limit for each key.
type keyTable interface {
	// enter makes a key known, which owes keyOwes from then on.
	enter(key string)
	// loop takes one token of one of so many keys, at random.
	loop(keys int) loop
}

// Subjects of keyed.
const (
	weirTable     = "weir keyed"
	syncMapTable  = "sync.Map of x/time"
	mutexMapTable = "mutex+map of x/time"
)

// newKeyTable returns a table without keys.
func newKeyTable(subject string) (keyTable, error) {
	switch subject {
	case weirTable:
		l, err := weirkeyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: keyBurst}, weirkeyed.Options{})
		return weirKeys{l}, err
	case syncMapTable:
		return &syncMapKeys{}, nil
	case mutexMapTable:
		return &mutexMapKeys{limiters: map[string]*rate.Limiter{}}, nil
	}
	return nil, fmt.Errorf("there is no table %q", subject)
}

// keyedContest fills the tables once: all rounds work on the same.
func keyedContest(keys, procs int) (contest, error) {
	c := contest{
		title: fmt.Sprintf("Take on %d keys at random, %s", keys, where(procs)),
		notes: []string{
			"all keys are known before, all calls are admitted; each writes the text of its key into a buffer of the goroutine's",
			keyAlone + ": that alone, and no limiter",
		},
		procs:   procs,
		against: []string{keyAlone, syncMapTable, mutexMapTable},
		subjects: []subject{
			{keyAlone, func() loop { return keyLoop(keys) }, allYes, nil},
		},
	}
	for _, name := range []string{weirTable, syncMapTable, mutexMapTable} {
		t, err := newKeyTable(name)
		if err != nil {
			return contest{}, err
		}
		for i := range keys {
			t.enter(keyText(i))
		}
		c.subjects = append(c.subjects, subject{name, func() loop { return t.loop(keys) }, allYes, nil})
	}
	return c, nil
}

// weirKeys is Weir's own table.
type weirKeys struct{ l *weirkeyed.Limiter[string] }

func (t weirKeys) enter(key string) { t.l.Take(key, keyOwes) }

func (t weirKeys) loop(keys int) loop {
	return func(n int) (yes int) {
		k := newHotKey(keys)
		for range n {
			if t.l.Take(k.next(), 1).Allowed {
				yes++
			}
		}
		return yes
	}
}

// newKeyLimiter is the limiter of one key in the tables of x/time limiters, which never let a key go.
func newKeyLimiter() *rate.Limiter { return rate.NewLimiter(1, keyBurst) }

// syncMapKeys is what many write: a sync.Map of limiters.
type syncMapKeys struct{ limiters sync.Map }

// limiter finds the key's limiter, or makes it.
func (t *syncMapKeys) limiter(key string) *rate.Limiter {
	l, ok := t.limiters.Load(key)
	if !ok {
		l, _ = t.limiters.LoadOrStore(key, newKeyLimiter())
	}
	return l.(*rate.Limiter)
}

func (t *syncMapKeys) enter(key string) { t.limiter(key).AllowN(time.Now(), keyOwes) }

func (t *syncMapKeys) loop(keys int) loop {
	return func(n int) (yes int) {
		k := newHotKey(keys)
		for range n {
			if t.limiter(k.next()).Allow() {
				yes++
			}
		}
		return yes
	}
}

// mutexMapKeys is what the others write: a map of limiters under a mutex, which is not held while a limiter decides.
type mutexMapKeys struct {
	mu       sync.Mutex
	limiters map[string]*rate.Limiter
}

// limiter finds the key's limiter, or makes it.
func (t *mutexMapKeys) limiter(key string) *rate.Limiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.limiters[key]
	if l == nil {
		l = newKeyLimiter()
		t.limiters[key] = l
	}
	return l
}

func (t *mutexMapKeys) enter(key string) { t.limiter(key).AllowN(time.Now(), keyOwes) }

func (t *mutexMapKeys) loop(keys int) loop {
	return func(n int) (yes int) {
		k := newHotKey(keys)
		for range n {
			if t.limiter(k.next()).Allow() {
				yes++
			}
		}
		return yes
	}
}

// keyLoop makes keys and asks nobody.
//
//go:noinline
func keyLoop(keys int) loop {
	return func(n int) (yes int) {
		k := newHotKey(keys)
		for range n {
			if len(k.next()) == keyLen {
				yes++
			}
		}
		return yes
	}
}
