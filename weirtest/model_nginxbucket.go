package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// nginxBucket is the model of NginxBucket, in the words of ngx_http_limit_req_module. excess is by
// how much the last request was above the rate, in thousandths of a request, and last is its
// millisecond. A request adds 1000. Each millisecond since then subtracts a thousandth of the rate;
// the difference is truncated to a whole number. An earlier clock reading subtracts nothing.
type nginxBucket struct {
	tick        time.Duration
	rate        *big.Int // thousandths a second
	burst       int64
	delay       int64    // decides nothing, but limits that differ in it are different limits
	excess      *big.Int // -1000 if all requests have drained; nil while untouched
	last        *big.Int
	perMs, most *big.Int

	blind bool
	again again
	ids   int
}

// nginxMark has the state before a charge and after it, and the time of the charge.
type nginxMark struct {
	before, after nginxBucket
	now           int64
	cost          int64
	id            int
}

func newNginx(l weir.NginxBucket, tick time.Duration, blind bool) *nginxBucket {
	rate := new(big.Int).Mul(big.NewInt(l.Rate.N), big.NewInt(1000))
	if l.Rate.Per == time.Minute {
		rate.Div(rate, big.NewInt(60))
	}
	return &nginxBucket{tick: tick, rate: rate, burst: l.Queue, delay: l.DelayAfter, perMs: big.NewInt(int64(time.Millisecond / tick)), most: big.NewInt(math.MaxInt64 - 1000), blind: blind}
}

func (n *nginxBucket) size() int64        { return n.burst + 1 }
func (n *nginxBucket) largest() int64     { return n.burst + 1 }
func (n *nginxBucket) chargesAhead() bool { return false }
func (n *nginxBucket) turnsMove() bool    { return false }
func (n *nginxBucket) contact(int64)      {}
func (n *nginxBucket) touched() bool      { return n.excess != nil }
func (n *nginxBucket) clone() algorithm   { c := *n; return &c }
func (n *nginxBucket) String() string     { return fmt.Sprint(n.excess, n.last, n.again.charges) }

// ms returns the millisecond of a clock reading.
func (n *nginxBucket) ms(now int64) *big.Int { return new(big.Int).Div(big.NewInt(now), n.perMs) }

// at returns the excess before a request at now, at least -1000.
func (n *nginxBucket) at(now int64) *big.Int {
	floor := big.NewInt(-1000)
	if n.excess == nil {
		return floor
	}
	since := new(big.Int).Sub(n.ms(now), n.last)
	if since.Sign() < 0 {
		since.SetInt64(0)
	}
	drained := since.Mul(since, n.rate)
	return latest(floor, new(big.Int).Sub(n.excess, drained.Div(drained, big.NewInt(1000))))
}

// level returns the Level of a Decision.
func (n *nginxBucket) level(now int64) int64 {
	return clamp(new(big.Int).Add(n.at(now), big.NewInt(1000)))
}

// levelWith returns the Level of a Decision that admits a cost.
func (n *nginxBucket) levelWith(now, cost int64) int64 {
	requests := new(big.Int).Mul(big.NewInt(cost+1), big.NewInt(1000))
	return clamp(requests.Add(requests, n.at(now)))
}

// wait returns how long it takes until units is at most 1000 times most; nil if that is past the
// end of the clock, or longer than a century.
func (n *nginxBucket) wait(now int64, units *big.Int, most int64) *big.Int {
	more := new(big.Int).Mul(units, big.NewInt(1000))
	from, has := n.ms(now), n.at(now)
	if has.Cmp(big.NewInt(-1000)) > 0 {
		from, has = n.last, n.excess
	}
	tooMuch := new(big.Int).Add(has, more)
	tooMuch.Sub(tooMuch, new(big.Int).Mul(big.NewInt(most), big.NewInt(1000)))
	ms := ceil(new(big.Rat).SetFrac(tooMuch.Mul(tooMuch, big.NewInt(1000)), n.rate))
	end := ms.Add(ms, from)
	wait := end.Mul(end, n.perMs)
	wait.Sub(wait, big.NewInt(now))
	if wait.Cmp(big.NewInt(int64(century/n.tick))) > 0 || new(big.Int).Add(wait, big.NewInt(now)).Cmp(big.NewInt(math.MaxInt64)) > 0 {
		return nil
	}
	return wait
}

// plan admits a request if the excess with it is at most the burst, as nginx does.
func (n *nginxBucket) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	units := new(big.Int).Add(ahead, big.NewInt(cost))
	excess := new(big.Int).Add(n.at(now), new(big.Int).Mul(units, big.NewInt(1000)))
	if excess.Cmp(new(big.Int).Mul(big.NewInt(n.burst), big.NewInt(1000))) <= 0 {
		return new(big.Rat), new(big.Rat)
	}
	w := n.wait(now, units, n.burst)
	if w == nil {
		return nil, nil
	}
	return exact(w), new(big.Rat)
}

func (n *nginxBucket) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	has := new(big.Int).Add(n.at(now), new(big.Int).Mul(ahead, big.NewInt(1000)))
	room := new(big.Int).Sub(new(big.Int).Mul(big.NewInt(n.burst), big.NewInt(1000)), has)
	remaining = max(0, clamp(room.Div(room, big.NewInt(1000))))
	if has.Cmp(big.NewInt(-1000)) <= 0 {
		return remaining, new(big.Int)
	}
	if reset = n.wait(now, ahead, -1); reset == nil {
		reset = big.NewInt(math.MaxInt64)
	}
	return remaining, reset
}

// reached is not needed: no store keeps it.
func (n *nginxBucket) reached() *big.Int { return nil }

func (n *nginxBucket) charge(at *big.Rat, cost int64) {
	n.note(chargeAgain{cost: cost, goes: at})
}

// note makes a charge, and remembers it. Charges from before the bucket was last empty are dropped,
// because they add nothing.
func (n *nginxBucket) note(c chargeAgain) {
	if n.level(down(c.goes)) == 0 {
		n.again = again{}
	}
	n.again = n.again.charged(n, c, maxAgain)
	n.make(c)
}

func (n *nginxBucket) bare() algorithm {
	c := *n
	c.again = again{}
	return &c
}

func (n *nginxBucket) make(c chargeAgain) {
	at, cost := c.goes, c.cost
	now := down(at)
	excess := new(big.Int).Add(n.at(now), new(big.Int).Mul(big.NewInt(cost), big.NewInt(1000)))
	last := n.ms(now)
	if n.last != nil {
		last = latest(last, n.last)
	}
	if n.excess, n.last = excess, last; n.excess.Cmp(n.most) > 0 {
		n.excess = n.most
	}
}

func (n *nginxBucket) reserve(now int64, _ *big.Rat, cost int64) mark {
	before := *n
	c := chargeAgain{cost: cost, goes: whole(now)}
	n.ids++
	if c.id = n.ids; n.blind {
		c.id = 0
	}
	n.note(c)
	return nginxMark{before, *n, now, cost, n.ids}
}

func (n *nginxBucket) drop(m mark) { n.again = n.again.without(m.(nginxMark).id) }

// giveBack restores the state before the charge if nothing was charged since, and charges what is
// left.
func (n *nginxBucket) giveBack(_ int64, m mark, amount int64) {
	c := m.(nginxMark)
	if !n.blind {
		was, left := n.again.giveBack(c.id, amount)
		if was != nil {
			now := *was.(*nginxBucket)
			n.excess, n.last, n.again = now.excess, now.last, left
		}
		return
	}
	if n.excess.Cmp(c.after.excess) != 0 || n.last.Cmp(c.after.last) != 0 {
		return
	}
	*n = c.before
	if n.excess == nil {
		n.excess, n.last = big.NewInt(-1000), n.ms(c.now)
	}
	if left := c.cost - amount; left > 0 {
		n.charge(whole(c.now), left)
	}
}

func (n *nginxBucket) turn(seen *big.Rat, cost int64) *big.Rat { return turnOf(n, seen, cost) }

func (n *nginxBucket) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (n *nginxBucket) same(o algorithm) bool {
	c, ok := o.(*nginxBucket)
	return ok && n.rate.Cmp(c.rate) == 0 && n.burst == c.burst && n.delay == c.delay
}

func (n *nginxBucket) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*nginxBucket)
	if !ok {
		return transfer(now, n, o)
	}
	next.ids, next.again = n.ids, n.again.changed(now, next.bare().(remade))
	if n.excess == nil {
		return next
	}
	next.excess, next.last = n.at(now), latest(n.last, n.ms(now))
	return next
}

func (n *nginxBucket) spent(now int64) *big.Int {
	return ceil(new(big.Rat).SetFrac(new(big.Int).Add(n.at(now), big.NewInt(1000)), big.NewInt(1000)))
}

// counted is in requests, as for all algorithms.
func (n *nginxBucket) counted() *big.Int {
	if n.excess == nil {
		return new(big.Int)
	}
	return new(big.Int).Div(n.excess, big.NewInt(1000))
}

func (n *nginxBucket) load(now int64, spent *big.Int) { n.charge(whole(now), clamp(spent)) }

func (n *nginxBucket) convertMark(_ int64, m mark, o algorithm) mark {
	if _, ok := o.(*nginxBucket); !ok || n.blind {
		return nil
	}
	return m
}
