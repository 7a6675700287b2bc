package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	weirkeyed "github.com/weirflow/weir/keyed"
)

const (
	wells     = 1000 // keys that are used again and again
	wellEvery = 10   // one of so many calls uses a well

	// The limit of all keys. A key of the flood is used once, and so is idle after a second. A well
	// has nothing left when the flood begins, and is used more often than it refills.
	floodRate  = 1 // tokens a second
	floodBurst = 10

	// flatMemory is how much the memory may grow after the first tenth of the flood, when the table
	// has long been full.
	flatMemory = 1.1

	tenths = 10
)

// keyFlood sends 100 times as many keys through a table as it keeps. It runs once, because it takes
// minutes.
func keyFlood(r *report) error {
	j := job{Kind: "flood", N: 100 * r.keys, Ceiling: r.keys}
	found, err := apart([]job{j}, 1)
	if err != nil {
		return err
	}
	for _, t := range floodTables(j, found[0]) {
		r.add(t)
	}
	return nil
}

// floodTables lays out what was found.
func floodTables(j job, v values) []table {
	progress := table{
		Title: fmt.Sprintf("%d keys, one after another, through a table that keeps %d", j.N, j.Ceiling),
		Notes: []string{
			"at each tenth of the keys: VmRSS in MB, as it is, without giving memory back; time of a call on the wall, all that the bench",
			"does beside it included; what Stats counts",
		},
		Columns: []column{{"VmRSS", 1}, {"/ 10 %", 3}, {"ns/call", 0}, {"keys", 0}, {"evicted idle", 0}, {"evicted full", 0}, {"refused", 0}},
	}
	for i := 1; i <= tenths; i++ {
		at := func(what string) float64 { return v.get(tenth(what, i)) }
		line := row{
			Name:   fmt.Sprintf("%3d %%", 10*i),
			Values: []float64{at("rss") / 1e6, at("rss") / v.get(tenth("rss", 1)), at("ns"), at("keys"), at("evicted idle"), at("evicted full"), at("refused")},
		}
		if i == tenths {
			line.Target, line.Missed = atMost(line.Values[1], flatMemory, "of that at 10 %")
		}
		progress.Rows = append(progress.Rows, line)
	}
	well := table{
		Title: fmt.Sprintf("%d well-known keys, one of which is used in each %dth call of the flood", wells, wellEvery),
		Notes: []string{
			fmt.Sprintf("all keys have %d/s with a burst of %d, which the well-known ones have used up before the flood begins", floodRate, floodBurst),
			"beyond: how many were admitted above burst + rate x time, rounded down, of each key; alone: how many answers differ, either way,",
			"from those of a limiter that has this key alone, and the same clock",
		},
		Columns: []column{{"calls", 0}, {"admitted", 0}, {"beyond", 0}, {"alone: more", 0}, {"alone: less", 0}},
		Rows:    []row{v.row("well-known keys", "calls", "admitted", "beyond", "more", "less")},
	}
	well.Rows[0].Target, well.Rows[0].Missed = atMost(v.get("beyond")+v.get("more"), 0, "admitted beyond")
	return []table{progress, well}
}

// tenth is the name of a figure at a tenth of the flood.
func tenth(what string, i int) string { return fmt.Sprintf("%s %d", what, i) }

// A well is a key that is used again and again, with a limiter of its own for comparison.
type well struct {
	alone    *weir.Limiter
	admitted int64
	first    int64 // when it was asked for first
	last     int64
}

// beyond returns how many tokens were admitted above the bound, from the first call to the last.
func (w *well) beyond() int64 {
	return max(0, w.admitted-(floodBurst+(w.last-w.first)*floodRate/int64(time.Second)))
}

// A flooding is the state of a running flood.
type flooding struct {
	l *weirkeyed.Limiter[string]
	// The clock of all limiters, read once for each call. The table's janitor reads it too.
	now   atomic.Int64
	start time.Time
	wells []well

	// calls for wells; decisions that admitted more or less than those of a limiter alone
	calls, more, less int
	v                 values
}

// newFlooding makes a table and the wells. The clock is the real one, read once for each call, so
// that limiters that must decide alike see the same time.
func newFlooding(keys int) (*flooding, error) {
	f := &flooding{start: time.Now(), wells: make([]well, wells), v: values{}}
	limit := weir.TokenBucket{Rate: weir.PerSecond(floodRate), Burst: floodBurst}
	for i := range f.wells {
		alone, err := weir.New(limit, weir.WithClock(f.now.Load))
		if err != nil {
			return nil, err
		}
		f.wells[i] = well{alone: alone, first: -1}
	}
	l, err := weirkeyed.New[string](limit, weirkeyed.Options{MaxKeys: keys, Clock: f.now.Load})
	f.l = l
	return f, err
}

// flood sends N keys through a table.
func flood(j job) (values, error) {
	f, err := newFlooding(j.Ceiling)
	if err != nil {
		return nil, err
	}
	defer f.l.Close()
	var w keyWriter
	for n := range f.wells { // they are limited before the flood begins
		for range floodBurst + 1 {
			f.now.Store(int64(time.Since(f.start)))
			f.take(&f.wells[n], w.key(n))
		}
	}
	calls, recorded, begin := 0, 0, time.Now()
	for i, done := 0, 0; i < j.N; {
		f.now.Store(int64(time.Since(f.start)))
		if calls++; calls%wellEvery == 0 {
			n := calls / wellEvery % wells
			f.take(&f.wells[n], w.key(n))
			continue
		}
		weirkeyed.TakeText(f.l, w.key(wells+i), 1)
		if i++; i == j.N*(done+1)/tenths {
			done++
			if err := f.record(done, time.Since(begin), calls-recorded); err != nil {
				return nil, err
			}
			recorded, begin = calls, time.Now()
		}
	}
	f.v["calls"], f.v["more"], f.v["less"] = float64(f.calls), float64(f.more), float64(f.less)
	f.v["beyond"] = 0
	for i := range f.wells {
		f.v["admitted"] += float64(f.wells[i].admitted)
		f.v["beyond"] += float64(f.wells[i].beyond())
	}
	return f.v, nil
}

// take takes a token of a well, and of the limiter beside it.
func (f *flooding) take(w *well, key []byte) {
	if w.last = f.now.Load(); w.first < 0 {
		w.first = w.last
	}
	got, want := weirkeyed.TakeText(f.l, key, 1).Allowed, w.alone.Allow()
	f.calls++
	switch {
	case got && !want:
		f.more++
	case !got && want:
		f.less++
	}
	if got {
		w.admitted++
	}
}

// record records the figures at a tenth of the flood.
func (f *flooding) record(i int, took time.Duration, calls int) error {
	rss, err := status("VmRSS")
	s := f.l.Stats()
	for what, n := range (values{
		"rss": rss, "ns": float64(took.Nanoseconds()) / float64(calls),
		"keys": float64(s.Keys), "evicted idle": float64(s.EvictedIdle), "evicted full": float64(s.EvictedFull), "refused": float64(s.Refused),
	}) {
		f.v[tenth(what, i)] = n
	}
	return err
}
