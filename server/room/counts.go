package room

import "sync/atomic"

// Stats are what a room has counted at this gateway, and how many it was last told of. No client is in it.
type Stats struct {
	Name            string
	Waiting, Inside int64 // by the latest answer of the line: of all gateways that share it

	Joined, Entered   uint64 // visitors who got a place in line, and who were let in
	Full, TurnedAway  uint64 // refused: the line was full; their address had brought too many
	Hasty             uint64 // questions that came too often
	Lapsed            uint64 // lost their place, as they did not ask
	Missed            uint64 // did not come when it was their turn
	Left              uint64 // were inside, and made no request, or reached the end of the session
	Forged, Client    uint64 // tickets that were refused: signed by nobody; another client's
	Expired, Finished uint64 // and too old; of a visit that has ended
	Failed            uint64 // questions that the line did not answer
}

// counts are the counters behind Stats.
type counts struct {
	waiting, inside                                                atomic.Int64
	joined, entered, full, turnedAway, hasty, lapsed, missed, left atomic.Uint64
	forged, client, expired, finished, failed                      atomic.Uint64
}

// note counts what a line noticed.
func (c *counts) note(a Answer) {
	c.waiting.Store(a.Waiting)
	c.inside.Store(a.Inside)
	for _, n := range []struct {
		c *atomic.Uint64
		n int64
	}{{&c.lapsed, a.Lapsed}, {&c.missed, a.Missed}, {&c.left, a.Left}} {
		if n.n > 0 {
			n.c.Add(uint64(n.n))
		}
	}
}

// Stats returns what the room has counted so far.
func (r *Room) Stats() Stats {
	c := &r.counts
	return Stats{
		Name: r.def.Name, Waiting: c.waiting.Load(), Inside: c.inside.Load(),
		Joined: c.joined.Load(), Entered: c.entered.Load(), Full: c.full.Load(), TurnedAway: c.turnedAway.Load(), Hasty: c.hasty.Load(),
		Lapsed: c.lapsed.Load(), Missed: c.missed.Load(), Left: c.left.Load(),
		Forged: c.forged.Load(), Client: c.client.Load(), Expired: c.expired.Load(), Finished: c.finished.Load(), Failed: c.failed.Load(),
	}
}
