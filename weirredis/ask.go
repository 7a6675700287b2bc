package weirredis

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirflow/weir"
)

// An ask is charges of one caller that go to the server in one call: those of a batch, or those that are in one slot.
type ask struct {
	questions []question
	slot      uint16
	short     bool // all of them can go the short way
	end       time.Time
	done      chan struct{} // closed once the answers are there
	err       error         // for all of them
}

// A question is a charge with what it becomes on the server. It is a copy: the caller may be gone when it is answered.
type question struct {
	index int // in the batch
	key   string
	limit *limit
	name  string
	op    weir.Op
	cost  int64
	group int
	more  int64 // within of a reserve; 1 where a take wants a receipt
	paper weir.Receipt

	decision weir.Decision
	receipt  weir.Receipt
	delay    time.Duration
	taken    int64
	err      error
}

// ErrCharge is found by errors.Is in an error that is about one charge: a limit that cannot be kept in Redis, a key that holds something else.
var ErrCharge = weir.ErrCharge

// asks makes questions of a batch. On a cluster it returns one ask for each slot, or, where a group is spread over slots, its numbers.
func (s *Store) asks(batch []weir.Charge) (asks []ask, split map[int]bool, err error) {
	asks = make([]ask, 0, 1)
	groups := map[int]uint16{}
	for i := range batch {
		c := &batch[i]
		q, err := s.question(i, c)
		if err != nil {
			return nil, nil, err
		}
		slot := uint16(0)
		if s.opts.Cluster {
			slot = slotOf(q.key)
		}
		if c.Group > 0 {
			if c.Op != weir.OpTake {
				return nil, nil, fmt.Errorf("%w: %v in a group, which is for takes", ErrCharge, c.Op)
			}
			if other, ok := groups[c.Group]; ok && other != slot {
				if split == nil {
					split = map[int]bool{}
				}
				split[c.Group] = true
			}
			groups[c.Group] = slot
		}
		at := -1
		for j := range asks {
			if asks[j].slot == slot {
				at = j
			}
		}
		if at < 0 {
			asks = append(asks, ask{slot: slot})
			at = len(asks) - 1
		}
		asks[at].questions = append(asks[at].questions, q)
	}
	for i := range asks {
		if len(groups) > 0 {
			asks[i].gather()
		}
		asks[i].short = !slices.ContainsFunc(asks[i].questions, question.long)
	}
	return asks, split, nil
}

// gather puts the charges of each group side by side, where the first of them is.
func (a *ask) gather() {
	first := map[int]int{}
	at := func(q question) int {
		if q.group == 0 {
			return q.index
		}
		return first[q.group]
	}
	for _, q := range a.questions {
		if _, ok := first[q.group]; !ok {
			first[q.group] = q.index
		}
	}
	slices.SortStableFunc(a.questions, func(p, q question) int { return cmp.Compare(at(p), at(q)) })
}

func (s *Store) question(i int, c *weir.Charge) (question, error) {
	l, err := s.limits.of(c.Limit)
	if err != nil {
		return question{}, fmt.Errorf("%w: limit %q: %w", ErrCharge, c.Name, err)
	}
	q := question{index: i, key: s.key(c.Name, c.Key), limit: l, name: c.Name, op: c.Op, cost: cost(c.Cost), group: max(c.Group, 0)}
	switch c.Op {
	case weir.OpTake:
		if c.Keep {
			q.more = 1
		}
	case weir.OpReserve:
		q.more = within(c.Within)
	case weir.OpSettle:
		if q.paper = c.Receipt; c.Cost > most {
			return q, fmt.Errorf("%w: a cost of %d is more than Redis can count: at most %d", ErrCharge, c.Cost, int64(most))
		}
	case weir.OpPeek, weir.OpTakeSome, weir.OpCarry, weir.OpReset:
	default:
		return q, fmt.Errorf("%w: %v is no operation", ErrCharge, c.Op)
	}
	return q, nil
}

// long reports whether a question cannot go the short way.
func (q question) long() bool {
	return q.op > weir.OpPeek || q.group > 0 || q.more != 0 || q.limit.short == nil || q.cost < 0 || q.cost > q.limit.short.size
}

// answer gives the caller what came.
func (a *ask) answer(batch []weir.Charge, out []weir.Decision) error {
	if a.err != nil {
		for i := range a.questions {
			batch[a.questions[i].index].Err = a.err
		}
		return a.err
	}
	var first error
	for i := range a.questions {
		q := &a.questions[i]
		c := &batch[q.index]
		out[q.index] = q.decision
		c.Delay, c.Taken, c.Err = q.delay, q.taken, q.err
		if q.op != weir.OpSettle {
			c.Receipt = q.receipt
		}
		if q.err != nil && first == nil {
			first = q.err
		}
	}
	return first
}

// read takes the answer to a question out of a reply.
func (q *question) read(r *reader) {
	q.err = nil
	if r.text() {
		text := r.string()
		if text == "WEIRLATE" {
			q.err = errLate
			return
		}
		q.err = fmt.Errorf("%w: limit %q: %s", ErrCharge, q.name, text)
		q.decision = weir.Decision{RetryAfter: weir.Never, By: q.name, Source: weir.SourceStore}
		return
	}
	wait, remaining, reset := r.int(), r.int(), r.int()
	q.decision = weir.Decision{
		Allowed:    wait == 0,
		Limit:      q.limit.capacity,
		Remaining:  remaining,
		RetryAfter: span(wait),
		ResetAfter: span(reset),
		By:         q.name,
		Source:     weir.SourceStore,
	}
	if remaining == most && q.limit.capacity > most {
		q.decision.Remaining = q.limit.capacity
	}
	if names := q.limit.names; names != nil {
		if part := r.int(); part >= 0 && part < int64(len(names)) {
			q.decision.By = q.name + "/" + names[part]
		}
	}
	switch {
	case q.op == weir.OpReserve:
		q.delay, q.receipt = span(r.int()), weir.Receipt(r.string())
	case q.op == weir.OpTakeSome:
		q.taken, q.receipt = r.int(), weir.Receipt(r.string())
	case q.op == weir.OpTake && q.more == 1:
		q.receipt = weir.Receipt(r.string())
	}
}

// maxTag is how long a tag may be as it is. A longer one is known by its SHA-256.
const maxTag = 512

// key is where a state is kept: prefix, tag in braces, name, and the key itself where it is not the tag.
func (s *Store) key(name, key string) string {
	tag := key
	if s.opts.Tag != nil {
		tag = s.opts.Tag(name, key)
	}
	at := s.opts.Prefix + "{" + escape(tag) + "}:" + names.Replace(name)
	if tag != key {
		at += ":" + escape(key)
	}
	return at
}

// names keeps a name from reaching into the key that follows it, or from being taken for one that is followed by a key.
var names = strings.NewReplacer("%", "%25", ":", "%3A")

// escape writes a key such that it can stand between braces: braces, % and ~ as in URLs, nothing at all as ~, and what is very long as ~ and
// its hash.
func escape(key string) string {
	switch {
	case key == "":
		return "~"
	case len(key) > maxTag:
		sum := sha256.Sum256([]byte(key))
		return "~" + hex.EncodeToString(sum[:])
	case !strings.ContainsAny(key, "{}%~"):
		return key
	}
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; c {
		case '{', '}', '%', '~':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// slots is how many a cluster has.
const slots = 16384

// slotOf is the slot of a cluster that a key with a tag is in: CRC-16 (XMODEM) of what is between its braces.
func slotOf(key string) uint16 {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}
