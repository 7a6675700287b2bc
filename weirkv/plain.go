package weirkv

import (
	"encoding/binary"
	"fmt"

	"github.com/weirflow/weir/internal/outstanding"
	"github.com/weirflow/weir/internal/packed"
	"github.com/weirflow/weir/internal/rules"
)

// plainVersion is the format of a plain value: of a key with one version of a bucket, and nothing that may be given
// back. What the store itself reads and writes (see Taker) has a fixed place in it, in big-endian order:
//
//	3 bytes   "wk" and the version
//	8 bytes   the time at which the bucket is full
//	8 bytes   the ticks beyond it
//	8 bytes   the key's clock
//	2 bytes   the length of the limit
//	          the limit
//	          all that only nodes read: see plainRest
const plainVersion = 2

const plainHead = 3 + 3*8

// mostPlainNodes bounds the nodes in a plain value, which the store writes again with each charge.
const mostPlainNodes = 16

// plainRule returns the rule of a limit that a store can decide about; nil for another one.
func plainRule(c *compiled) rules.BucketRule {
	b, ok := c.rule.(rules.BucketRule)
	if !ok || !b.StartsFull() || !c.fades || len(c.text) > mostPlainLimit {
		return nil
	}
	return b
}

// mostPlainLimit bounds the text of a limit in a plain value, so that its length has two bytes.
const mostPlainLimit = 1 << 10

// plain returns the entry as a plain value; nil if it is more than that.
func (e *entry) plain() []byte {
	if len(e.versions) != 1 || len(e.brief) > 0 || len(e.once) > 0 || e.movedFor != 0 || len(e.nodes) > mostPlainNodes {
		return nil
	}
	v := e.versions[0]
	if plainRule(v.limit) == nil || v.memory != nil || len(v.state) != 2 || v.state[0] < 0 || e.clock.last < 0 {
		return nil
	}
	b := append([]byte(magic), plainVersion)
	for _, n := range []int64{v.state[0], v.state[1], e.clock.last} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return append(append(b, plainLimit(v.limit)...), e.plainRest()...)
}

// plainLimit is a limit as a plain value has it.
func plainLimit(c *compiled) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(c.text))), c.text...)
}

// plainRest is the part of a plain value that the store leaves alone. Ages are counted from the key's clock at the
// time of writing, which the store moves on.
func (e *entry) plainRest() []byte {
	b := packed.Int(nil, e.clock.last)
	b = packed.Uint(b, uint64(len(e.nodes)))
	for _, n := range e.nodes {
		b = packed.Uint(packed.Uint(b, n.id), n.write)
		b = packed.Int(packed.Int(b, e.clock.last-n.at), n.behind)
	}
	b = packed.Uint(b, uint64(e.serial))
	v := e.versions[0]
	return packed.Int(packed.Uint(b, v.began), v.used)
}

// readPlain returns the entry of a plain value.
func (s *limits) readPlain(value []byte, remember int) (*entry, error) {
	if len(value) < plainHead+2 {
		return nil, fmt.Errorf("the state of the key: %w", packed.ErrMalformed)
	}
	number := func(at int) int64 { return int64(binary.BigEndian.Uint64(value[at:])) }
	z, ticks, last := number(3), number(11), number(19)
	length := int(binary.BigEndian.Uint16(value[plainHead:]))
	rest := value[plainHead+2:]
	if len(rest) < length {
		return nil, fmt.Errorf("the state of the key: %w", packed.ErrMalformed)
	}
	limit, err := s.read(rest[:length])
	if err != nil {
		return nil, err
	}
	r := packed.NewReader(rest[length:])
	e := &entry{clock: keyClock{last: last}}
	written := r.Int()
	e.nodes = make([]node, r.Count(mostPlainNodes))
	for i := range e.nodes {
		e.nodes[i] = node{r.Uint(), r.Uint(), written - r.Int(), r.Int()}
	}
	if e.serial = outstanding.ID(r.Uint()); e.serial > mostSerial {
		r.Fail()
	}
	v := &version{limit: limit, began: r.Uint(), used: r.Int(), state: []int64{z, ticks}, budget: newBudget(remember)}
	if plainRule(limit) == nil || !limit.rule.Valid(v.state) || z < 0 || last < written {
		r.Fail()
	}
	if r.End() != nil {
		return nil, fmt.Errorf("the state of the key: %w", packed.ErrMalformed)
	}
	if last > written { // by the store, which writes only what it has admitted
		v.used = last
	}
	v.ends = v.endOf(last)
	e.versions = []*version{v}
	return e, nil
}

// isPlainValue reports whether a value is one that the store can decide about.
func isPlainValue(value []byte) bool {
	return len(value) > len(magic) && value[len(magic)] == plainVersion
}
