package keyed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/topk"
	"github.com/weirflow/weir/keyed"
)

// TestTopCountsEveryVerb: an admission counts with its cost, a refusal with 1, and a Peek not at
// all.
func TestTopCountsEveryVerb(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 10}, keyed.Options{Top: 100, Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		buffer := []byte("text")
		keyed.TakeText(k, buffer, 7)
		keyed.TakeText(k, buffer, 7)
		copy(buffer, "xxxx") // the buffer belongs to the caller again

		k.Take("take", 9)
		k.Take("take", 9)
		k.Take("take", 0)
		k.Peek("take", 9)
		k.TakeAtMost("most", 30)
		k.TakeAtMost("most", 30)
		r, _ := k.Reserve("reserve", 8, 0)
		r.Cancel()
		k.Reserve("reserve", 11, 0)
		p, _ := k.Join("join", 6, -1)
		k.Join("join", 6, -1)
		k.Join("join", 60, -1)
		if p != nil {
			t.Error("joined a line that is not there")
		}
		if err := k.Wait(t.Context(), "wait", 5); err != nil {
			t.Error(err)
		}
		if err := k.Wait(t.Context(), "wait", 50); err == nil {
			t.Error("waited for what does not fit")
		}
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { k.Wait(gone, "wait", 10) })
		synctest.Wait()
		leave()
		wg.Wait()

		all, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 4}, keyed.Options{Name: "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		g, err := keyed.NewGroup(k, all)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the other limit refuses the second
			if _, err := g.Take([]keyed.Charge[string]{{Key: "group", Cost: 4}, {Cost: 4}}); err != nil {
				t.Error(err)
			}
		}

		heaviest := []keyed.Top[string]{{"join", 12, 0}, {"most", 10, 0}, {"take", 9, 0}, {"reserve", 8, 0}, {"text", 7, 0}, {"wait", 5, 0}, {"group", 4, 0}}
		if got := k.Heaviest(20); !slices.Equal(got, heaviest) {
			t.Errorf("%v, want %v", got, heaviest)
		}
		var limited []string
		for _, top := range k.MostLimited(20) {
			limited = append(limited, fmt.Sprint(top.Key, " ", top.Count))
		}
		slices.Sort(limited)
		if want := []string{"join 1", "most 1", "reserve 1", "take 1", "text 1", "wait 1"}; !slices.Equal(limited, want) {
			t.Errorf("%v, want %v", limited, want)
		}
		k.ResetTop()
		if len(k.Heaviest(9))+len(k.MostLimited(9)) != 0 || k.Len() == 0 {
			t.Error("a reset")
		}
	})
}

func TestTopOptions(t *testing.T) {
	for _, top := range []int{-1, topk.Most + 1} {
		if _, err := keyed.New[int](tenASecond, keyed.Options{Top: top}); err == nil {
			t.Errorf("%d counters were accepted", top)
		}
	}
	k, _ := onClock[int](t, tenASecond, keyed.Options{})
	k.Take(1, 1)
	k.ResetTop()
	if k.Heaviest(1) != nil || k.MostLimited(1) != nil {
		t.Error("something was counted")
	}
	a, _ := onClock[any](t, tenASecond, keyed.Options{Top: 1})
	a.Take([]int{1}, 1)
	if len(a.MostLimited(1)) != 0 {
		t.Error("what is no key is listed")
	}
}

// TestTopBesideExactCounts compares sketches with exact counts: from several goroutines, with keys
// whose states come and go, most of them seen once.
func TestTopBesideExactCounts(t *testing.T) {
	const counters, workers, each = 100, 4, 5000
	k, _ := onClock[uint64](t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 50}, keyed.Options{Top: counters, MaxKeys: 64})
	var mu sync.Mutex
	admitted, refused := map[uint64]uint64{}, map[uint64]uint64{}
	var costs, refusals uint64
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(w, 7))
			z := rand.NewZipf(r, 1.2, 1, 1<<30)
			for i := range uint64(each) {
				key, cost := z.Uint64(), r.Int64N(5)
				if i%3 == 0 {
					key = 1<<40 + i*workers + w // a flood at the same time
				}
				d := k.Take(key, cost)
				mu.Lock()
				if d.Allowed {
					admitted[key] += uint64(cost)
					costs += uint64(cost)
				} else {
					refused[key]++
					refusals++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for name, c := range map[string]struct {
		got   []keyed.Top[uint64]
		want  map[uint64]uint64
		total uint64
	}{"heaviest": {k.Heaviest(1 << 20), admitted, costs}, "most limited": {k.MostLimited(1 << 20), refused, refusals}} {
		listed := map[uint64]bool{}
		for _, top := range c.got {
			truth := c.want[top.Key]
			if listed[top.Key] = true; truth > top.Count || truth < top.Count-top.Error || top.Error > c.total/counters {
				t.Errorf("%s: %+v of %d", name, top, truth)
			}
		}
		for key, n := range c.want {
			if n > c.total/counters && !listed[key] {
				t.Errorf("%s: %d, with %d of %d, is not listed", name, key, n, c.total)
			}
		}
		if len(c.got) == 0 {
			t.Errorf("%s: none", name)
		}
	}
}

// TestTopAllocatesNothing: once its counters are in use. A key in a buffer is copied only when it
// takes over a counter.
func TestTopAllocatesNothing(t *testing.T) {
	k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1000}, keyed.Options{Top: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	if n := testing.AllocsPerRun(3000, func() {
		var buffer [8]byte // it must not escape to the heap
		keyed.TakeText(k, append(buffer[:0], 'a'), 1)
	}); n != 0 {
		t.Errorf("TakeText: %v allocations", n)
	}
	if n := testing.AllocsPerRun(3000, func() { k.Take("a", 1) }); n != 0 {
		t.Errorf("Take: %v allocations", n)
	}
}

// FuzzTop: each input byte is a key and a cost.
func FuzzTop(f *testing.F) {
	f.Add([]byte("some keys, some of them more than once"), uint8(3))
	f.Fuzz(func(t *testing.T, in []byte, counters uint8) {
		top := int(counters%20) + 1
		k, _ := onClock[byte](t, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 8}, keyed.Options{Top: top, MaxKeys: 5})
		admitted := map[byte]uint64{}
		total := uint64(0)
		for _, b := range in {
			if cost := int64(b >> 6); k.Take(b&63, cost).Allowed {
				admitted[b&63] += uint64(cost)
				total += uint64(cost)
			}
		}
		listed := map[byte]bool{}
		for _, c := range k.Heaviest(1000) {
			if truth := admitted[c.Key]; truth > c.Count || truth < c.Count-c.Error || c.Error > total/uint64(top) {
				t.Fatalf("%+v of %d", c, truth)
			}
			listed[c.Key] = true
		}
		for key, n := range admitted {
			if n > total/uint64(top) && !listed[key] {
				t.Fatalf("%d, with %d of %d, is not listed", key, n, total)
			}
		}
	})
}

// The keys that are admitted and refused most, of more keys than labels of a metric could have.
func ExampleLimiter_Heaviest() {
	k, _ := keyed.New[string](weir.FixedWindow{Limit: 3, Window: time.Hour}, keyed.Options{Top: 1000})
	defer k.Close()
	for i, client := range []string{"ann", "bob", "ann", "cid", "ann", "bob", "ann", "ann"} {
		k.Take(client, 1)
		k.Take(fmt.Sprint("passer-by ", i), 1)
	}
	fmt.Println(k.Heaviest(2))
	fmt.Println(k.MostLimited(2))
	// Output:
	// [{ann 3 0} {bob 2 0}]
	// [{ann 2 0}]
}
