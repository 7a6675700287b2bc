package overload

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// open lets every request pass, and counts what becomes of them.
func open(counts *[3]int) Limiter {
	return Limiter{Limit: func() int64 { return 0 }, Enter: func() (func(weir.Outcome), bool) {
		return func(o weir.Outcome) { counts[o]++ }, true
	}}
}

// TestServesWhatItCan: below the capacity all requests are served, at three times the capacity as
// many as fit, and the queue makes clients give up.
func TestServesWhatItCan(t *testing.T) {
	for rate, want := range map[float64]int{50: 500, 300: 1000} {
		s := Scenario{For: 10 * time.Second, Work: Constant(100 * time.Millisecond), At: func(time.Duration) Service {
			return Service{Workers: 10, Rate: rate}
		}}
		var counts [3]int
		got := Between(New(s).Run(open(&counts)), 0, s.For)
		if got.Good < want*9/10 || got.Good > want*11/10 || got.Good != counts[weir.OK] || got.Dropped > 0 {
			t.Errorf("at %g/s: %+v", rate, got)
		}
		if long := got.P99 > 5*time.Second; long != (rate > 100) {
			t.Errorf("at %g/s the p99 is %v", rate, got.P99)
		}
		s.Abandon = time.Second
		counts = [3]int{}
		got = Between(New(s).Run(open(&counts)), 0, s.For)
		if lost := got.Dropped > 0; lost != (rate > 100) || got.Dropped != counts[weir.Dropped] || got.P99 > time.Second {
			t.Errorf("at %g/s, with clients that give up: %+v", rate, got)
		}
	}
}

// TestPausesAndQueues: a pause delays what is being served, and a full queue drops.
func TestPausesAndQueues(t *testing.T) {
	s := Scenario{For: 4 * time.Second, Work: Constant(100 * time.Millisecond), At: func(d time.Duration) Service {
		return Service{Workers: 10, Rate: 50, Queue: 5, Paused: d >= time.Second && d < 2*time.Second}
	}}
	var counts [3]int
	bins := New(s).Run(open(&counts))
	paused, after := Between(bins, 1100*time.Millisecond, 1900*time.Millisecond), Between(bins, 0, s.For)
	if paused.Good != 0 || paused.Dropped == 0 || after.P99 < 900*time.Millisecond || after.Dropped != counts[weir.Dropped] {
		t.Errorf("paused: %+v, in all: %+v", paused, after)
	}
}
