package main

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// A key refills one token per second, and starts with so much debt that it does not become
	// idle, and so is not evicted, during the measurement.
	keyBurst = 1_000_000_000
	keyOwes  = 1_000_000

	// The numbers of keys have 8 digits. keyflood uses 100 times as many keys as -keys says.
	fewestKeys = 1000
	mostKeys   = 10_000_000
)

// keyAlone is the reference of keyed: the time to make the key's text.
const keyAlone = "key"

// keyFloor is the least that a limit for each key has to do: it reads the clock, and swaps a word in a line of memory
// that the key's hash selects, among as many lines as Weir's table has.
const keyFloor = "floor"

// The share of the fastest peer's time that Weir's table may take, with known keys and in a flood of new ones.
const (
	keyedTarget = 0.3
	floodTarget = 0.9
)

// ceiling returns the limit of keys for tables that have one: slightly more than the known keys.
func ceiling(keys int) int { return keys + keys/20 }

// keyed measures one limit for each of many keys. The flood comes last, because tables without a
// ceiling grow by it.
func keyed(r *report) error {
	s, err := newStable(r.keys)
	if err != nil {
		return err
	}
	defer s.close()
	sources := []struct {
		keys   string
		source *keySource
		notes  []string
	}{
		{"at random", &keySource{keys: r.keys}, []string{"all keys are known before, and each is used as often as any other"}},
		{"by zipf 1.0", newZipf(r.keys), []string{"all keys are known before; the k-th is used 1/k as often as the first"}},
		{"in a flood", &keySource{keys: r.keys, flood: true}, []string{
			"9 of 10 calls are for a key that was never seen, and 1 for a known one at random",
			fmt.Sprintf("weir, the LRU and otter keep %d keys, and are full from the start; the others grow all the time", ceiling(r.keys)),
		}},
	}
	for _, from := range sources {
		if from.source.flood {
			s.fill(from.source, 2*(ceiling(r.keys)-r.keys))
		}
		for _, procs := range crews() {
			c := s.contest(from.source, procs)
			c.title = fmt.Sprintf("Take on %d keys %s, %s", r.keys, from.keys, where(procs))
			c.notes = append(from.notes, c.notes...)
			if err := r.contest(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// A stable holds all tables, each with the same keys.
type stable struct {
	names  []string
	tables []keyTable
	floor  memoryFloor
}

// newStable fills all tables with the same keys.
func newStable(keys int) (*stable, error) {
	s := &stable{names: append([]string{weirTable}, peerTables...), floor: newMemoryFloor(keys)}
	for _, name := range s.names {
		t, err := newKeyTable(name, ceiling(keys))
		if err != nil {
			s.close()
			return nil, err
		}
		s.tables = append(s.tables, t)
		fillTable(t, keys)
	}
	return s, nil
}

// fillTable makes a number of keys known.
func fillTable(t keyTable, keys int) {
	var w keyWriter
	for i := range keys {
		t.enter(w.key(i))
	}
}

// fill makes calls on all tables without measuring them.
func (s *stable) fill(from *keySource, calls int) {
	for _, t := range s.tables {
		t.loop(from)(calls)
	}
}

func (s *stable) close() {
	for _, t := range s.tables {
		t.close()
	}
}

// contest measures all tables with keys from one source. All rounds use the same tables.
func (s *stable) contest(from *keySource, procs int) contest {
	beat := keyedTarget
	if from.flood {
		beat = floodTarget
	}
	c := contest{
		notes: []string{
			"all calls are admitted; each writes its key into a buffer of the goroutine's, and who needs a string gets a view of it, or, to keep it, a copy",
			keyAlone + ": that alone, and no limiter; " + keyFloor + ": its hash, a reading of the clock, and a compare-and-swap on memory that the hash selects",
		},
		procs:   procs,
		against: []string{keyFloor},
		rivals:  map[string][]string{weirTable: peerTables},
		beat:    beat,
		large:   true,
		subjects: []subject{
			{keyAlone, func() loop { return keyLoop(from) }, allYes, nil},
			{keyFloor, func() loop { return s.floor.loop(from) }, allYes, nil},
		},
	}
	for i, name := range s.names {
		var targets []target
		if name == weirTable {
			targets = []target{{"", 0}}
		}
		c.subjects = append(c.subjects, subject{name, func() loop { return s.tables[i].loop(from) }, allYes, targets})
	}
	return c
}

// keyLoop makes keys and calls no table.
//
//go:noinline
func keyLoop(s *keySource) loop {
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			if len(k.next()) == keyLen {
				yes++
			}
		}
		return yes
	}
}

// A memoryFloor is the memory that keyFloor writes to.
type memoryFloor struct {
	seed  maphash.Seed
	start time.Time
	lines [][8]atomic.Int64
}

// newMemoryFloor returns as many lines as Weir's table has, which is some three quarters full of four keys each.
func newMemoryFloor(keys int) memoryFloor {
	m := memoryFloor{maphash.MakeSeed(), time.Now(), make([][8]atomic.Int64, keys/3)}
	for i := range m.lines {
		m.lines[i][0].Store(1) // the first write to a page is slower than all others
	}
	return m
}

//go:noinline
func (m memoryFloor) loop(s *keySource) loop {
	return func(n int) (yes int) {
		k := s.start(n)
		for range n {
			line, _ := bits.Mul64(maphash.Bytes(m.seed, k.next()), uint64(len(m.lines)))
			word, now := &m.lines[line][0], int64(time.Since(m.start))
			word.CompareAndSwap(word.Load(), now)
			yes++
		}
		return yes
	}
}
