package adaptive

import "time"

// Stats is the present state of a Limiter, and what it has counted since it was made.
type Stats struct {
	Limit, InFlight int64
	Waiting         int // requests in the queue

	// LeastLatency is what a request takes that does not wait for others, as far as the algorithm knows
	// it: Knee, Vegas and BBR learn it. 0: unknown
	LeastLatency time.Duration

	Signals bool // signals of the machine decide whether there is a limit: BBR

	// Overload is why the limit of a BBR is in force, such as "cpu 0.93 of 0.8"; empty while there is none
	Overload string

	Outcomes   Outcomes
	Reasons    Reasons     // why requests were refused
	Refused    []Refusals  // by priority, the most important first
	Partitions []PartStats // in the order of Options.Partitions; the last one, without a name, has all other requests
}

// Reasons counts the requests that were refused, by the reason.
type Reasons struct {
	Full       uint64 // no place was free
	Signal     uint64 // no place was free of those that a signal has left: BBR
	Kept       uint64 // the free places were kept for more important requests, or for other partitions
	OtherUsers uint64 // the requests of this priority did not fit, and other users had their turn
	QueueFull  uint64 // there was no place in the queue, or a more important request took it
	Waited     uint64 // it waited in the queue for Queue.Wait
	CoDel      uint64 // it waited for a tenth of that, in a queue that did not get empty
}

// ReasonCount is one of Reasons by its name.
type ReasonCount struct {
	Name    string // full, signal, kept, other_users, queue_full, waited or codel
	Refused uint64
}

// All returns all reasons, in their order.
func (r Reasons) All() []ReasonCount {
	return []ReasonCount{
		{"full", r.Full}, {"signal", r.Signal}, {"kept", r.Kept}, {"other_users", r.OtherUsers},
		{"queue_full", r.QueueFull}, {"waited", r.Waited}, {"codel", r.CoDel},
	}
}

// add adds counts.
func (r *Reasons) add(other Reasons) {
	r.Full += other.Full
	r.Signal += other.Signal
	r.Kept += other.Kept
	r.OtherUsers += other.OtherUsers
	r.QueueFull += other.QueueFull
	r.Waited += other.Waited
	r.CoDel += other.CoDel
}

// Refusals says how many requests of a priority were refused, and why.
type Refusals struct {
	Priority Priority
	Refused  uint64
	Reasons  Reasons
}

// PartStats is the state of a partition.
type PartStats struct {
	Name              string
	Share             float64
	InFlight, Waiting int
	Refused           uint64
}

// Stats returns the state. It takes the lock that requests take while there are not enough places.
func (l *Limiter) Stats() Stats {
	s := Stats{
		Limit: l.Limit(), InFlight: l.InFlight(), Outcomes: l.Outcomes(), Signals: l.paced != nil, Overload: l.Overload(),
		LeastLatency: time.Duration(l.window.least.Load()),
	}
	g := &l.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Waiting = g.waiting
	reasons := g.reasons
	var by [levelCount]uint64
	all := uint64(0)
	for i := range g.parts {
		p := &g.parts[i]
		part := PartStats{Name: p.name, Share: p.share, InFlight: int(p.held), Waiting: p.n}
		for level, n := range p.refused {
			by[level] += n
			part.Refused += n
		}
		all += part.Refused
		if g.partitioned() {
			s.Partitions = append(s.Partitions, part)
		}
	}
	// what was refused without the lock was Critical
	if plain := s.Outcomes.Refused; plain > all {
		by[Critical.level()] += plain - all
		reasons[Critical.level()].Full += plain - all
	}
	for level := levelCount - 1; level >= 0; level-- {
		why := reasons[level]
		if l.paced != nil { // it has no other limit
			why.Full, why.Signal = 0, why.Full
		}
		s.Refused = append(s.Refused, Refusals{Sheddable + Priority(level), by[level], why})
		s.Reasons.add(why)
	}
	return s
}
