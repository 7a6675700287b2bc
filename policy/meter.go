package policy

import (
	"net/http"
	"time"

	"github.com/weirflow/weir/internal/usage"
)

// A Meter reads from a response what the request has cost, and settles the charges by it. It is not
// safe for concurrent use. All methods of a nil Meter do nothing.
type Meter struct {
	v       *Verdict
	readers []specReader
	began   int64
	headed  int64 // when the header came
	status  int   // 0: none
	ended   bool
}

// specReader is a reader with what it reads.
type specReader struct {
	spec   *usage.Spec
	reader *usage.Reader
}

// Meter returns the meter of a request that goes on. It is nil if all costs are known beforehand.
// Otherwise End must be called once the response has ended, in whichever way.
func (v *Verdict) Meter() *Meter {
	if v.late == nil || v.late.metered || v.Outcome != Allow && v.Outcome != Delay {
		return nil
	}
	m := &v.late.meter
	*m, v.late.metered = Meter{v: v, began: v.late.e.now(), readers: v.late.first[:0]}, true
	for i, l := range v.evaluated {
		if v.open != nil && v.open[i] == openLate {
			m.read(l.late.spec)
		}
	}
	for _, s := range v.late.shadows {
		m.read(s.l.late.spec)
	}
	return m
}

// read adds a reader, once for limits that read the same.
func (m *Meter) read(s *usage.Spec) {
	if m.reader(s) == nil {
		m.readers = append(m.readers, specReader{s, s.NewReader()})
	}
}

func (m *Meter) reader(s *usage.Spec) *usage.Reader {
	for _, r := range m.readers {
		if r.spec == s {
			return r.reader
		}
	}
	return nil
}

// ReadsBody reports whether costs are in the bodies of responses. Such bodies must come in an
// encoding that can be read: see AcceptEncoding.
func (m *Meter) ReadsBody() bool {
	if m == nil {
		return false
	}
	for _, r := range m.readers {
		if r.spec.ReadsBody() {
			return true
		}
	}
	return false
}

// AcceptEncoding returns what to ask an upstream for in place of a client's Accept-Encoding, so that
// the response can be read: gzip if the client takes it, and otherwise no encoding.
func AcceptEncoding(values []string) string { return usage.AcceptEncoding(values) }

// Header reads the header of a response.
func (m *Meter) Header(status int, h http.Header) {
	if m == nil || m.status != 0 {
		return
	}
	m.status, m.headed = status, m.v.late.e.now()
	for _, r := range m.readers {
		r.reader.Header(h)
	}
}

// Write reads a part of the body. It keeps nothing of p.
func (m *Meter) Write(p []byte) {
	if m == nil || m.status == 0 {
		return
	}
	for _, r := range m.readers {
		r.reader.Write(p)
	}
}

// Passed counts bytes of an upgraded connection, such as a WebSocket, for the term "bytes".
func (m *Meter) Passed(n int64) {
	if m == nil {
		return
	}
	for _, r := range m.readers {
		r.reader.Passed(n)
	}
}

// An Ending says how a response ended.
type Ending struct {
	Complete bool        // the response came in full
	Failed   bool        // there was none: whatever the client got is not of an upstream
	Trailer  http.Header // the trailer fields, which may have the prefix http.TrailerPrefix
}

// End settles the charges, once. Stores get a second for it, in the background. What is charged for limits
// whose costs were known stays.
func (m *Meter) End(e Ending) {
	if m == nil || m.ended {
		return
	}
	m.ended = true
	now := m.v.late.e.now()
	end := usage.Ending{Complete: e.Complete, Trailer: e.Trailer, Duration: time.Duration(now - m.began)}
	if m.status != 0 {
		end.Upstream = time.Duration(m.headed - m.began)
	}
	var room [2]result
	results := append(room[:0], make([]result, len(m.readers))...)
	for i, r := range m.readers {
		results[i].cost, results[i].known, results[i].seen = r.reader.End(end)
		results[i].failed = e.Failed || m.status >= http.StatusBadRequest
	}
	m.v.settleLate(func(l *limit) result {
		for i, r := range m.readers {
			if r.spec == l.late.spec {
				return results[i]
			}
		}
		return result{}
	})
}

// Logged is what a log says of a response. Numbers below 0 are not known.
type Logged struct {
	usage.Logged
	Status int   // 0: not known
	Cost   int64 // in place of what Costs.After names
}

// EndLogged is End for a response of which only a log is left.
func (m *Meter) EndLogged(of Logged) {
	if m == nil || m.ended {
		return
	}
	m.ended = true
	m.v.settleLate(func(l *limit) result {
		r := result{failed: of.Status >= http.StatusBadRequest, cost: of.Cost, known: of.Cost >= 0}
		if !r.known {
			r.cost, r.known = l.late.spec.Logged(of.Logged)
		}
		return r
	})
}

// result is what was read of a response.
type result struct {
	cost                int64
	known, seen, failed bool
}

// actual returns what a request has cost, and counts it.
func (l *limit) actual(r result, estimate int64, key string) int64 {
	c := l.late
	cost := estimate
	switch {
	case r.failed && !c.countFailed:
		cost = 0
	case r.known:
		cost = r.cost
		if c.learned != nil {
			c.learned.add(key, cost)
		}
	default:
		l.counts.unknown.Add(1)
		if c.ifUnknown == IfUnknownZero {
			cost = 0
		}
		if c.ifUnknown == IfUnknownSeen && r.seen {
			cost = r.cost
		}
	}
	l.counts.estimated.Add(uint64(estimate))
	l.counts.actual.Add(uint64(cost))
	return cost
}
