package weirkv

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/rules"
)

// The first bytes of a value. A later format has another version, and nodes that do not know it leave such
// values alone.
const (
	magic         = "wk"
	formatVersion = 1
)

// Bounds of what a value holds.
const (
	mostNodes    = 256                       // that wrote it last
	nodeFor      = int64(time.Minute / unit) // since a node's last write; longer than any call is repeated
	mostAging    = nodeFor / 8               // of the nodes in one write
	mostBrief    = 32                        // charges that may be given back, and mostly are not
	briefFor     = int64(10 * time.Second / unit)
	mostOnce     = 128 // settlements with a Once; older ones have keys of their own
	mostVersions = 2
	mostSerial   = math.MaxInt64 // of reservations: one in each nanosecond of 292 years
)

// errForeign is about a value that is not ours.
var errForeign = errors.New("the key holds another value, which is left alone: set another prefix")

// An entry is what the value of a key says: the states of the limit, and what makes repeated writes
// harmless.
type entry struct {
	clock    keyClock
	nodes    []node         // that wrote the key last, the latest first
	serial   outstanding.ID // of the latest reservation
	brief    []brief        // oldest first
	once     []settlement   // that were carried out last, oldest first
	movedFor int64          // until when settlements that have keys of their own may count; 0: there are none
	versions []*version     // that of the current call first
	third    bool           // the current call has a third version: both others decide
	inexact  uint64         // reservations since the entry was read that may give back less

	endsBrief bool         // brief charges are forgotten
	keepsOnce int          // how many settlements stay in the value
	moves     []settlement // that get keys of their own before the value is written
}

// A node has written the key.
type node struct {
	id     uint64
	write  uint64 // the number of its latest write
	at     int64  // when that was, by the key's clock; later if the clock has jumped since
	behind int64  // how far its clock is behind the key's
}

// A version is a version of the limit with its state.
type version struct {
	limit      *compiled
	began      uint64 // a random number: a receipt of another state gives nothing back
	used, ends int64  // when it last admitted, and when all of that has come back
	state      []int64
	memory     *rules.Memory // nil while nothing is outstanding
	budget     *budget
}

// A brief charge may be given back for a while. It is remembered so that giving it back is exact.
type brief struct {
	id    outstanding.ID
	at    int64
	parts []part
}

// A part is what one version was charged.
type part struct {
	began  uint64
	amount int64
	ticket []byte // a rules.Receipt
}

// budget is the memory of a state for what is outstanding.
type budget struct {
	all, left int
	open      bool // while a state is read: what was written within it has room
}

func newBudget(bytes int) *budget { return &budget{all: bytes, left: bytes} }

// Take implements outstanding.Budget.
func (b *budget) Take(n int) bool {
	if !b.open && n > b.left {
		return false
	}
	b.left -= n
	return true
}

// Return implements outstanding.Budget.
func (b *budget) Return(n int) { b.left += n }

// value is what the key is written as.
func (e *entry) value() []byte {
	b := append([]byte(magic), formatVersion)
	b = packed.Int(b, e.clock.last)
	b = packed.Uint(b, uint64(len(e.nodes)))
	for _, n := range e.nodes {
		b = packed.Uint(packed.Uint(b, n.id), n.write)
		b = packed.Int(packed.Int(b, e.clock.last-n.at), n.behind)
	}
	b = packed.Uint(b, uint64(e.serial))
	b = packed.Uint(b, uint64(len(e.brief)))
	for _, r := range e.brief {
		b = packed.Int(packed.Uint(b, uint64(r.id)), r.at)
		b = appendParts(b, r.parts)
	}
	b = packed.Uint(b, uint64(len(e.once)))
	for _, o := range e.once {
		b = packed.Int(packed.Uint(b, o.id), o.until)
	}
	b = packed.Int(b, e.movedFor)
	b = packed.Uint(b, uint64(len(e.versions)))
	for _, v := range e.versions {
		b = packed.Bytes(b, v.limit.text)
		b = packed.Uint(b, v.began)
		b = packed.Int(packed.Int(b, v.used), v.ends)
		b = packed.Ints(b, v.state)
		if b = packed.Bool(b, v.memory != nil); v.memory != nil {
			b = v.memory.Append(b)
		}
	}
	return b
}

func appendParts(b []byte, parts []part) []byte {
	b = packed.Uint(b, uint64(len(parts)))
	for _, p := range parts {
		b = packed.Int(packed.Uint(b, p.began), p.amount)
		b = packed.Bytes(b, p.ticket)
	}
	return b
}

func readParts(r *packed.Reader) []part {
	parts := make([]part, r.Count(mostVersions))
	for i := range parts {
		parts[i] = part{r.Uint(), r.Int(), slices.Clone(r.Bytes())}
		if parts[i].amount < 0 {
			r.Fail()
		}
	}
	return parts
}

// read returns the entry of a value. An empty value is that of a key that does not exist.
func (s *limits) readEntry(value []byte, remember int) (*entry, error) {
	e := new(entry)
	switch {
	case len(value) == 0:
		return e, nil
	case len(value) <= len(magic) || string(value[:len(magic)]) != magic:
		return nil, errForeign
	case value[len(magic)] == plainVersion:
		return s.readPlain(value, remember)
	case value[len(magic)] != formatVersion:
		return nil, fmt.Errorf("the key holds a state of format %d, and this version of weir knows the formats %d and %d", value[len(magic)], formatVersion, plainVersion)
	}
	r := packed.NewReader(value[len(magic)+1:])
	e.clock.last = r.Int()
	e.nodes = make([]node, r.Count(mostNodes))
	for i := range e.nodes {
		e.nodes[i] = node{r.Uint(), r.Uint(), e.clock.last - r.Int(), r.Int()}
	}
	if e.serial = outstanding.ID(r.Uint()); e.serial > mostSerial {
		r.Fail() // the IDs of later reservations would begin again
	}
	e.brief = make([]brief, r.Count(1<<16))
	for i := range e.brief {
		e.brief[i] = brief{outstanding.ID(r.Uint()), r.Int(), readParts(r)}
	}
	e.once = make([]settlement, r.Count(mostOnce+mostTogether))
	for i := range e.once {
		e.once[i] = settlement{r.Uint(), r.Int(), true}
	}
	e.movedFor = r.Int()
	for range r.Count(mostVersions) {
		v, err := s.readVersion(r, e.serial, remember)
		if err != nil {
			return nil, err
		}
		e.versions = append(e.versions, v)
	}
	if r.End() != nil || len(e.versions) == 2 && e.versions[0].limit.is(e.versions[1].limit) {
		return nil, fmt.Errorf("the state of the key: %w", packed.ErrMalformed)
	}
	return e, nil
}

func (s *limits) readVersion(r *packed.Reader, newest outstanding.ID, remember int) (*version, error) {
	text := r.Bytes()
	if r.Err() != nil {
		return nil, fmt.Errorf("the state of the key: %w", r.Err())
	}
	limit, err := s.read(text)
	if err != nil {
		return nil, err
	}
	v := &version{limit: limit, began: r.Uint(), used: r.Int(), ends: r.Int(), budget: newBudget(remember)}
	v.budget.open = true
	if v.state = r.Ints(rules.MaxStateWords); !limit.rule.Valid(v.state) {
		r.Fail()
	}
	if r.Bool() {
		v.memory = rules.ReadMemory(r, limit.rule, newest, v.budget)
	}
	v.budget.open = false
	if r.Err() != nil {
		return nil, fmt.Errorf("the state of the key: %w", r.Err())
	}
	return v, nil
}

// valid reports whether the states can be written: a receipt may have said anything.
func (e *entry) valid() bool {
	return e.serial <= mostSerial && !slices.ContainsFunc(e.versions, func(v *version) bool { return !v.limit.rule.Valid(v.state) })
}

// written notes a write of a node, and drops what is too old to matter.
func (e *entry) written(id, write uint64, now int64) {
	behind := e.behind(id)
	e.advance(now)
	e.nodes = slices.DeleteFunc(e.nodes, func(n node) bool { return n.id == id || e.clock.last-n.at > nodeFor || e.clock.last < n.at })
	e.nodes = slices.Insert(e.nodes, 0, node{id, write, e.clock.last, behind})
	e.nodes = e.nodes[:min(len(e.nodes), mostNodes)]
	for e.endsBrief && len(e.brief) > 0 && (len(e.brief) > mostBrief || now-e.brief[0].at > briefFor) {
		e.endBrief(e.brief[0])
		e.brief = e.brief[1:]
	}
	e.dropOnce(now)
	for _, v := range e.versions {
		v.ends = v.endOf(now)
		v.releaseMemory(e)
	}
	if len(e.versions) == mostVersions && !e.third && e.versions[1].ends <= now {
		e.versions = e.versions[:1]
	}
}

// advance moves the key's clock on. The nodes age by little in one write: if a wrong clock moves the key's by
// minutes, a write of another node whose reply was lost is still recognised.
func (e *entry) advance(now int64) {
	by := max(now-e.clock.last, 0)
	e.clock.last = max(e.clock.last, now)
	for i := range e.nodes {
		e.nodes[i].at += max(by-mostAging, 0)
	}
}

// wrote reports whether a write of a node is in the value, as its latest.
func (e *entry) wrote(id, write uint64) bool {
	return slices.ContainsFunc(e.nodes, func(n node) bool { return n.id == id && n.write == write })
}

const day = 24 * time.Hour

// leastTTL is how long a value is kept at least: a repeated write is recognised by it.
const leastTTL = 10 * time.Second

// ttl is how long the value is needed after now.
func (e *entry) ttl(now int64, grace time.Duration) time.Duration {
	needed := int64(0)
	for _, v := range e.versions {
		needed = max(needed, v.ends-min(now, v.ends))
		if !v.limit.fades {
			needed = max(needed, int64(day/unit)) // it never becomes idle: it starts over after a day without calls
		}
	}
	for _, n := range e.nodes {
		needed = max(needed, min(n.behind, int64(day/unit)))
	}
	for _, o := range e.once {
		needed = max(needed, remembered(o.until, now))
	}
	needed = max(needed, remembered(e.movedFor, now))
	needed = min(needed, int64((rules.MaxSpan+day)/unit))
	return max(time.Duration(needed)*unit+grace, leastTTL)
}

// endOf is when the state is idle again.
func (v *version) endOf(now int64) int64 {
	_, reset := v.limit.rule.Look(rules.Contacted(v.limit.rule, v.state, now), now, 0)
	return now + min(max(reset, 0), math.MaxInt64-max(now, 0))
}

// releaseMemory drops the memory once nothing is outstanding.
func (v *version) releaseMemory(e *entry) {
	if v.memory == nil {
		return
	}
	e.inexact += v.memory.TakeInexact()
	if v.memory.Empty() {
		v.memory, v.budget = nil, newBudget(v.budget.all)
	}
}
