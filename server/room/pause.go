package room

import (
	"math/bits"
	"math/rand/v2"
	"time"
)

// How soon a visitor asks again: 2 s, and 10 ms more for each one ahead, up to 30 s, and all that 20 % more or less, so that those who
// came together do not ask together. So n visitors in line ask at most 100·ln(1+n/200) times a second up to n = 2800, which is 271, and those
// behind them once in 30 s each: 10,000 ask some 510 times a second, 100,000 some 3500 times.
const (
	shortPause   = 2 * time.Second
	pauseForEach = 10 * time.Millisecond
	longPause    = 30 * time.Second
)

func (r *Room) pause(ahead int64) time.Duration {
	d := longPause
	if ahead < int64((longPause-shortPause)/pauseForEach) {
		d = shortPause + time.Duration(ahead)*pauseForEach
	}
	return d*4/5 + rand.N(d*2/5)
}

func (r *Room) longest() time.Duration { return longPause }

// The wait that is told is by the pace that was measured. Before there was a line for so long, or where nobody was let in, none is told; and
// none beyond a day.
const (
	enough  = 5 * second
	tooLong = 24 * time.Hour
)

// expected is how long a visitor will wait if the line goes on as it did over the last 30 to 60 seconds: who is ahead, and oneself, times the time
// that was measured, by how many were let in. It is rounded up; 0 is not known.
func expected(a Answer) time.Duration {
	if a.Counted <= 0 || a.Span < enough {
		return 0
	}
	high, low := bits.Mul64(uint64(a.Ahead)+1, uint64(a.Span))
	if high >= uint64(a.Counted) {
		return 0
	}
	us, _ := bits.Div64(high, low, uint64(a.Counted))
	if us >= uint64(tooLong/tick) {
		return 0
	}
	return (time.Duration(us) + 1) * tick
}
