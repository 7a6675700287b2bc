package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/maypok86/otter/v2"
	store "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
	weirkeyed "github.com/weirflow/weir/keyed"
)

// A keyTable holds a limit for each key.
type keyTable interface {
	// enter makes a key known. If the table supports it, the key then has the debt keyOwes.
	enter(key []byte)
	// loop takes one token of each key, one after another.
	loop(*keySource) loop
	// close stops the table's background work.
	close()
}

// Tables of keys.
const (
	weirTable      = "weir keyed"
	sethvargoTable = "sethvargo/go-limiter, memorystore"
	throttledTable = "throttled, GCRA in its memstore"
	syncMapTable   = "sync.Map of x/time"
	mutexMapTable  = "mutex+map of x/time"
	lruTable       = "mutex+LRU of token buckets"
	otterTable     = "otter of x/time"
)

// peerTables are all but Weir's.
var peerTables = []string{sethvargoTable, throttledTable, syncMapTable, mutexMapTable, lruTable, otterTable}

// What stands in a buffer is looked up as it stands there wherever the table allows it, and copied
// only where it is kept.

// newKeyTable returns a table without keys. Those that have a ceiling get room for so many.
func newKeyTable(subject string, ceiling int) (keyTable, error) {
	switch subject {
	case weirTable:
		l, err := weirkeyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: keyBurst}, weirkeyed.Options{MaxKeys: ceiling})
		return weirKeys{l}, err
	case sethvargoTable:
		s, err := memorystore.New(&memorystore.Config{Tokens: keyBurst, Interval: long})
		return sethvargoKeys{s}, err
	case throttledTable:
		s, err := memstore.NewCtx(0)
		if err != nil {
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerSec(1), MaxBurst: keyBurst})
		return throttledKeys{l}, err
	case syncMapTable:
		return &syncMapKeys{}, nil
	case mutexMapTable:
		return &mutexMapKeys{limiters: map[string]*rate.Limiter{}}, nil
	case lruTable:
		l, err := simplelru.NewLRU[string, *tokens](ceiling, nil)
		return &lruKeys{buckets: l}, err
	case otterTable:
		c, err := otter.New(&otter.Options[string, *rate.Limiter]{MaximumSize: ceiling})
		return otterKeys{c}, err
	}
	return nil, fmt.Errorf("there is no table %q", subject)
}

// weirKeys is Weir's own table.
type weirKeys struct{ l *weirkeyed.Limiter[string] }

func (t weirKeys) enter(key []byte) { weirkeyed.TakeText(t.l, key, keyOwes) }

func (t weirKeys) close() { _ = t.l.Close() } // it has nothing to fail with

func (t weirKeys) loop(s *keySource) loop {
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if weirkeyed.TakeText(t.l, k.next(), 1).Allowed {
				yes++
			}
		}
		return yes
	}
}

// sethvargoKeys has no ceiling: it drops keys after hours without a call. It only takes one token
// at a time.
type sethvargoKeys struct{ s store.Store }

func (t sethvargoKeys) enter(key []byte) { _, _, _, _, _ = t.s.Take(context.Background(), string(key)) }

func (t sethvargoKeys) close() { _ = t.s.Close(context.Background()) }

func (t sethvargoKeys) loop(s *keySource) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if _, _, _, ok, err := t.s.Take(ctx, k.string()); ok && err == nil {
				yes++
			}
		}
		return yes
	}
}

// throttledKeys has no ceiling: with one, it would use an LRU instead of its map, which is slower.
// If two goroutines use one key at once, it may give up with an error, which counts as a decision.
type throttledKeys struct{ l *throttled.GCRARateLimiterCtx }

func (t throttledKeys) enter(key []byte) {
	_, _, _ = t.l.RateLimitCtx(context.Background(), string(key), keyOwes)
}

func (t throttledKeys) close() {}

func (t throttledKeys) loop(s *keySource) loop {
	ctx := context.Background()
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if limited, _, err := t.l.RateLimitCtx(ctx, k.string(), 1); !limited || err != nil {
				yes++
			}
		}
		return yes
	}
}

// newKeyLimiter is the limiter of one key in the tables of x/time limiters.
func newKeyLimiter() *rate.Limiter { return rate.NewLimiter(1, keyBurst) }

// syncMapKeys is a common solution: a sync.Map of limiters, which never drops a key.
type syncMapKeys struct{ limiters sync.Map }

// limiter finds the key's limiter, or makes it.
func (t *syncMapKeys) limiter(key string) *rate.Limiter {
	l, ok := t.limiters.Load(key)
	if !ok {
		l, _ = t.limiters.LoadOrStore(strings.Clone(key), newKeyLimiter())
	}
	return l.(*rate.Limiter)
}

func (t *syncMapKeys) enter(key []byte) { t.limiter(view(key)).AllowN(time.Now(), keyOwes) }

func (t *syncMapKeys) close() {}

func (t *syncMapKeys) loop(s *keySource) loop {
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if t.limiter(view(k.next())).Allow() {
				yes++
			}
		}
		return yes
	}
}

// mutexMapKeys is the other common solution: a map of limiters under a mutex, which is not held
// while a limiter decides.
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
		t.limiters[strings.Clone(key)] = l
	}
	return l
}

func (t *mutexMapKeys) enter(key []byte) { t.limiter(view(key)).AllowN(time.Now(), keyOwes) }

func (t *mutexMapKeys) close() {}

func (t *mutexMapKeys) loop(s *keySource) loop {
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if t.limiter(view(k.next())).Allow() {
				yes++
			}
		}
		return yes
	}
}

// tokens is a small bucket of whole tokens, of which one comes back each second.
type tokens struct {
	left int64
	last time.Time // when the last token came
}

// take takes n tokens, if there are as many.
func (b *tokens) take(now time.Time, n int64) bool {
	if back := int64(now.Sub(b.last) / time.Second); back > 0 {
		b.left = min(b.left+back, keyBurst)
		b.last = b.last.Add(time.Duration(back) * time.Second)
	}
	if b.left < n {
		return false
	}
	b.left -= n
	return true
}

// lruKeys is built like the limiter of tailscale.com: small buckets in an LRU, under one mutex. It
// evicts the least recently used key, limited or not.
type lruKeys struct {
	mu      sync.Mutex
	buckets *simplelru.LRU[string, *tokens]
}

// take takes n tokens of a key.
func (t *lruKeys) take(key string, n int64) bool {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.buckets.Get(key)
	if !ok {
		b = &tokens{keyBurst, now}
		t.buckets.Add(strings.Clone(key), b)
	}
	return b.take(now, n)
}

func (t *lruKeys) enter(key []byte) { t.take(view(key), keyOwes) }

func (t *lruKeys) close() {}

func (t *lruKeys) loop(s *keySource) loop {
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if t.take(view(k.next()), 1) {
				yes++
			}
		}
		return yes
	}
}

// otterKeys is a general cache of limiters. It evicts by how often a key was used, limited or not.
type otterKeys struct {
	c *otter.Cache[string, *rate.Limiter]
}

// limiter finds the key's limiter, or makes it.
func (t otterKeys) limiter(key string) *rate.Limiter {
	l, ok := t.c.GetIfPresent(key)
	if !ok {
		l, _ = t.c.SetIfAbsent(strings.Clone(key), newKeyLimiter())
	}
	return l
}

func (t otterKeys) enter(key []byte) { t.limiter(view(key)).AllowN(time.Now(), keyOwes) }

func (t otterKeys) close() { t.c.StopAllGoroutines() }

func (t otterKeys) loop(s *keySource) loop {
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if t.limiter(view(k.next())).Allow() {
				yes++
			}
		}
		return yes
	}
}
