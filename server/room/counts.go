package room

import "sync/atomic"

// Stats are a room's counters at this gateway, and the numbers of visitors it last saw. They
// contain no client.
type Stats struct {
	Name            string
	Waiting, Inside int64 // of all gateways that share the queue, by the latest poll

	Joined, Entered    uint64 // visitors who joined the queue, and who entered
	Full, TooManyJoins uint64 // refused: the queue was full; too many joins from one address
	TooManyVisitors    uint64 // refused: too many visitors from one address waited or were inside
	Closed             uint64 // refused: the room was drained
	PollsTooOften      uint64 // polls that came too often
	Lapsed             uint64 // lost their place because they stopped polling
	Missed             uint64 // did not enter when admitted
	Left               uint64 // were inside, and sent no request or reached the end of the session
	Forged, Client     uint64 // refused tickets: not signed by this room; bound to another client
	Expired, Finished  uint64 // and expired; of a visit that has ended
	StoreFailures      uint64 // polls that the store did not respond to
}

// counts are the counters behind Stats.
type counts struct {
	waiting, inside                                                          atomic.Int64
	joined, entered, full, tooManyJoins, pollsTooOften, lapsed, missed, left atomic.Uint64
	tooManyVisitors, closed                                                  atomic.Uint64
	forged, client, expired, finished, storeFailures                         atomic.Uint64
}

// note counts the events of a poll.
func (c *counts) note(a Standing) {
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

// Stats returns the counters so far.
func (r *Room) Stats() Stats {
	c := &r.counts
	return Stats{
		Name: r.settings.Name, Waiting: c.waiting.Load(), Inside: c.inside.Load(),
		Joined: c.joined.Load(), Entered: c.entered.Load(), Full: c.full.Load(), TooManyJoins: c.tooManyJoins.Load(), TooManyVisitors: c.tooManyVisitors.Load(), Closed: c.closed.Load(), PollsTooOften: c.pollsTooOften.Load(),
		Lapsed: c.lapsed.Load(), Missed: c.missed.Load(), Left: c.left.Load(),
		Forged: c.forged.Load(), Client: c.client.Load(), Expired: c.expired.Load(), Finished: c.finished.Load(), StoreFailures: c.storeFailures.Load(),
	}
}
