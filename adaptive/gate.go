package adaptive

import (
	"math"
	"sync"
	"time"
)

// A gate decides about requests that find no place on the lock-free path: who of them goes first,
// who waits, and who is refused. While it has to decide about all, the word's bit busy sends every
// request here: always with partitions, while requests wait, and after a refusal if requests differ
// in priority or user.
type gate struct {
	l      *Limiter
	always bool // there are partitions or a queue
	queue  Queue

	mu      sync.Mutex
	parts   []part // the last one is for requests of no partition
	names   map[string]int
	waiting int   // over all parts
	latest  int64 // when a request last arrived here
	refused int64 // when one was last refused
	places  int64 // the limit that the headrooms were computed for
	reasons [levelCount]Reasons

	// After the limit was lowered, important requests may still replace others that leave, as long as
	// fewer than this are in flight. Each that does lowers it, so it is the limit soon.
	drain float64
}

// calmAfter is for how long nobody may be refused until requests need no lock again.
const calmAfter = int64(time.Second)

// A reason says why a request has no place.
type reason uint8

const (
	admitted   reason = iota
	reached           // no place is free
	keptFor           // those that are free are kept for more important requests or for other partitions
	otherUsers        // the level does not fit, and other users have their turn
	queueFull
	tooLong // it waited for as long as the queue allows
	codel   // it waited for a part of that, in a queue that does not get empty
	gone    // its context has ended
)

func (r *Reasons) count(why reason) {
	switch why {
	case reached:
		r.Full++
	case keptFor:
		r.Kept++
	case otherUsers:
		r.OtherUsers++
	case queueFull:
		r.QueueFull++
	case tooLong:
		r.Waited++
	case codel:
		r.CoDel++
	}
}

// init prepares the gate of a limiter. The options are valid.
func (g *gate) init(l *Limiter, o Options) {
	g.l, g.queue, g.always = l, o.Queue, len(o.Partitions) > 0 || o.Queue.Length > 0
	g.names = map[string]int{}
	rest := 1.0
	for i, p := range o.Partitions {
		g.names[p.Name] = i
		g.parts = append(g.parts, part{name: p.Name, share: p.Share})
		rest -= p.Share
	}
	g.parts = append(g.parts, part{share: max(rest, 0)})
	g.refused = -calmAfter
	if len(o.Partitions) > 0 {
		l.word.Or(busy)
	}
}

// partitioned reports whether there are partitions.
func (g *gate) partitioned() bool { return len(g.parts) > 1 }

func (g *gate) part(name string) int {
	if i, ok := g.names[name]; ok {
		return i
	}
	return len(g.parts) - 1
}

// tryEnter takes a place, or refuses the request.
func (g *gate) tryEnter(r Request) (Hold, bool) {
	g.mu.Lock()
	defer g.unlock()
	p, why := g.arrive(r)
	if why == admitted {
		return g.occupy(p), true
	}
	g.refuse(p, r.Priority.level(), why)
	return Hold{}, false
}

// attempt takes a place, or leaves no trace: the request comes again.
func (g *gate) attempt(r Request) (h Hold, ok bool) {
	g.mu.Lock()
	defer g.unlock()
	a := g.look(r)
	p := &g.parts[a.part]
	if g.check(p, a.level, a.rank, a.free) != admitted {
		return h, false
	}
	g.note(p, a)
	p.admitted++
	return g.occupy(a.part), true
}

// refuses refuses a request that has no place, or leaves no trace: the request comes again.
func (g *gate) refuses(r Request) bool {
	g.mu.Lock()
	defer g.unlock()
	a := g.look(r)
	p := &g.parts[a.part]
	why := g.check(p, a.level, a.rank, a.free)
	if why == admitted {
		return false
	}
	g.note(p, a)
	g.refuse(a.part, a.level, why)
	return true
}

// arrive decides about a request that has just come, under the lock. It returns its part.
func (g *gate) arrive(r Request) (int, reason) {
	a := g.look(r)
	p := &g.parts[a.part]
	g.note(p, a)
	why := g.check(p, a.level, a.rank, a.free)
	if why == admitted {
		p.admitted++
	}
	return a.part, why
}

// An arrival is a request at a moment.
type arrival struct {
	part, level, rank int
	free, now         int64
}

// note counts an arrival.
func (g *gate) note(p *part, a arrival) {
	p.count(a.rank)
	p.see(a.level, a.free, float64(g.places), a.now)
	g.latest = a.now
}

// look brings the gate up to date, under the lock, and returns where a request stands.
func (g *gate) look(r Request) arrival {
	l := g.l
	l.word.Or(busy)
	now := l.now()
	if l.paced != nil {
		l.paced.at(now)
	}
	g.serve()
	i := g.part(r.Partition)
	p, level := &g.parts[i], r.Priority.level()
	for j := range g.parts {
		g.parts[j].settle(now)
		if now-g.refused > calmAfter { // all fit again, so no user has to have a turn
			g.parts[j].threshold = 0
		}
	}
	g.publish()
	user := r.User
	if user == 0 {
		user = l.word.Load()>>numberShift + p.arrived<<32
	}
	rank := level<<userBits | int(spread(user, now)>>(64-userBits))
	return arrival{part: i, level: level, rank: rank, free: g.free(i), now: now}
}

// unlock ends what arrive has begun. From then on requests need the lock no more if nobody waits,
// nobody was refused for a while, and no level needs places that the zero Request would take.
func (g *gate) unlock() {
	if !g.partitioned() && g.waiting == 0 && g.latest-g.refused > calmAfter && g.parts[0].keep[Critical.level()] == 0 {
		g.l.word.And(^uint64(busy))
	}
	g.mu.Unlock()
}

// publish makes the headrooms known to the lock-free path.
func (g *gate) publish() {
	g.places = g.l.Limit()
	if n := float64(g.places); n > g.drain || g.l.InFlight() <= g.places {
		g.drain = n
	}
	if g.partitioned() {
		return
	}
	for level := range g.l.leave {
		if leave := g.parts[0].leave(level, g.places); g.l.leave[level].Load() != leave {
			g.l.leave[level].Store(leave)
		}
	}
}

// free returns how many places a part may still take.
func (g *gate) free(i int) int64 {
	places := g.l.Limit()
	free := places - g.l.InFlight()
	if !g.partitioned() {
		return free
	}
	p := &g.parts[i]
	// what others want of their shares is theirs
	kept := 0.0
	for j := range g.parts {
		if j != i {
			kept += g.parts[j].lacks(float64(places))
		}
	}
	own := math.Ceil(p.share*float64(places)) - float64(p.held)
	return min(free, max(int64(own), free-int64(math.Ceil(kept))))
}

// check decides about a request of a part and a rank, for which so many places are free.
func (g *gate) check(p *part, level, rank int, free int64) reason {
	keep, most := p.leave(level, g.places), g.places-1
	if g.partitioned() { // who is alone in a partition is served: it may have fewer places than the limit
		most = min(most, max(free+p.held-1, 0))
		keep = min(keep, most)
	}
	switch {
	case g.l.InFlight() >= g.places:
		if float64(g.l.InFlight()) < g.drain && p.above(level) {
			return admitted
		}
		return reached
	case free <= keep:
		return keptFor
	case rank < p.threshold && free <= min(keep+g.places/8+1, most):
		return otherUsers
	}
	return admitted
}

// occupy takes a place for a part, under the lock: no other caller can take one meanwhile, as the
// word is busy.
func (g *gate) occupy(i int) Hold {
	if g.l.InFlight() >= g.places {
		g.drain -= 0.5
	}
	if p := &g.parts[i]; g.partitioned() {
		p.held++
		p.wish(float64(p.held), g.places)
	}
	return g.l.occupy(i)
}

// refuse counts a request that is refused, under the lock.
func (g *gate) refuse(i, level int, why reason) {
	g.l.refused.Add(1)
	g.reasons[level].count(why)
	p := &g.parts[i]
	p.refused[level]++
	g.refused = g.l.now()
	p.wish(p.want+1, g.places)
	if g.queue.Length == 0 && g.l.InFlight() <= g.places { // in a queue, they go first without that
		p.raise(level, why)
		g.publish()
	}
}

// left is called after a request of a part has left while the word was busy.
func (g *gate) left(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.partitioned() {
		g.parts[i].held--
	}
	g.serve()
}
