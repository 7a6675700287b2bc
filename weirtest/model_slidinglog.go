package weirtest

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/weirflow/weir"
)

// slidingLog is the model of SlidingLog: a list of the charges, in order. A charge
// counts for one window from its time on. It is kept until the clock, not only a promised time, is
// that far: the reservation with that promised time may still be cancelled.
type slidingLog struct {
	tick   time.Duration
	limit  int64
	window int64 // clock units
	most   int   // how many are remembered

	made     bool
	charges  []loggedCharge // never changed in place
	promised *int64         // the latest promised time that was ahead when it was promised
	floor    *int64         // the latest clock reading at which a charge was made that was the newest when it was given back
}

// loggedCharge is a charge that is remembered.
type loggedCharge struct{ at, cost int64 }

// listMark has a charge, the latest promised time before it, and the two charges that were merged
// to make room for it.
type listMark struct {
	loggedCharge
	before *int64
	joined []loggedCharge
	now    int64 // the clock reading at which it was made
}

func newList(l weir.SlidingLog, tick time.Duration) *slidingLog {
	most := l.MaxEntries
	if most == 0 {
		most = int(max(2, min(l.Limit, 4096)))
	}
	return &slidingLog{tick: tick, limit: l.Limit, window: int64(l.Window / tick), most: most}
}

func (l *slidingLog) size() int64        { return l.limit }
func (l *slidingLog) largest() int64     { return l.limit }
func (l *slidingLog) chargesAhead() bool { return true }
func (l *slidingLog) turnsMove() bool    { return false }
func (l *slidingLog) contact(int64)      {}
func (l *slidingLog) touched() bool      { return l.made }
func (l *slidingLog) clone() algorithm   { c := *l; return &c }
func (l *slidingLog) String() string {
	s := fmt.Sprint(l.made, l.charges)
	for _, t := range []*int64{l.promised, l.floor} {
		if s += " -"; t != nil {
			s += fmt.Sprint(*t)
		}
	}
	return s
}

// counts returns the time at which the state is evaluated, and whether it is a promised time. A
// clock reading before the newest charge counts as the time of that charge, also after the charge
// was given back: what had expired by then is forgotten.
func (l *slidingLog) counts(now int64) (t int64, promised bool) {
	if t = now; l.promised != nil && *l.promised > now {
		t, promised = *l.promised, true
	}
	if n := len(l.charges); n > 0 {
		t = max(t, l.charges[n-1].at)
	}
	if l.floor != nil {
		t = max(t, *l.floor)
	}
	return t, promised
}

// reached: the newest charge was made, and what was given back had been made.
func (l *slidingLog) reached() *big.Int {
	if !l.made {
		return nil
	}
	t, _ := l.counts(promised(l.promised, 0))
	return big.NewInt(t)
}

// live returns the charges that count at t: those made less than a window ago.
func (l *slidingLog) live(t int64) (live []loggedCharge, sum *big.Int) {
	sum = new(big.Int)
	for _, c := range l.charges {
		if new(big.Int).Add(big.NewInt(c.at), big.NewInt(l.window)).Cmp(big.NewInt(t)) > 0 {
			live = append(live, c)
			sum.Add(sum, big.NewInt(c.cost))
		}
	}
	return live, sum
}

// when returns the first time from t on at which a cost fits, as charges leave one by one.
func (l *slidingLog) when(t, cost int64) *big.Int {
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

// plan behind others adds up the costs: after the first part, each further Limit takes a window.
func (l *slidingLog) plan(now int64, ahead *big.Int, cost int64) (wait, room *big.Rat) {
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

func (l *slidingLog) peek(now int64, ahead *big.Int) (remaining int64, reset *big.Int) {
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

func (l *slidingLog) charge(at *big.Rat, cost int64) { l.reserve(down(at), at, cost) }

func (l *slidingLog) reserve(now int64, due *big.Rat, cost int64) mark {
	at := max(now, down(due))
	if l.promised != nil {
		at = max(at, *l.promised)
	}
	before := l.promised
	if l.promised = nil; at > now {
		l.promised = &at
	}
	t, _ := l.counts(at)
	kept, _ := l.live(now)
	kept, joined := l.bounded(kept, t, 1)
	l.made, l.charges = true, append(kept, loggedCharge{t, cost})
	return listMark{loggedCharge{t, cost}, before, joined, now}
}

// bounded merges the oldest two charges into one that leaves with the later of them, until there is
// room for more charges. It does so for the charges that count at t, of which MaxEntries are kept,
// and then for all charges, of which twice as many are kept. It returns the last two that were
// merged.
func (l *slidingLog) bounded(charges []loggedCharge, t int64, more int) (_, joined []loggedCharge) {
	count := func() int {
		live, _ := (&slidingLog{window: l.window, charges: charges}).live(t)
		return len(live)
	}
	join := func(i int) {
		joined = slices.Clone(charges[i : i+2])
		cost := new(big.Int).Add(big.NewInt(joined[0].cost), big.NewInt(joined[1].cost))
		charges = append(append(slices.Clone(charges[:i]), loggedCharge{joined[1].at, clamp(cost)}), charges[i+2:]...)
	}
	for n := count(); n+more > l.most; n = count() {
		join(len(charges) - n)
	}
	for len(charges)+more > 2*l.most {
		join(0)
	}
	return slices.Clone(charges), joined
}

// giveBack removes the newest charge of that time and cost. If it was the newest of all, the
// charges that were merged for it are two again, and the latest promised time is the one before it,
// or the time of the charge that is now the newest if that is earlier. Of several charges of one
// time, it is not known which one was promised, so the promise stays until all of them are gone.
func (l *slidingLog) giveBack(_ int64, m mark, amount int64) {
	c := m.(listMark)
	i := len(l.charges) - 1
	for i >= 0 && l.charges[i] != c.loggedCharge {
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
	if l.floor == nil || *l.floor < c.now {
		l.floor = &c.now
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

// part splits a merged charge into two again, if it is still there.
func (l *slidingLog) part(joined []loggedCharge) {
	if joined == nil {
		return
	}
	one := loggedCharge{joined[1].at, clamp(new(big.Int).Add(big.NewInt(joined[0].cost), big.NewInt(joined[1].cost)))}
	if i := slices.Index(l.charges, one); i >= 0 && (i == 0 || l.charges[i-1].at <= joined[0].at) {
		l.charges = slices.Replace(l.charges, i, i+1, joined...)
	}
}

func (l *slidingLog) turn(seen *big.Rat, cost int64) *big.Rat {
	wait, _ := l.plan(up(seen), new(big.Int), cost)
	if wait == nil || up(add(seen, wait)) == math.MaxInt64 {
		return nil
	}
	return add(whole(up(seen)), wait)
}

func (l *slidingLog) asOf(_ *big.Rat, now int64) *big.Rat { return whole(now) }

func (l *slidingLog) same(o algorithm) bool {
	c, ok := o.(*slidingLog)
	return ok && l.limit == c.limit && l.window == c.window && l.most == c.most
}

// changedTo keeps the charges that have not left.
func (l *slidingLog) changedTo(now int64, o algorithm) algorithm {
	next, ok := o.(*slidingLog)
	if !ok {
		return transfer(now, l, o)
	}
	kept, _ := l.live(now)
	next.promised, next.floor, next.charges = l.promised, l.floor, kept
	t, _ := next.counts(now)
	next.charges, _ = next.bounded(kept, t, 0)
	next.made = l.made
	return next
}

func (l *slidingLog) drop(mark) {}

func (l *slidingLog) convertMark(_ int64, m mark, o algorithm) mark {
	if _, ok := o.(*slidingLog); ok {
		return m
	}
	return nil
}

func (l *slidingLog) spent(now int64) *big.Int {
	t, _ := l.counts(now)
	_, sum := l.live(t)
	return sum
}

func (l *slidingLog) counted() *big.Int {
	sum := new(big.Int)
	for _, c := range l.charges {
		sum.Add(sum, big.NewInt(c.cost))
	}
	return sum
}

func (l *slidingLog) load(now int64, spent *big.Int) {
	l.charge(whole(now), min(clamp(spent), l.limit))
}
