package nginx

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A sequence is a list of requests with their times and expected results.
type sequence struct {
	class, variant int
	of             variant
	margin         time.Duration // how late a request may arrive without another decision
	requests       []planned
}

// planned is a request of a sequence.
type planned struct {
	at     time.Duration
	ask    func(id string) ask
	status int
	delay  time.Duration
}

// node is what nginx knows of a key.
type node struct{ last, excess int64 }

// book has the states of a location's zones, by number and key.
type book map[string]node

// try decides about a request at a millisecond as ngx_http_limit_req_module does: all limits are looked at before any is charged. margin is
// by how much, in milliseconds of each rate, the nearest decision could have been the other one.
func (b book) try(limits []spec, a ask, now int64) (refused bool, delay, margin int64) {
	margin = 1 << 40
	next := map[string]node{}
	for i, l := range limits {
		key := l.key(a)
		if key == "" {
			continue
		}
		key = fmt.Sprint(i, key)
		n, known := b[key]
		excess := int64(0) // the first of a key is free
		if known {
			excess = n.excess - l.rate*(now-n.last)/1000 + 1000
			margin = min(margin, max(excess-l.burst, l.burst-excess)*1000/l.rate)
			excess = max(excess, 0)
		}
		refused = refused || excess > l.burst
		if excess > l.delay {
			delay = max(delay, (excess-l.delay)*1000/l.rate)
		}
		next[key] = node{now, excess}
	}
	if refused {
		return true, 0, margin
	}
	for key, n := range next {
		b[key] = n
	}
	return false, delay, margin
}

// drawn draws a sequence for a variant.
func drawn(r *rand.Rand, class, index int, v variant) *sequence {
	s := &sequence{class: class, variant: index, of: v}
	if v.conns > 0 {
		s.connections(r)
	} else {
		s.rates(r)
	}
	return s
}

// rates draws the requests for limits of the rate.
func (s *sequence) rates(r *rand.Rand) {
	fastest, burst := int64(0), int64(0)
	for _, l := range s.of.limits {
		fastest, burst = max(fastest, l.rate), max(burst, l.burst/1000)
	}
	length := 1_000_000 / fastest // of one request, in milliseconds
	s.margin = time.Duration(length/4) * time.Millisecond
	b, now := book{}, int64(0)
	for range 4 + int(burst) + r.IntN(4) {
		seed := r.Uint64()
		draw := func(id string) ask { return s.of.draw(rand.New(rand.NewPCG(seed, 0)), id) }
		a := draw("id")
		for try := 0; ; try++ {
			before := book{}
			for k, n := range b {
				before[k] = n
			}
			refused, delay, margin := b.try(s.of.limits, a, now)
			if margin <= length/4+length/20 { // and what is cut off
				b = before
				if now += length / 8; try < 20 {
					continue
				}
				return
			}
			p := planned{at: time.Duration(now) * time.Millisecond, ask: draw, status: 200, delay: time.Duration(delay) * time.Millisecond}
			if refused {
				p.status = s.of.status
			}
			if s.of.dry {
				p.status, p.delay = 200, 0
			}
			s.requests = append(s.requests, p)
			break
		}
		now += []int64{length / 6, length / 6, length / 6, length / 4, length / 2, length, length * 2}[r.IntN(7)]
	}
}

// connections draws requests that take a while. They begin at whole fifths of a second and end between two, so that none begins when another
// ends.
func (s *sequence) connections(r *rand.Rand) {
	const step = 200 * time.Millisecond
	s.margin = step * 2 / 5
	var ends []time.Duration
	for at := time.Duration(0); len(s.requests) < 4+r.IntN(4); at += step * time.Duration(1+r.IntN(2)) {
		hold := step*time.Duration(r.IntN(6)) + step/2
		p := planned{at: at, status: 200, delay: hold, ask: func(id string) ask {
			a := byK(nil, id)
			a.hold = hold
			return a
		}}
		active := 0
		for _, end := range ends {
			if end > at {
				active++
			}
		}
		if active >= s.of.conns && !s.of.dry {
			p.status, p.delay = s.of.status, 0
		} else {
			ends = append(ends, at+hold)
		}
		s.requests = append(s.requests, p)
	}
}
