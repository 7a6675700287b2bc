package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/weirflow/weir"
)

// nginx is the law of NginxBucket: that of ngx_http_limit_req_module, in its words. Excess is by how much the last request was above the
// rate, in thousandths of a request, and last is its millisecond. A request adds 1000, and each millisecond since takes off a
// thousandth of the rate, cut to a whole number. What an earlier reading would take off is nothing.
type nginx struct {
	tick        time.Duration
	rate        *big.Int // thousandths a second
	burst       int64
	delay       int64    // which decides nothing, but makes another limit
	excess      *big.Int // -1000 where nothing is left of any request; nil while untouched
	last        *big.Int
	perMs, most *big.Int

	blind bool
	again again
	ids   int
}

// nginxMark is the state before a charge and after it, and when it was charged.
type nginxMark struct {
	before, after nginx
	now           int64
	cost          int64
	id            int
}

func newNginx(l weir.NginxBucket, tick time.Duration, blind bool) *nginx {
	rate := new(big.Int).Mul(big.NewInt(l.Rate.N), big.NewInt(1000))
	if l.Rate.Per == time.Minute {
		rate.Div(rate, big.NewInt(60))
	}
	return &nginx{tick: tick, rate: rate, burst: l.Queue, delay: l.DelayAfter, perMs: big.NewInt(int64(time.Millisecond / tick)), most: big.NewInt(math.MaxInt64 - 1000), blind: blind}
}

func (n *nginx) size() int64                  { return n.burst + 1 }
func (n *nginx) largest() int64               { return n.burst + 1 }
func (n *nginx) books() bool                  { return false }
func (n *nginx) moves() bool                  { return false }
func (n *nginx) contact(int64)                {}
func (n *nginx) touched() bool                { return n.excess != nil }
func (n *nginx) clone() law                   { c := *n; return &c }
func (n *nginx) String() string               { return fmt.Sprint(n.excess, n.last, n.again.charges) }
func (n *nginx) remark(int64, mark, law) mark { return nil }

// ms is the millisecond of a reading.
func (n *nginx) ms(now int64) *big.Int { return new(big.Int).Div(big.NewInt(now), n.perMs) }

// at is the excess without another request, at least -1000.
func (n *nginx) at(now int64) *big.Int {
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

// level is what a Decision says of the state.
func (n *nginx) level(now int64) int64 { return clamp(new(big.Int).Add(n.at(now), big.NewInt(1000))) }

// levelWith is what it says of a request that would be admitted.
func (n *nginx) levelWith(now, cost int64) int64 {
	requests := new(big.Int).Mul(big.NewInt(cost+1), big.NewInt(1000))
	return clamp(requests.Add(requests, n.at(now)))
}

// wait is how long it takes until something is no more than a thousand times a number; nil where that is past the end of the clock, or
// beyond a century.
func (n *nginx) wait(now int64, units *big.Int, most int64) *big.Int {
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

// plan: nginx admits where the excess with the request is at most the burst.
func (n *nginx) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
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

func (n *nginx) look(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
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

func (n *nginx) charge(at *big.Rat, cost int64) {
	n.note(chargeAgain{cost: cost, goes: at})
}

// note makes a charge. What came before the bucket was last empty adds nothing.
func (n *nginx) note(c chargeAgain) {
	if n.level(down(c.goes)) == 0 {
		n.again = again{}
	}
	n.again = n.again.charged(n, c)
	n.make(c)
}

func (n *nginx) bare() law {
	c := *n
	c.again = again{}
	return &c
}

func (n *nginx) make(c chargeAgain) {
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

func (n *nginx) book(now int64, _ *big.Rat, cost int64) mark {
	before := *n
	c := chargeAgain{cost: cost, goes: whole(now)}
	n.ids++
	if c.id = n.ids; n.blind {
		c.id = 0
	}
	n.note(c)
	return nginxMark{before, *n, now, cost, n.ids}
}

func (n *nginx) drop(m mark) { n.again = n.again.without(m.(nginxMark).id) }

// giveBack puts back as it was what nothing was charged on top of, and charges what is left.
func (n *nginx) giveBack(_ int64, m mark, amount int64) {
	c := m.(nginxMark)
	if !n.blind {
		was, left := n.again.giveBack(c.id, amount)
		if was != nil {
			now := *was.(*nginx)
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

func (n *nginx) turn(seen *big.Rat, cost int64) *big.Rat { return turnOf(n, seen, cost) }

func (n *nginx) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (n *nginx) same(o law) bool {
	c, ok := o.(*nginx)
	return ok && n.rate.Cmp(c.rate) == 0 && n.burst == c.burst && n.delay == c.delay
}

func (n *nginx) become(now int64, o law) law {
	next, ok := o.(*nginx)
	switch {
	case !ok:
		return transfer(now, n, o)
	case n.excess == nil:
		return next
	}
	next.excess, next.last = n.at(now), latest(n.last, n.ms(now))
	return next
}

func (n *nginx) spent(now int64) *big.Int {
	return ceil(new(big.Rat).SetFrac(new(big.Int).Add(n.at(now), big.NewInt(1000)), big.NewInt(1000)))
}

// counted is in requests, as everywhere.
func (n *nginx) counted() *big.Int {
	if n.excess == nil {
		return new(big.Int)
	}
	return new(big.Int).Div(n.excess, big.NewInt(1000))
}

func (n *nginx) load(now int64, spent *big.Int) { n.charge(whole(now), clamp(spent)) }
