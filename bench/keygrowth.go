package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/weirflow/weir"
	weirkeyed "github.com/weirflow/weir/keyed"
)

// longestStall is the most CPU time that one call of a growing table may take.
const longestStall = time.Millisecond

// What is timed call by call in keygrowth.
const (
	growing   = "Take of the next new key"
	oneKey    = "Take of one key, as many calls"
	oneKeyFor = "Take of one key, as long"
	clockOnly = "the clocks alone, as many calls"
)

// keyGrowth measures each call while a table grows, beside calls that do not grow anything.
func keyGrowth(r *report) error {
	found, err := apart([]job{{Kind: "growth", N: 10 * r.keys}}, r.repeats())
	if err != nil {
		return err
	}
	r.add(growthTable(10*r.keys, found[0]))
	return nil
}

// growthTable lays out what was found.
func growthTable(keys int, found values) table {
	t := table{
		Title: fmt.Sprintf("the longest calls while a table grows from 1 to %d keys, us", keys),
		Notes: []string{
			"one goroutine, one process; each call is timed twice: by the clock on the wall, and by the CPU time of its thread",
			"the wall has all that interrupts a process too, as the lines that grow nothing show; the CPU time is the call's own work,",
			"with what the kernel does for it (fresh pages) and what the collector has it do; both clocks cost some of the time themselves",
			"> 1ms: how many calls took longer",
		},
		Columns: []column{
			{"calls", 0}, {"s", 2}, {"wall p99.999", 1}, {"wall max", 1}, {"wall > 1ms", 0}, {"CPU p99.999", 1}, {"CPU max", 1}, {"CPU > 1ms", 0},
		},
	}
	for _, name := range []string{growing, oneKey, oneKeyFor, clockOnly} {
		line := values{}
		for _, what := range stallFigures {
			line[what] = found.get(name + " " + what)
		}
		row := line.row(name, stallFigures...)
		if name == growing {
			row.Target, row.Missed = atMost(line.get("cpumax"), micros(longestStall), "us of CPU in a call")
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// stallFigures are those of one line.
var stallFigures = []string{"calls", "s", "p", "max", "over", "cpup", "cpumax", "cpuover"}

// growth times every call while a table grows to N keys.
func growth(j job) (values, error) {
	runtime.LockOSThread() // the CPU time is that of the thread
	defer runtime.UnlockOSThread()
	if _, err := threadTime(); err != nil {
		return nil, err
	}
	l, err := weirkeyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: keyBurst}, weirkeyed.Options{MaxKeys: ceiling(j.N)})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	small, err := weirkeyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1), Burst: keyBurst}, weirkeyed.Options{})
	if err != nil {
		return nil, err
	}
	defer small.Close()
	var w keyWriter
	hot := slices.Clone(w.key(0))
	weirkeyed.TakeText(small, hot, keyOwes)

	v := values{}
	timeCalls(j.N, 0, func(int) { weirkeyed.TakeText(small, hot, 1) }).report(v, oneKey)
	timeCalls(j.N, 0, func(int) {}).report(v, clockOnly)
	runtime.GC()
	grown := timeCalls(j.N, 0, func(i int) { weirkeyed.TakeText(l, w.key(i), keyOwes) })
	if n := l.Len(); n != j.N {
		return nil, fmt.Errorf("the table has %d keys, where %d were to be in it", n, j.N)
	}
	grown.report(v, growing)
	timeCalls(j.N, grown.took, func(int) { weirkeyed.TakeText(small, hot, 1) }).report(v, oneKeyFor)
	return v, nil
}

// A stalls holds how long each of many calls took, by two clocks.
type stalls struct {
	wall, cpu *times
	calls     int
	took      time.Duration
}

// timeCalls times at least n calls, one by one, for at least the duration least.
func timeCalls(n int, least time.Duration, call func(i int)) stalls {
	s := stalls{wall: new(times), cpu: new(times)}
	begin := time.Now()
	wall := begin
	cpu, _ := threadTime() // it could be read before
	for i := 0; i < n || wall.Sub(begin) < least; i++ {
		call(i)
		cpuNow, _ := threadTime()
		now := time.Now()
		s.wall.add(now.Sub(wall))
		s.cpu.add(cpuNow - cpu)
		wall, cpu = now, cpuNow
		s.calls++
	}
	s.took = wall.Sub(begin)
	return s
}

// report names the figures.
func (s stalls) report(v values, name string) {
	v[name+" calls"], v[name+" s"] = float64(s.calls), s.took.Seconds()
	v[name+" p"], v[name+" max"], v[name+" over"] = micros(s.wall.rank(0.99999)), micros(s.wall.max), float64(s.wall.over)
	v[name+" cpup"], v[name+" cpumax"], v[name+" cpuover"] = micros(s.cpu.rank(0.99999)), micros(s.cpu.max), float64(s.cpu.over)
}

// A times counts durations in steps of 16 ns. Its memory is constant, so that the number of calls
// does not change what is measured.
type times struct {
	counts [1 << 17]uint32 // the last one counts all longer durations
	n      int
	max    time.Duration
	over   int // longer than longestStall
}

const timesStep = 16 * time.Nanosecond

func (t *times) add(d time.Duration) {
	t.n++
	t.counts[min(max(d, 0)/timesStep, time.Duration(len(t.counts)-1))]++
	t.max = max(t.max, d)
	if d > longestStall {
		t.over++
	}
}

// rank returns the duration that a share p, from 0 to 1, of the durations do not exceed, rounded up
// to a step. Beyond the last step, it returns the longest duration.
func (t *times) rank(p float64) time.Duration {
	below := 0
	for i, n := range t.counts[:len(t.counts)-1] {
		if below += int(n); float64(below) >= p*float64(t.n) {
			return min(time.Duration(i+1)*timesStep, t.max)
		}
	}
	return t.max
}
