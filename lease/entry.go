package lease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// A grant is the tokens of one lease, which this node may use until it ends.
type grant struct {
	left  atomic.Int64
	asked atomic.Bool // the next one was requested
	_     [48]byte    // fields below are only read

	ends     int64 // by the clock
	over     int64 // nothing can be returned from then on
	low      int64 // when so many are left, the next grant is requested
	size     int64
	limit    weir.Limit
	receipt  weir.Receipt
	by       string
	capacity int64 // of the limit
	rest     int64 // what the store had left
	fresh    int64 // when the limit will be full again, by the clock
	seen     int64 // how many were used at the last inspection
}

// decide writes the decision about a charge that was admitted.
func (g *grant) decide(d *weir.Decision, left, now int64) {
	*d = weir.Decision{
		Allowed:    true,
		Limit:      g.capacity,
		Remaining:  min(left+g.rest, g.capacity),
		ResetAfter: time.Duration(max(g.fresh-now, 0)),
		By:         g.by,
		Source:     weir.SourceLease,
	}
}

// A refusal is a decision of the store that had no tokens. It is repeated to callers until it is
// old.
type refusal struct {
	limit weir.Limit
	terms rules.Leased // how the algorithm is leased
	until int64        // by the clock
	retry int64        // when the refused cost fits, or the next round trip is made
	cost  int64        // what the store refused
	d     weir.Decision
	fresh int64
}

// decide repeats the store's refusal to a caller, if this node holds left tokens. It reports false
// if the refusal does not cover the charge.
func (r *refusal) decide(d *weir.Decision, c *weir.Charge, left, now int64) bool {
	if r == nil || now >= r.until || r.limit != c.Limit || c.Cost-left < r.cost {
		return false
	}
	more, ok := time.Duration(0), true
	if larger := c.Cost - left - r.cost; larger > 0 {
		more, ok = r.terms.MoreWait(larger)
	}
	if !ok || c.Cost > r.d.Limit {
		return false
	}
	*d = r.d
	d.Remaining = min(left+r.d.Remaining, r.d.Limit)
	d.RetryAfter = time.Duration(plus(r.retry-now, more))
	d.ResetAfter = time.Duration(max(r.fresh-now, 0))
	d.Source = weir.SourceLease
	return true
}

// An entry is a leased key.
type entry struct {
	hash      uint64
	name, key string
	after     atomic.Pointer[entry]   // the next one in its bucket of the table
	current   atomic.Pointer[grant]   // the grant that callers take from
	refused   atomic.Pointer[refusal] // repeated to callers when nothing is left
	spare     atomic.Int64            // tokens in further grants, which are under the lock
	place     int                     // in the table; under the store's lock
	_         [48]byte                // fields below are written

	outside atomic.Int64 // demand that no grant has met since the last inspection
	_       [56]byte

	mu         sync.Mutex // never held over a round trip
	limit      weir.Limit
	terms      rules.Leased  // how the algorithm is leased
	pause      time.Duration // see rules.Leased
	life       time.Duration // how long a grant lasts at most
	removed    bool          // it was removed from the table
	grants     []*grant      // current and the further ones, by their ends
	back       []weir.Charge // settles that return tokens
	given      int64         // how many tokens these return
	request    *request      // in flight
	direct     int           // round trips of callers that request their own cost
	need       int64         // the cost of callers that wait for request
	generation int           // raised when tokens requested before may not be used any more

	demand   int64 // tokens per lifetime, in parts of 1/16
	used     int64 // tokens of dropped grants since the last inspection
	idle     int   // how many inspections in a row saw no demand
	lastSent int64 // when tokens were last requested
	lastSize int64 // and how many were granted
	last     *grant
	quiet    int64 // nothing is requested ahead until then
	runs     int   // refusals in a row

	heard     int64 // when the store last decided
	remaining int64 // what it had left then
	capacity  int64
	fresh     int64
}

// demandParts is how many parts of a token demand counts.
const demandParts = 16

// mostHeld is how many grants a key may have.
const mostHeld = 8

// left returns how many tokens this node holds.
func (e *entry) left() (n int64) {
	for _, g := range e.grants {
		n += g.left.Load()
	}
	return n
}

// tidy drops grants that are used up, and ends those that have expired.
func (e *entry) tidy(now int64) {
	kept := e.grants[:0]
	for _, g := range e.grants {
		switch {
		case now >= g.ends:
			e.end(g, now)
		case g.left.Load() == 0:
			e.used += g.size - g.seen
		default:
			kept = append(kept, g)
		}
	}
	clear(e.grants[len(kept):])
	e.grants = kept
	e.publish()
}

// setLimit makes the entry that of another limit. Earlier decisions do not apply to it.
func (e *entry) setLimit(l weir.Limit, lifetime time.Duration) {
	e.limit, e.terms, e.capacity = l, termsOf(l), 0
	e.pause, e.life = e.terms.LeasePause(lifetime), min(lifetime, e.terms.LongestLease())
}

// publish sets the grant that callers take from.
func (e *entry) publish() {
	var first *grant
	spare := int64(0)
	for i, g := range e.grants {
		if i == 0 {
			first = g
		} else {
			spare += g.left.Load()
		}
	}
	// first: otherwise the last token of the current grant could pass for the last of all
	e.spare.Store(spare)
	if e.current.Load() != first {
		e.current.Store(first)
	}
}

// end ends a grant. The tokens left are to be returned.
func (e *entry) end(g *grant, now int64) {
	left := g.left.Swap(0) // no caller takes from it after this
	e.used += g.size - left - g.seen
	if left > 0 && now < g.over {
		e.giveBack(g.limit, g.receipt, g.size-left, left)
	}
}

// giveBack queues a settle for a grant of which some tokens were not used.
func (e *entry) giveBack(l weir.Limit, r weir.Receipt, used, left int64) {
	e.given += left
	e.back = append(e.back, weir.Charge{Name: e.name, Key: e.key, Limit: l, Op: weir.OpSettle, Receipt: r, Cost: used})
}

// endAll ends all grants; tokens that are in flight will not be used.
func (e *entry) endAll(now int64) {
	for _, g := range e.grants {
		e.end(g, now)
	}
	clear(e.grants)
	e.grants, e.last = e.grants[:0], nil
	e.generation++
	e.refused.Store(nil)
	e.publish()
}

// add adds a grant.
func (e *entry) add(g *grant) {
	at, _ := slices.BinarySearchFunc(e.grants, g, func(a, b *grant) int {
		if a.ends <= b.ends {
			return -1
		}
		return 1
	})
	e.grants = slices.Insert(e.grants, at, g)
	e.last = g
	e.publish()
}

// take takes a cost from as many grants as that needs.
func (e *entry) take(cost int64, d *weir.Decision, now int64) bool {
	if e.left() < cost {
		return false
	}
	missing := cost
	taken := make([]int64, len(e.grants))
	var from *grant
	for i, g := range e.grants {
		for missing > 0 {
			left := g.left.Load()
			n := min(left, missing)
			if n == 0 {
				break
			}
			if g.left.CompareAndSwap(left, left-n) {
				taken[i], from = n, g
				missing -= n
				break
			}
		}
	}
	if missing > 0 { // other callers were faster; no grant ends while the lock is held
		for i, n := range taken {
			e.grants[i].left.Add(n)
		}
		return false
	}
	from.decide(d, e.left(), now)
	e.tidy(now)
	return true
}

// noteAnswer remembers the store's decision.
func (e *entry) noteAnswer(d weir.Decision, now int64) {
	e.heard, e.remaining, e.capacity = now, d.Remaining, d.Limit
	e.fresh = plus(now, d.ResetAfter)
}

// refuse keeps the store's refusal of a cost that was requested at sent, to repeat it to callers.
// It is repeated for longer after each refusal in a row: tokens that other nodes return are noticed
// only afterwards. Its RetryAfter is not before this node's next round trip.
func (e *entry) refuse(d *weir.Decision, cost, sent, now int64, lifetime time.Duration) {
	if d.RetryAfter == weir.Never {
		return
	}
	if r := e.refused.Load(); r != nil && now < r.until && r.cost < cost {
		return // it covers more callers
	}
	// the store may have decided right after sent
	until := max(plus(sent, d.RetryAfter), plus(now, e.pause))
	until = min(until, plus(now, lifetime/4<<min(e.runs, 4)))
	e.runs++
	d.RetryAfter = max(d.RetryAfter, e.pause)
	e.refused.Store(&refusal{limit: e.limit, terms: e.terms, until: until, retry: plus(now, d.RetryAfter), cost: cost, d: *d, fresh: e.fresh})
}

// granted notes that the store had tokens.
func (e *entry) granted() {
	e.runs = 0
	e.refused.Store(nil)
}
