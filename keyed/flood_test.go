package keyed_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/rules"
	"github.com/weirflow/weir/keyed"
)

// floodLimits has limits with a capacity of 5 of every algorithm, and of All.
func floodLimits() map[string]weir.Limit {
	const n, span = 5, time.Minute
	limits := map[string]weir.Limit{
		"all": weir.All(weir.SlidingLog{Limit: n, Window: span},
			weir.TokenBucket{Rate: weir.PerSecond(n), Burst: n}),
		"all, first windows": weir.All(weir.FixedWindow{Limit: n, Window: span, Align: weir.AlignFirst},
			weir.SlidingCounter{Limit: 2 * n, Window: 2 * span}),
	}
	for _, l := range weir.Algorithms() {
		if kind := rules.KindOf(l); kind.NoRule == "" {
			limits[kind.Name] = floodLimit(l, kind, n, span)
		}
	}
	limits["leaky_bucket"] = weir.LeakyBucket{Rate: weir.PerMinute(n), Queue: n - 1, DelayAfter: n - 1}
	limits["sliding_window"] = weir.SlidingWindow{Limit: n, Window: span, Slots: 60}
	limits["nginx_bucket"] = weir.NginxBucket{Rate: weir.PerMinute(n), Queue: n - 1}
	return limits
}

// floodLimit sets the parameters that an algorithm requires.
func floodLimit(l weir.Limit, kind *rules.Kind, n int64, span time.Duration) weir.Limit {
	p := reflect.New(reflect.TypeOf(l)).Elem()
	for i, f := range kind.Fields {
		if !f.Required {
			continue
		}
		switch f.Type {
		case rules.RateField:
			p.Field(i).Set(reflect.ValueOf(weir.PerMinute(n)))
		case rules.CountField:
			p.Field(i).SetInt(n)
		case rules.DurationField:
			p.Field(i).SetInt(int64(span))
		}
	}
	return p.Interface().(weir.Limit)
}

// TestAFloodKeepsRefusedKeys: new keys with one request each arrive until a refused key would be
// admitted again. They evict each other, and not that key.
func TestAFloodKeepsRefusedKeys(t *testing.T) {
	raced.Skip(t)
	for name, l := range floodLimits() {
		for _, most := range []int{40, 1000} {
			t.Run(fmt.Sprint(name, "/", most), func(t *testing.T) { flood(t, l, most) })
		}
	}
}

func flood(t *testing.T, l weir.Limit, most int) {
	draw := rand.New(rand.NewPCG(19, uint64(most)))
	k, c := onClock[int](t, l, keyed.Options{MaxKeys: most})
	defer k.Close()
	c.Set(int64(time.Hour + 7*time.Second))
	until := map[int]int64{} // when each refused key may be admitted again
	for key := -1; key >= -most/10; key-- {
		if debt(l) { // a request is never refused for its size
			k.Take(key, 20)
		}
		for k.Allow(key) {
		}
		c.Set(c.Now() + draw.Int64N(int64(5*ms)))
	}
	for key := -1; key >= -most/10; key-- {
		if d := k.Peek(key, 1); !d.Allowed {
			until[key] = c.Now() + int64(d.RetryAfter)
		}
	}
	if len(until) == 0 {
		t.Fatal("no key is refused")
	}
	for visitor := range 4 * most {
		c.Set(c.Now() + draw.Int64N(int64(3*ms)))
		k.Take(visitor, 1)
		if visitor%(most/20) == 0 {
			for key, at := range until {
				if c.Now() < at && k.Allow(key) {
					t.Fatalf("key %d was admitted %v early, after %d new keys: %+v", key, time.Duration(at-c.Now()), visitor+1, k.Stats())
				}
			}
		}
	}
	if k.Stats().EvictedFull == 0 {
		t.Error("nothing was evicted: no flood")
	}
}

func debt(l weir.Limit) bool {
	switch l.(type) {
	case weir.SmoothBursty, weir.WarmUp:
		return true
	}
	return false
}

// TestAFloodKeepsTheMoreUsed: of keys that admit a request, those that have used more are not
// evicted, so their larger costs stay refused.
func TestAFloodKeepsTheMoreUsed(t *testing.T) {
	for name, l := range floodLimits() {
		if debt(l) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			k, c := onClock[int](t, l, keyed.Options{MaxKeys: 200})
			defer k.Close()
			c.Set(int64(time.Hour))
			k.Take(-1, 3)
			for visitor := range 2000 {
				c.Set(c.Now() + 1000)
				k.Take(visitor, 1)
			}
			if d := k.Peek(-1, 5); d.Allowed {
				t.Errorf("%+v, %+v", d, k.Stats())
			}
		})
	}
}

// TestAFloodLeavesTimeToBeLimited: the table is full of new keys. Some callers go on sending, with
// 20 new keys between two of their requests. They are limited, wherever their hashes put them.
func TestAFloodLeavesTimeToBeLimited(t *testing.T) {
	for name, l := range floodLimits() {
		if debt(l) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			k, c := onClock[int](t, l, keyed.Options{MaxKeys: 1000})
			defer k.Close()
			c.Set(int64(time.Hour))
			visitor := 0
			for ; visitor < 3000; visitor++ {
				k.Allow(visitor)
			}
			admitted := map[int]int{}
			for range 20 {
				for caller := -1; caller >= -20; caller-- {
					if k.Allow(caller) {
						admitted[caller]++
					}
				}
				for range 20 {
					k.Allow(visitor)
					visitor++
				}
				c.Set(c.Now() + 1000)
			}
			total := 0
			for _, n := range admitted {
				total += n
			}
			if total > 20*5*5/4 { // some are evicted once, when the clock hand comes to them
				t.Errorf("%d were admitted, of 100: %v", total, admitted)
			}
		})
	}
}

// TestFloodsFromManyGoroutines: the table grows, shrinks, changes its limit and evicts, all at the
// same time.
func TestFloodsFromManyGoroutines(t *testing.T) {
	limits := []weir.Limit{
		weir.SlidingLog{Limit: 5, Window: time.Minute},
		weir.FixedWindow{Limit: 5, Window: time.Minute},
		tenASecond,
		weir.SlidingCounter{Limit: 5, Window: time.Minute},
	}
	k, err := keyed.New[int](limits[2], keyed.Options{MaxKeys: 3000})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 5000 {
				key := g*1_000_000 + i
				if r, ok := k.Reserve(key, 1, -1); i%16 == 0 && ok {
					r.Cancel()
				}
				k.Take(key, int64(1+i%5))
				if i%1000 == 999 {
					if err := k.SetLimit(limits[(g+i/1000)%len(limits)]); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if n := k.Len(); n > 3000 {
		t.Errorf("%d keys", n)
	}
}
