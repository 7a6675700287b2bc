package keyed

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// floodedLimits are limits of each way to find the least restricted key.
func floodedLimits() map[string]weir.Limit {
	bucket := weir.TokenBucket{Rate: weir.PerHour(1), Burst: 300}
	return map[string]weir.Limit{
		"TokenBucket":    bucket,
		"FixedWindow":    weir.FixedWindow{Limit: 3, Window: time.Hour},
		"SlidingCounter": weir.SlidingCounter{Limit: 3, Window: time.Hour},
		"All":            weir.All(bucket, weir.NginxBucket{Rate: weir.PerMinute(1), Queue: 300}),
	}
}

// arrayBytes returns how much memory the arrays and bounds of a table have.
func (k *Limiter[K]) arrayBytes() (bytes int64) {
	for s := range k.all {
		a := s.array
		bytes += int64(8*cap(a.slots) + cap(a.high) + cap(a.keys)*int(unsafe.Sizeof(*new(K))))
		for _, b := range []bounds{s.idle, s.ranks} {
			bytes += int64(8 * (cap(b.blocks) + cap(b.leasts)))
		}
		s.mu.Unlock()
	}
	return bytes
}

// TestArraysStayWithinMaxBytes: in a long flood of new keys, the arrays take the three quarters of MaxBytes that the
// documentation gives them. Those of segments that lost keys to others stayed large, and together took up to 1.26 times
// MaxBytes.
func TestArraysStayWithinMaxBytes(t *testing.T) {
	raced.Skip(t)
	for name, l := range floodedLimits() {
		for _, size := range []int64{leastBytes, 300 << 10, 1 << 20} {
			now := int64(time.Hour)
			k := with[int](t, l, Options{MaxBytes: size, Clock: func() int64 { return now }})
			rnd := rand.New(rand.NewPCG(seeds.Seed(), uint64(size)))
			most := int64(0)
			for i := range 20 * k.opts.MaxKeys {
				now += int64(time.Millisecond)
				k.Take(rnd.Int(), 1)
				if i%(k.opts.MaxKeys/4) == 0 {
					most = max(most, k.arrayBytes())
				}
			}
			if most > size*3/4 || most < size/2 {
				t.Errorf("%s: arrays take %.2f of %d bytes, for %d keys", name, float64(most)/float64(size), size, k.opts.MaxKeys)
			}
		}
	}
}

// TestNewKeysStayWhereverTheyAre: in a full table of keys that are equally little restricted, nearly all new keys stay for a
// quarter of as many evictions as there are keys, and hardly any for twice as many. Keys were evicted sooner the
// larger the array of their segment was.
func TestNewKeysStayWhereverTheyAre(t *testing.T) {
	raced.Skip(t)
	const keys, flood = 10_000, 200_000
	for name, l := range floodedLimits() {
		now := int64(time.Hour)
		k := with[int](t, l, Options{MaxKeys: keys, Clock: func() int64 { return now }})
		for i := range flood {
			now += 1000
			k.Take(i, 1)
		}
		fresh := k.Peek(-1, 1).Remaining
		// kept returns the share of the keys that stay, of those that came some evictions ago.
		kept := func(ago int) (share float64) {
			const sample = 1000
			for i := range sample {
				if k.Peek(flood-ago-i, 1).Remaining < fresh {
					share += 1. / sample
				}
			}
			return share
		}
		if soon, late := kept(keys/4), kept(2*keys); soon < 0.85 || late > 0.05 {
			t.Errorf("%s: %.2f stay for a quarter of as many evictions as there are keys, and %.3f for twice as many", name, soon, late)
		}
		for s := range k.all {
			if share := float64(s.count) / float64(s.array.capacity()); share < 0.5 {
				t.Errorf("%s: a segment is %.2f full", name, share)
			}
			for _, m := range s.mistakes(now) {
				t.Error(m)
			}
			s.mu.Unlock()
		}
	}
}

// TestARefusingKeyStaysWhileAnotherAdmits: of keys that all but one refuse, a new key replaces that one, though what is
// known of the others is from their first requests, when they admitted more. The search ended after 64 blocks.
func TestARefusingKeyStaysWhileAnotherAdmits(t *testing.T) {
	for _, keys := range []int{1000, 20_000} {
		now := int64(time.Hour)
		k := with[int](t, weir.TokenBucket{Rate: weir.PerMinute(3), Burst: 3}, Options{MaxKeys: keys, Clock: func() int64 { return now }})
		for i := range keys - 1 {
			now += 10
			for range 4 {
				k.Take(i, 1)
			}
		}
		k.Take(-1, 1)
		k.Take(-2, 1)
		for i := range keys - 1 {
			if k.Peek(i, 1).Allowed {
				t.Errorf("of %d keys, key %d, which refused, was evicted", keys, i)
			}
		}
		if s := k.Stats(); s.EvictedFull != 1 || k.Peek(-1, 3).Remaining != 3 {
			t.Errorf("%+v", s)
		}
	}
}
