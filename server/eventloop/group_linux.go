package eventloop

import (
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A Group is the loops of a server. It begins to use goroutines and file descriptors with its first
// connection, and ends with its last one after Close. A nil Group takes no connection. It is safe for
// concurrent use.
type Group struct {
	base  time.Time // the zero of its clock
	size  int       // loops
	next  atomic.Uint32
	local atomic.Pointer[net.TCPAddr] // of the last connection: most have the same

	watched atomic.Bool // the watchdog runs

	mu      sync.Mutex
	loops   []*loop
	spares  []*driver // goroutines without a loop; the last one was used last
	open    int       // connections
	closing bool
}

// mostSpares bounds the goroutines that are kept for the next Detach, with the stacks that they have
// grown, until nothing happens.
const mostSpares = 128

// A driver is a goroutine that drives a loop until the loop is taken over.
type driver struct {
	loop    chan *loop // the next one; closed to end the driver
	running uint64     // the turn that it began last
}

func newDriver() *driver { return &driver{loop: make(chan *loop, 1)} }

// New returns a Group with a loop for each processor that Go uses.
func New() *Group { return newGroup(runtime.GOMAXPROCS(0)) }

func newGroup(size int) *Group { return &Group{base: time.Now(), size: size} }

// now is the time on the Group's clock: nanoseconds, above 0.
func (g *Group) now() int64 { return int64(time.Since(g.base)) + 1 }

// on is a time on the Group's clock; 0 for the zero time, and otherwise at least 1.
func (g *Group) on(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(int64(min(t.Sub(g.base), math.MaxInt64-1))+1, 1)
}

// Close ends the Group once its connections are closed. It takes no more connections.
func (g *Group) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = true
	g.endIfUnused()
}

// enter counts a connection, and returns the loop for it: nil if the Group takes none, or the system
// lacks descriptors.
func (g *Group) enter() *loop {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return nil
	}
	if g.loops == nil {
		g.begin()
	}
	if len(g.loops) == 0 {
		return nil
	}
	g.open++
	return g.loops[int(g.next.Add(1))%len(g.loops)]
}

// begin starts the loops. g.mu is locked.
func (g *Group) begin() {
	for range g.size {
		l, err := newLoop(g)
		if err != nil {
			break // fewer are enough; without any, the next connection tries again
		}
		g.loops = append(g.loops, l)
		go g.drive(newDriver(), l)
	}
}

// leave ends the Group with its last connection.
func (g *Group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	g.endIfUnused()
}

// endIfUnused ends the loops and the drivers. g.mu is locked.
func (g *Group) endIfUnused() {
	if !g.closing || g.open > 0 {
		return
	}
	for _, l := range g.loops {
		l.end()
	}
	g.endSpares()
	g.loops = nil
}

// endSpares ends the drivers without a loop. g.mu is locked.
func (g *Group) endSpares() {
	for _, d := range g.spares {
		close(d.loop)
	}
	g.spares = nil
}

// handOver gives a loop to a driver that has none, or to a new one.
func (g *Group) handOver(l *loop) {
	g.mu.Lock()
	n := len(g.spares)
	if n == 0 {
		g.mu.Unlock()
		go g.drive(newDriver(), l)
		return
	}
	d := g.spares[n-1]
	g.spares[n-1] = nil
	g.spares = g.spares[:n-1]
	g.mu.Unlock()
	d.loop <- l
}

// spare keeps a driver for later, and reports false if it must end.
func (g *Group) spare(d *driver) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.spares) >= mostSpares || g.closing && g.open == 0 || !g.watched.Load() { // the watchdog ends the spares when it ends
		return false
	}
	g.spares = append(g.spares, d)
	return true
}

// drive drives one loop after another.
func (g *Group) drive(d *driver, l *loop) {
	ended := false
	defer func() { // a Handler that panics or calls runtime.Goexit ends this goroutine, and not the loop
		if !ended {
			l.takeOver(d.running)
		}
	}()
	for {
		l.run(d)
		if !g.spare(d) {
			break
		}
		next, ok := <-d.loop
		if !ok {
			break
		}
		l = next
	}
	ended = true
}

// The watchdog looks this often, which costs about 1 % of a processor each millisecond: a Handler that
// waits should have called Detach. It ends after some looks without a turn.
const (
	watchEvery = 5 * time.Millisecond
	watchIdly  = 3
)

// watch starts the watchdog if it does not run.
func (g *Group) watch() {
	if g.watched.CompareAndSwap(false, true) {
		g.mu.Lock()
		loops := g.loops
		g.mu.Unlock()
		go g.watchdog(loops)
	}
}

// watchdog takes over loops whose turn takes longer than between two looks. It ends when the loops
// have nothing to do, and the next turn starts it again.
func (g *Group) watchdog(loops []*loop) {
	seen, idle := make([]uint64, len(loops)), 0
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for range ticker.C {
		turned := false
		for i, l := range loops {
			switch now := l.owner.Load(); {
			case now != seen[i]:
				turned, seen[i] = true, now
			case isRunning(now):
				l.takeOver(now)
			}
		}
		if idle++; turned {
			idle = 0
		}
		if idle == watchIdly && g.unwatch(loops, seen) {
			g.mu.Lock()
			g.endSpares() // nothing happens: their stacks can go
			g.mu.Unlock()
			return
		}
	}
}

// unwatch reports whether the watchdog can end. A turn that began since the last look has seen a
// watchdog.
func (g *Group) unwatch(loops []*loop, seen []uint64) bool {
	g.watched.Store(false)
	for i, l := range loops {
		if l.owner.Load() != seen[i] {
			return !g.watched.CompareAndSwap(false, true)
		}
	}
	return true
}
