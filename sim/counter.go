package sim

import (
	"runtime"
	"slices"

	"github.com/weirflow/weir/policy"
)

// A visit is what one request says of its client.
type visit struct {
	at     int64
	client string
	path   string
	agent  string
	status int32
}

// visit returns the query as a visit.
func (q *query) visit() visit {
	return visit{q.at, q.req.Client, q.req.Path, q.agent, q.status}
}

// A decided is what a report counts of a request.
type decided struct {
	visit
	outcome   policy.Outcome
	route     int
	limit     string // that refused or delayed it
	key       string
	most      int64 // of the limit with the least remaining
	remaining int64
	shadows   []int // which shadow limits would have refused it
}

// A counter counts requests for a report. With several threads it does so in a goroutine of its own, because
// counting takes nearly half as long as deciding.
type counter struct {
	report *Report
	free   func(buf []byte) // gives back memory that texts of requests are in
	filled *bundle
	full   chan *bundle // nil without a goroutine
	empty  chan *bundle
	ended  chan struct{}
}

// A bundle is requests in their order, and memory that is used no more once they are counted.
type bundle struct {
	requests []decided
	memory   [][]byte
	bytes    int // of memory
}

const (
	bundleSize  = 256
	bundleBytes = 1 << 20
	bundles     = 4 // in use at once
)

// newCounter returns a counter, which must be closed. It counts later only if spent is called with the memory of
// all requests: otherwise nothing would bound how much of it waits.
func newCounter(report *Report, later bool, free func(buf []byte)) *counter {
	c := &counter{report: report, free: free, filled: newBundle(1)}
	if !later || runtime.GOMAXPROCS(0) == 1 {
		return c
	}
	c.full, c.empty, c.ended = make(chan *bundle, bundles), make(chan *bundle, bundles), make(chan struct{})
	c.filled = newBundle(bundleSize)
	for range bundles - 1 {
		c.empty <- newBundle(bundleSize)
	}
	go c.run()
	return c
}

func newBundle(size int) *bundle { return &bundle{requests: make([]decided, 0, size)} }

// add counts a request, perhaps later: its texts must remain until then, in memory that spent is called with.
func (c *counter) add(q *query, v *policy.Verdict, shadows []int) {
	b := c.filled
	b.requests = append(b.requests, decided{
		visit: q.visit(), outcome: v.Outcome, route: v.Route, limit: v.Limit, key: v.Key,
		most: v.Decision.Limit, remaining: v.Decision.Remaining, shadows: slices.Clone(shadows),
	})
	if len(b.requests) == cap(b.requests) {
		c.flush()
	}
}

// spent gives back memory once the requests that were added are counted.
func (c *counter) spent(buf []byte) {
	b := c.filled
	b.memory = append(b.memory, buf)
	if b.bytes += len(buf); b.bytes > bundleBytes {
		c.flush()
	}
}

// flush counts the requests of the bundle that is being filled.
func (c *counter) flush() {
	if c.full == nil {
		c.count(c.filled)
		return
	}
	c.full <- c.filled
	c.filled = <-c.empty
}

// count counts the requests of a bundle, and empties it.
func (c *counter) count(b *bundle) {
	for i := range b.requests {
		c.report.add(&b.requests[i])
	}
	for _, buf := range b.memory {
		c.free(buf)
	}
	clear(b.memory)
	b.requests, b.memory, b.bytes = b.requests[:0], b.memory[:0], 0
}

// run counts until the counter is closed.
func (c *counter) run() {
	defer close(c.ended)
	for b := range c.full {
		c.count(b)
		c.empty <- b
	}
}

// close counts what was added, and ends the counter's goroutine.
func (c *counter) close() {
	c.flush()
	if c.full != nil {
		close(c.full)
		<-c.ended
	}
}
