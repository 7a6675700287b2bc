package weirredis

import (
	"time"
)

// A run is charges of a key that are alike, one after another. A short script counts how many of them are
// admitted, and replies with the backlog before them; what that means for each is computed here.
type run struct {
	first   *charge
	limit   int   // in the argument, from 1
	early   int64 // by how many milliseconds they expire sooner than the call
	count   int64
	late    bool // the server did not decide
	backlog span // before the charge that is read next
}

// sameEnd is how much sooner than its callers a run may expire, in milliseconds: they count as late
// together, and those that are not are sent again.
const sameEnd = 20

// group divides the charges into runs. Those of each key stay in order.
func (x *exchange) group(limits []*limit) {
	x.runs = x.runs[:0]
	latest := map[string]int{}
	for _, r := range x.requests {
		early := x.early(r)
		for i := range r.charges {
			c := &r.charges[i]
			if at, found := latest[c.key]; found && x.runs[at].takesIn(c, early, len(r.charges) == 1) {
				x.runs[at].count++
				c.run = at
				continue
			}
			c.run = len(x.runs)
			latest[c.key] = c.run
			x.runs = append(x.runs, run{first: c, limit: index(limits, c.limit) + 1, early: early, count: 1})
		}
	}
}

// takesIn reports whether a charge can be the next of a run. Several charges of one request have to be late
// together, or none: the request is sent again then.
func (u *run) takesIn(c *charge, early int64, alone bool) bool {
	if early != u.early && !(alone && early < u.early && early+sameEnd > u.early) {
		return false
	}
	return u.first.limit == c.limit && u.first.op == c.op && u.first.cost == c.cost
}

// writeShort writes the argument of a short script.
func (x *exchange) writeShort(limits []*limit) string {
	b := make([]byte, 0, 256)
	b = appendInt(appendArray(b, 5), version)
	b = appendInt(b, x.expiry)
	b = appendInt(b, int64(x.store.opts.Grace/time.Millisecond))
	b = appendArray(b, len(limits))
	for _, l := range limits {
		b = append(b, l.short.text...)
	}
	b = appendArray(b, x.protocol.fields()*len(x.runs))
	for i := range x.runs {
		u := &x.runs[i]
		b = appendInt(b, int64(u.limit))
		b = appendInt(b, 1-int64(u.first.op)) // a take charges, a peek does not
		b = appendInt(u.first.limit.short.appendCharge(b, u.first.cost), u.early)
		b = appendInt(b, u.count)
	}
	return string(b)
}

// readShort gives each charge its result.
func (x *exchange) readShort(in *reader) {
	for i := range x.runs {
		u := &x.runs[i]
		if u.late = in.text() && in.string() == "WEIRLATE"; !u.late {
			u.backlog = span{in.int(), in.int()}
		}
	}
	for _, r := range x.requests {
		for i := range r.charges {
			c := &r.charges[i]
			u := &x.runs[c.run]
			if c.err = nil; u.late {
				c.err = errLate
				continue
			}
			var wait, remaining, reset int64
			wait, remaining, reset, u.backlog = c.limit.short.decide(u.backlog, c)
			c.decided(wait, remaining, reset)
		}
	}
}
