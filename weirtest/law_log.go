package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// list is the law of SlidingLog (SEMANTICS 6): the charges, in order. A charge counts for as long as the window from its time on, and is
// kept for as long, by the clock: a promise that makes it leave may be given back.
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

// listMark is a charge, the latest promise before it, and the two charges that became one to make room for it.
type listMark struct {
	listed
	before *int64
	joined []listed
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
	if until.Cmp(big.NewInt(int64(century/l.tick))) > 0 || at.Cmp(big.NewInt(math.MaxInt64)) > 0 {
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
	kept, _ := l.live(now)
	kept, joined := l.bounded(kept, t, 1)
	l.made, l.charges = true, append(kept, listed{t, cost})
	return listMark{listed{t, cost}, before, joined}
}

// bounded makes the oldest two charges one that leaves with the later of them, until there is room for more: first of those that count at t,
// of which as many are remembered as the limit says, and then of all, of which there may be twice as many. It returns the last two that
// became one.
func (l *list) bounded(charges []listed, t int64, more int) (_, joined []listed) {
	count := func() int {
		live, _ := (&list{window: l.window, charges: charges}).live(t)
		return len(live)
	}
	join := func(i int) {
		joined = slices.Clone(charges[i : i+2])
		cost := new(big.Int).Add(big.NewInt(joined[0].cost), big.NewInt(joined[1].cost))
		charges = append(append(slices.Clone(charges[:i]), listed{joined[1].at, clamp(cost)}), charges[i+2:]...)
	}
	for n := count(); n+more > l.most; n = count() {
		join(len(charges) - n)
	}
	for len(charges)+more > 2*l.most {
		join(0)
	}
	return slices.Clone(charges), joined
}

// giveBack takes from the newest charge of that time and cost. Where it was the newest of all, those that became one for it are two again,
// and the latest promise is the one before, or that of the charge that is the newest now where that is earlier. Of several charges of one
// time it is not known which was promised: it stays so until none is left.
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
	l.charges = slices.Delete(l.charges, i, i+1)
	if i < len(l.charges) {
		return
	}
	if i == 0 {
		l.promised = nil
		return
	}
	if newest := l.charges[i-1].at; newest < c.at {
		l.promised = c.before
		if c.before != nil && newest < *c.before {
			l.promised = &newest
		}
	}
	l.part(c.joined)
}

// part makes two charges of the one that they became, where it is still there.
func (l *list) part(joined []listed) {
	if joined == nil {
		return
	}
	one := listed{joined[1].at, clamp(new(big.Int).Add(big.NewInt(joined[0].cost), big.NewInt(joined[1].cost)))}
	if i := slices.Index(l.charges, one); i >= 0 && (i == 0 || l.charges[i-1].at <= joined[0].at) {
		l.charges = slices.Replace(l.charges, i, i+1, joined...)
	}
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
	kept, _ := l.live(now)
	next.promised, next.charges = l.promised, kept
	t, _ := next.counts(now)
	next.charges, _ = next.bounded(kept, t, 0)
	next.made = l.made
	return next
}

func (l *list) drop(mark) {}

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

func (l *list) counted() *big.Int {
	sum := new(big.Int)
	for _, c := range l.charges {
		sum.Add(sum, big.NewInt(c.cost))
	}
	return sum
}

func (l *list) load(now int64, spent *big.Int) { l.charge(whole(now), min(clamp(spent), l.limit)) }
