package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// list is the law of SlidingLog (SEMANTICS 6): the charges, in order. A charge counts for as long as the window from its time on.
type list struct {
	tick   time.Duration
	limit  int64
	window int64 // clock units
	most   int   // how many are remembered

	made     bool
	charges  []listed // never changed in place
	promised *int64   // the latest time promised that lay ahead when it was
}

// listed is a charge that is remembered.
type listed struct{ at, cost int64 }

// listMark is a charge, and the latest promise before it.
type listMark struct {
	listed
	before *int64
}

func newList(l weir.SlidingLog, tick time.Duration) *list {
	most := l.MaxEntries
	if most == 0 {
		most = int(max(2, min(l.Limit, 4096)))
	}
	return &list{tick: tick, limit: l.Limit, window: int64(l.Window / tick), most: most}
}

func (l *list) size() int64    { return l.limit }
func (l *list) largest() int64 { return l.limit }
func (l *list) books() bool    { return true }
func (l *list) moves() bool    { return false }
func (l *list) contact(int64)  {}
func (l *list) touched() bool  { return l.made }
func (l *list) clone() law     { c := *l; return &c }
func (l *list) String() string {
	if l.promised != nil {
		return fmt.Sprint(l.charges, *l.promised)
	}
	return fmt.Sprint(l.made, l.charges)
}

// counts is the time that counts at a reading, and whether it is one that was promised: that of the newest charge for an earlier reading.
func (l *list) counts(now int64) (t int64, promised bool) {
	if t = now; l.promised != nil && *l.promised > now {
		t, promised = *l.promised, true
	}
	if n := len(l.charges); n > 0 {
		t = max(t, l.charges[n-1].at)
	}
	return t, promised
}

// live is the charges that count at t: those that were not made the window or longer ago.
func (l *list) live(t int64) (live []listed, sum *big.Int) {
	sum = new(big.Int)
	for _, c := range l.charges {
		if new(big.Int).Add(big.NewInt(c.at), big.NewInt(l.window)).Cmp(big.NewInt(t)) > 0 {
			live = append(live, c)
			sum.Add(sum, big.NewInt(c.cost))
		}
	}
	return live, sum
}

// when is the first time from t on at which a cost fits: charges leave one by one.
func (l *list) when(t, cost int64) *big.Int {
	at := big.NewInt(t)
	live, sum := l.live(t)
	for _, c := range live {
		if sum.Cmp(big.NewInt(l.limit-cost)) <= 0 {
			break
		}
		at = new(big.Int).Add(big.NewInt(c.at), big.NewInt(l.window))
		sum.Sub(sum, big.NewInt(c.cost))
	}
	return at
}

// plan behind others goes by volume: after the first part of it, each further limit takes a window.
func (l *list) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
	t, promised := l.counts(now)
	at := l.when(t, cost)
	if ahead.Sign() > 0 {
		last := new(big.Int).Add(ahead, big.NewInt(cost-1))
		windows, part := new(big.Int).DivMod(last, big.NewInt(l.limit), new(big.Int))
		behind := windows.Add(l.when(t, part.Int64()+1), windows.Mul(windows, big.NewInt(l.window)))
		if behind.Cmp(at) > 0 {
			at = behind
		}
	}
	until := new(big.Int).Sub(at, big.NewInt(now))
	if at.Cmp(big.NewInt(t)) == 0 && !promised {
		until.SetInt64(0) // an earlier reading does not wait for the newest charge's time
	} else if at.Cmp(big.NewInt(t)) == 0 {
		until.Sub(big.NewInt(*l.promised), big.NewInt(now))
	}
	if until.Cmp(big.NewInt(int64(century/l.tick))) > 0 || at.Cmp(big.NewInt(math.MaxInt64)) >= 0 {
		return nil, nil
	}
	return exact(until), new(big.Rat)
}

func (l *list) look(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
	t, promised := l.counts(now)
	_, sum := l.live(t)
	reset = new(big.Int)
	switch n := len(l.charges); {
	case ahead.Sign() > 0:
		reset.Sub(new(big.Int).Add(big.NewInt(t), big.NewInt(l.window)), big.NewInt(now))
	case sum.Sign() > 0:
		reset.Sub(new(big.Int).Add(big.NewInt(l.charges[n-1].at), big.NewInt(l.window)), big.NewInt(now))
	}
	if promised {
		if until := new(big.Int).Sub(big.NewInt(*l.promised), big.NewInt(now)); until.Cmp(reset) > 0 {
			reset = until
		}
		return 0, reset
	}
	left := new(big.Int).Sub(big.NewInt(l.limit), sum)
	return max(0, clamp(left.Sub(left, ahead))), reset
}

func (l *list) charge(at *big.Rat, cost int64) { l.book(down(at), at, cost) }

func (l *list) book(now int64, due *big.Rat, cost int64) mark {
	at := max(now, down(due))
	if l.promised != nil {
		at = max(at, *l.promised)
	}
	before := l.promised
	if l.promised = nil; at > now {
		l.promised = &at
	}
	t := at
	if n := len(l.charges); n > 0 {
		t = max(t, l.charges[n-1].at)
	}
	live, _ := l.live(t)
	l.made, l.charges = true, append(merged(live, l.most-1), listed{t, cost})
	return listMark{listed{t, cost}, before}
}

// merged makes the oldest two one that leaves with the later of them, until there are at most so many.
func merged(charges []listed, most int) []listed {
	charges = slices.Clone(charges)
	for len(charges) > most {
		charges[1].cost = clamp(new(big.Int).Add(big.NewInt(charges[0].cost), big.NewInt(charges[1].cost)))
		charges = charges[1:]
	}
	return charges
}

// giveBack takes from the newest charge of that time and cost. Where it was the newest of all, and the only one of its time, what was
// promised before is the latest again.
func (l *list) giveBack(_ int64, m mark, amount int64) {
	c := m.(listMark)
	i := len(l.charges) - 1
	for i >= 0 && l.charges[i] != c.listed {
		i--
	}
	if i < 0 {
		return
	}
	l.charges = slices.Clone(l.charges)
	if l.charges[i].cost -= amount; l.charges[i].cost > 0 {
		return
	}
	if i == len(l.charges)-1 && (i == 0 || l.charges[i-1].at < c.at) {
		l.promised = c.before
	}
	l.charges = slices.Delete(l.charges, i, i+1)
}

func (l *list) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := l.plan(up(seen), new(big.Int), cost)
	if wait == nil || up(add(seen, wait)) == math.MaxInt64 {
		return nil
	}
	return add(whole(up(seen)), wait)
}

func (l *list) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (l *list) same(o law) bool {
	c, ok := o.(*list)
	return ok && l.limit == c.limit && l.window == c.window && l.most == c.most
}

// become keeps what has not left.
func (l *list) become(now int64, o law) law {
	next, ok := o.(*list)
	if !ok {
		return transfer(now, l, o)
	}
	t, _ := l.counts(now)
	live, _ := l.live(t)
	next.made, next.charges, next.promised = l.made, merged(live, next.most), l.promised
	return next
}

func (l *list) remark(_ int64, m mark, o law) mark {
	if _, ok := o.(*list); ok {
		return m
	}
	return nil
}

func (l *list) spent(now int64) *big.Int {
	t, _ := l.counts(now)
	_, sum := l.live(t)
	return sum
}

func (l *list) load(now int64, spent *big.Int) { l.charge(whole(now), min(clamp(spent), l.limit)) }
