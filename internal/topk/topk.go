// Package topk finds the heaviest keys of a stream in bounded memory.
package topk

import (
	"cmp"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
)

// Most is the largest number of counters a sketch can be asked for.
const Most = 1 << 20

// mostStripes bounds the memory: each stripe has as many counters as the sketch was asked for.
const mostStripes = 16

// A Sketch counts the keys of a weighted stream with the Space-Saving algorithm (Metwally, Agrawal,
// El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, ICDT 2005). A
// key without a counter takes over the smallest one, whose count becomes the error of the new key.
//
// Keys are spread by their hash over stripes, each with a lock and m counters of its own. Of the
// keys of a stripe, whose weights add up to t, no error is larger than t/m, and each key with more
// than t/m has a counter. As t is at most the total of all, the same holds for the whole sketch and
// the total, however the keys fall on the stripes.
//
// All methods are safe for concurrent use. Add takes one lock, for O(log m), and allocates nothing
// once the counters are in use. A counter takes some 50 bytes and the key; none is made before it
// is needed.
type Sketch[K comparable] struct {
	shift   uint8 // hash >> shift is the number of the stripe
	stripes []stripe[K]
}

// A stripe is the counters of some of the keys. It has a heap of its own rather than an
// internal/heap.Heap: as all counters are in one slice, an entry is an index of 4 bytes, not 24.
type stripe[K comparable] struct {
	mu       sync.Mutex
	most     int
	counters []counter[K]
	order    []int32 // the counters as a heap: the smallest is the first
	// a hash table from keys to counters, with linear probing, at most half full: an entry is the
	// index of a counter plus 1, and 0 is an empty entry
	index []int32
	_     [64]byte
}

type counter[K comparable] struct {
	Counted[K]
	hash  uint64
	place int32 // in order
}

// Counted is a key and its count, which is at most Count and at least Count-Error.
type Counted[K comparable] struct {
	Key          K
	Count, Error uint64
}

// New returns a sketch with m counters, from 1 to Most, in each stripe. There is one stripe per
// core, at most 16.
func New[K comparable](counters int) *Sketch[K] {
	return striped[K](counters, bits.Len(uint(min(runtime.GOMAXPROCS(0), mostStripes))-1))
}

// NewSerial returns a sketch with one stripe, for one goroutine: what it finds does not depend on
// the hashes.
func NewSerial[K comparable](counters int) *Sketch[K] { return striped[K](counters, 0) }

func striped[K comparable](counters, log int) *Sketch[K] {
	s := &Sketch[K]{shift: uint8(64 - log), stripes: make([]stripe[K], 1<<log)}
	for i := range s.stripes {
		s.stripes[i].most = counters
	}
	return s
}

// Add counts a weight for a key, found by its hash: equal keys have equal ones. A count that would
// not fit stays at the largest that does.
func (s *Sketch[K]) Add(key K, hash, weight uint64) {
	p := &s.stripes[hash>>s.shift]
	p.mu.Lock()
	if !p.add(key, hash, weight) {
		p.enter(key, hash, weight)
	}
	p.mu.Unlock()
}

// AddKnown is Add for a key that has a counter; for any other key it reports false. It keeps no
// reference to the key. So a caller whose key is in a buffer copies it only if it has to call Add
// afterwards.
func (s *Sketch[K]) AddKnown(key K, hash, weight uint64) bool {
	p := &s.stripes[hash>>s.shift]
	p.mu.Lock()
	ok := p.add(key, hash, weight)
	p.mu.Unlock()
	return ok
}

// add counts for a key that has a counter.
func (p *stripe[K]) add(key K, hash, weight uint64) bool {
	i := p.find(key, hash)
	if i < 0 {
		return false
	}
	c := &p.counters[i]
	c.Count = plus(c.Count, weight)
	p.sink(c.place)
	return true
}

// enter gives a key a counter: a new one, or the smallest.
func (p *stripe[K]) enter(key K, hash, weight uint64) {
	if n := len(p.counters); n < p.most {
		p.counters = append(p.counters, counter[K]{Counted[K]{key, weight, 0}, hash, int32(n)})
		p.order = append(p.order, int32(n))
		if 2*(n+1) > len(p.index) {
			p.spread(max(4*(n+1), 16))
		} else {
			p.insert(int32(n))
		}
		p.rise(int32(n))
		return
	}
	i := p.order[0]
	c := &p.counters[i]
	p.remove(i)
	c.Key, c.hash, c.Error, c.Count = key, hash, c.Count, plus(c.Count, weight)
	p.insert(i)
	p.sink(0)
}

// find returns the index of a key's counter, or a number below 0.
func (p *stripe[K]) find(key K, hash uint64) int32 {
	if len(p.index) == 0 {
		return -1
	}
	for at := p.home(hash); ; at = p.next(at) {
		i := p.index[at] - 1
		if i < 0 || p.counters[i].hash == hash && p.counters[i].Key == key {
			return i
		}
	}
}

func (p *stripe[K]) home(hash uint64) int { return int(hash & uint64(len(p.index)-1)) }
func (p *stripe[K]) next(at int) int      { return (at + 1) & (len(p.index) - 1) }

// insert adds a counter to the index.
func (p *stripe[K]) insert(i int32) {
	at := p.home(p.counters[i].hash)
	for p.index[at] != 0 {
		at = p.next(at)
	}
	p.index[at] = i + 1
}

// remove removes a counter from the index, and closes the gap in the probe sequence behind it.
func (p *stripe[K]) remove(i int32) {
	gap := p.home(p.counters[i].hash)
	for p.index[gap] != i+1 {
		gap = p.next(gap)
	}
	mask := len(p.index) - 1
	for at := p.next(gap); p.index[at] != 0; at = p.next(at) {
		if home := p.home(p.counters[p.index[at]-1].hash); (at-home)&mask >= (at-gap)&mask {
			p.index[gap], gap = p.index[at], at
		}
	}
	p.index[gap] = 0
}

// spread rebuilds a larger index.
func (p *stripe[K]) spread(least int) {
	p.index = make([]int32, 1<<bits.Len(uint(least-1)))
	for i := range p.counters {
		p.insert(int32(i))
	}
}

// sink moves a counter that has grown to its place in the heap.
func (p *stripe[K]) sink(at int32) {
	n := int32(len(p.order))
	i := p.order[at]
	for {
		child := 2*at + 1
		if child >= n {
			break
		}
		if right := child + 1; right < n && p.count(right) < p.count(child) {
			child = right
		}
		if p.counters[i].Count <= p.count(child) {
			break
		}
		p.put(at, p.order[child])
		at = child
	}
	p.put(at, i)
}

// rise moves a new counter to its place in the heap.
func (p *stripe[K]) rise(at int32) {
	i := p.order[at]
	for at > 0 {
		parent := (at - 1) / 2
		if p.count(parent) <= p.counters[i].Count {
			break
		}
		p.put(at, p.order[parent])
		at = parent
	}
	p.put(at, i)
}

func (p *stripe[K]) count(at int32) uint64 { return p.counters[p.order[at]].Count }

func (p *stripe[K]) put(at, i int32) { p.order[at], p.counters[i].place = i, at }

// Heaviest returns at most n keys, those with the largest counts first, and of equal ones those
// with the smallest error. It takes one lock after the other, so concurrent Adds may or may not be
// included.
func (s *Sketch[K]) Heaviest(n int) []Counted[K] {
	if n <= 0 {
		return nil
	}
	var all []Counted[K]
	for i := range s.stripes {
		p := &s.stripes[i]
		p.mu.Lock()
		for j := range p.counters {
			all = append(all, p.counters[j].Counted)
		}
		p.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Counted[K]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error))
	})
	return slices.Clip(all[:min(n, len(all))])
}

// Reset clears all counts and keys, and keeps the memory of the counters.
func (s *Sketch[K]) Reset() {
	for i := range s.stripes {
		p := &s.stripes[i]
		p.mu.Lock()
		clear(p.counters)
		clear(p.index)
		p.counters, p.order = p.counters[:0], p.order[:0]
		p.mu.Unlock()
	}
}

// plus is a+b, or the largest number.
func plus(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}
