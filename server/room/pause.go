package room

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/weirflow/weir/policy"
)

// The delay between two polls of a visitor: 2 s, plus 10 ms for each visitor ahead, at most 30 s,
// with 20 % jitter, so that visitors who came together do not poll together. So n visitors poll at
// most 100·ln(1+n/200) times per second up to n = 2800, which is 271, and later ones once in 30 s
// each: 10,000 poll about 510 times per second, 100,000 about 3500 times.
const (
	shortestDelay   = 2 * time.Second
	delayPerVisitor = 10 * time.Millisecond
	maxDelay        = 30 * time.Second
)

func (r *Room) pollDelay(ahead int64) time.Duration {
	d := maxDelay
	if ahead < int64((maxDelay-shortestDelay)/delayPerVisitor) {
		d = shortestDelay + time.Duration(ahead)*delayPerVisitor
	}
	return d*4/5 + rand.N(d*2/5)
}

// delayBefore is the delay of a visitor before the opening. Near to it, the next poll comes after the opening, by as much later
// as the visitor is behind others.
func (r *Room) delayBefore(left time.Duration, a Standing) time.Duration {
	d := r.pollDelay(a.Waiting)
	if d > left {
		d = min(left+r.pollDelay(a.Ahead), policy.LongestPoll)
	}
	return d
}

func (r *Room) longestDelay() time.Duration { return maxDelay }

// The expected wait comes from the measured pace. It is unknown before the queue has existed for
// minMeasured, if nobody was admitted, and beyond maxExpected.
const (
	minMeasured = 5 * second
	maxExpected = 24 * time.Hour
)

// expectedWait is how long a visitor will wait if the queue keeps the pace of the last 30 to 60
// seconds: the visitors ahead plus one, times the measured time, divided by the admissions in it.
// It is rounded up; 0 is unknown.
func expectedWait(a Standing) time.Duration {
	if a.Counted <= 0 || a.Span < minMeasured {
		return 0
	}
	high, low := bits.Mul64(uint64(a.Ahead)+1, uint64(a.Span))
	if high >= uint64(a.Counted) {
		return 0
	}
	us, _ := bits.Div64(high, low, uint64(a.Counted))
	if us >= uint64(maxExpected/tick) {
		return 0
	}
	return (time.Duration(us) + 1) * tick
}
