package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/weirflow/weir"
	weirkeyed "github.com/weirflow/weir/keyed"
)

const (
	batchSize = 64
	// batchTarget is the share of the time of single calls that a batch may take.
	batchTarget = 0.5

	singleCalls = "Take of each"
)

// keybatch measures many keys at once beside single calls.
func keybatch(r *report) error {
	table, err := newBatchTable(r.keys)
	if err != nil {
		return err
	}
	defer func() { _ = table.limiter.Close() }() // it has nothing to fail with
	for _, procs := range crews() {
		c := table.contest(batchSize, procs)
		c.title = fmt.Sprintf("batches of %d of %d keys at random, %s", batchSize, r.keys, where(procs))
		if err := r.contest(c); err != nil {
			return err
		}
	}
	return nil
}

// A batchTable is a table of keys, whose texts are strings that a caller has already.
type batchTable struct {
	limiter *weirkeyed.Limiter[string]
	names   []string
}

func newBatchTable(keys int) (*batchTable, error) {
	l, err := weirkeyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: keyBurst}, weirkeyed.Options{MaxKeys: ceiling(keys)})
	if err != nil {
		return nil, err
	}
	t := &batchTable{limiter: l, names: make([]string, keys)}
	var w keyWriter
	for i := range t.names {
		t.names[i] = string(w.key(i))
		l.Take(t.names[i], keyOwes)
	}
	return t, nil
}

func (t *batchTable) contest(size, procs int) contest {
	return contest{
		notes:   []string{"an operation is a decision about one key; the keys are strings, drawn at random in each line", keyAlone + ": drawing the keys alone"},
		procs:   procs,
		against: []string{keyAlone, singleCalls},
		large:   true,
		subjects: []subject{
			{keyAlone, func() loop { return t.loop(size, func([]string, []weir.Decision) {}) }, either, nil},
			{singleCalls, func() loop {
				return t.loop(size, func(keys []string, out []weir.Decision) {
					for i, key := range keys {
						out[i] = t.limiter.Take(key, 1)
					}
				})
			}, allYes, []target{{"", 0}}},
			{"TakeEach", func() loop {
				return t.loop(size, func(keys []string, out []weir.Decision) { t.limiter.TakeEach(keys, 1, out) })
			}, allYes, []target{{singleCalls, batchTarget}, {"", 0}}},
		},
	}
}

// loop draws keys, and has do decide about so many at a time.
func (t *batchTable) loop(size int, do func(keys []string, out []weir.Decision)) loop {
	return func(n int) (yes int) {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		keys, out := make([]string, size), make([]weir.Decision, size)
		for n > 0 {
			m := min(n, size)
			for i := range keys[:m] {
				keys[i] = t.names[rng.IntN(len(t.names))]
			}
			do(keys[:m], out[:m])
			for i := range out[:m] {
				if out[i].Allowed {
					yes++
				}
			}
			n -= m
		}
		return yes
	}
}
