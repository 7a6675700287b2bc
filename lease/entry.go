package lease

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// grant is what one trip has brought: tokens that are used here until it ends.
type grant struct {
	left  atomic.Int64
	asked atomic.Bool // for the next one
	_     [48]byte    // what follows is only read

	ends     int64 // by the clock
	over     int64 // from then on nothing can be given back
	low      int64 // when so many are left, it is time for the next one
	size     int64
	limit    weir.Limit
	receipt  weir.Receipt
	by       string
	capacity int64 // of the limit
	rest     int64 // what the store had left
	fresh    int64 // when the store's state is as good as new, by the clock
	seen     int64 // of what was used, at the last look
}

// decide is the decision about a charge that was admitted.
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

// refusal is what the store said when it had nothing, for as long as that is taken for its answer.
type refusal struct {
	limit weir.Limit
	terms rules.Leased // what leases of it mean
	until int64        // by the clock
	retry int64        // when what was refused fits, or is asked for again
	cost  int64        // what the store refused
	d     weir.Decision
	fresh int64
}

// decide tells a caller, who has so many tokens here, what the store said. It reports false where that is another question.
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

// entry is a key that is leased.
type entry struct {
	hash      uint64
	name, key string
	after     atomic.Pointer[entry]   // behind it in the table
	cur       atomic.Pointer[grant]   // what callers take from
	no        atomic.Pointer[refusal] // what they are told where nothing is left
	spare     atomic.Int64            // tokens in further grants; to come to them takes the lock
	place     int                     // in the table; under the store's lock
	_         [48]byte                // what follows is written

	outside atomic.Int64 // demand that no grant has met, since the last look
	_       [56]byte

	mu     sync.Mutex // never held over a trip
	limit  weir.Limit
	terms  rules.Leased  // what leases of it mean
	pause  time.Duration // see pause
	life   time.Duration // how long a grant lasts at most
	gone   bool          // it is in the table no more
	held   []*grant      // cur and the further ones, by their ends
	back   []weir.Charge // what is to be given back
	given  int64         // how many tokens that is
	ask    *ask          // what is under way
	direct int           // trips of callers that are under way
	need   int64         // of those who wait for ask
	era    int           // changes where nothing that was asked for before may be used any more

	demand   int64 // in a lifetime, in parts of 1/16
	used     int64 // of grants that are gone, since the last look
	idle     int   // how many looks have seen no demand
	lastSent int64 // when something was last asked for
	lastSize int64 // and how much it brought
	last     *grant
	quiet    int64 // nothing is asked for ahead until then
	runs     int   // refusals in a row

	heard     int64 // when the store last said something
	remaining int64 // what that was
	capacity  int64
	fresh     int64
}

// demandParts is what demand is counted in.
const demandParts = 16

// mostHeld is how many grants a key has at once.
const mostHeld = 8

// left is how many tokens there are here.
func (e *entry) left() (n int64) {
	for _, g := range e.held {
		n += g.left.Load()
	}
	return n
}

// tidy drops the grants that are used up, and ends those whose time is over.
func (e *entry) tidy(now int64) {
	kept := e.held[:0]
	for _, g := range e.held {
		switch {
		case now >= g.ends:
			e.end(g, now)
		case g.left.Load() == 0:
			e.used += g.size - g.seen
		default:
			kept = append(kept, g)
		}
	}
	clear(e.held[len(kept):])
	e.held = kept
	e.publish()
}

// be makes the entry one of a limit, whose numbers those of before say nothing of.
func (e *entry) be(l weir.Limit, lifetime time.Duration) {
	e.limit, e.terms, e.capacity = l, termsOf(l), 0
	e.pause, e.life = e.terms.LeasePause(lifetime), min(lifetime, e.terms.LongestLease())
}

// publish shows callers what to take from.
func (e *entry) publish() {
	var first *grant
	spare := int64(0)
	for i, g := range e.held {
		if i == 0 {
			first = g
		} else {
			spare += g.left.Load()
		}
	}
	e.spare.Store(spare) // before the last of the current one can be taken for the last of all
	if e.cur.Load() != first {
		e.cur.Store(first)
	}
}

// end ends a grant. What is left of it is to be given back.
func (e *entry) end(g *grant, now int64) {
	left := g.left.Swap(0) // from now on nobody takes of it
	e.used += g.size - left - g.seen
	if left > 0 && now < g.over {
		e.giveBack(g.limit, g.receipt, g.size-left, left)
	}
}

// giveBack remembers that only some of a grant were used.
func (e *entry) giveBack(l weir.Limit, r weir.Receipt, used, left int64) {
	e.given += left
	e.back = append(e.back, weir.Charge{Name: e.name, Key: e.key, Limit: l, Op: weir.OpSettle, Receipt: r, Cost: used})
}

// endAll ends all grants, and what is under way is not to be used.
func (e *entry) endAll(now int64) {
	for _, g := range e.held {
		e.end(g, now)
	}
	clear(e.held)
	e.held, e.last = e.held[:0], nil
	e.era++
	e.no.Store(nil)
	e.publish()
}

// add puts in what a trip has brought.
func (e *entry) add(g *grant) {
	at, _ := slices.BinarySearchFunc(e.held, g, func(a, b *grant) int {
		if a.ends <= b.ends {
			return -1
		}
		return 1
	})
	e.held = slices.Insert(e.held, at, g)
	e.last = g
	e.publish()
}

// take takes a cost from as many grants as that needs.
func (e *entry) take(cost int64, d *weir.Decision, now int64) bool {
	if e.left() < cost {
		return false
	}
	missing := cost
	taken := make([]int64, len(e.held))
	var from *grant
	for i, g := range e.held {
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
	if missing > 0 { // others were faster; no grant ends while the lock is held
		for i, n := range taken {
			e.held[i].left.Add(n)
		}
		return false
	}
	from.decide(d, e.left(), now)
	e.tidy(now)
	return true
}

// hear notes what the store has said.
func (e *entry) hear(d weir.Decision, now int64) {
	e.heard, e.remaining, e.capacity = now, d.Remaining, d.Limit
	e.fresh = plus(now, d.ResetAfter)
}

// refuse keeps the store's refusal of a cost, which was asked for at sent. The time for which it is taken for the store's answer grows with
// each one, as what others give back is only noticed after it. It is made to say no earlier than this node may ask again.
func (e *entry) refuse(d *weir.Decision, cost, sent, now int64, lifetime time.Duration) {
	if d.RetryAfter == weir.Never {
		return
	}
	if r := e.no.Load(); r != nil && now < r.until && r.cost < cost {
		return // it speaks for more callers
	}
	until := max(plus(sent, d.RetryAfter), plus(now, e.pause)) // the store may have looked right after sent
	until = min(until, plus(now, lifetime/4<<min(e.runs, 4)))
	e.runs++
	d.RetryAfter = max(d.RetryAfter, e.pause)
	e.no.Store(&refusal{limit: e.limit, terms: e.terms, until: until, retry: plus(now, d.RetryAfter), cost: cost, d: *d, fresh: e.fresh})
}

// granted notes that the store gave something.
func (e *entry) granted() {
	e.runs = 0
	e.no.Store(nil)
}
