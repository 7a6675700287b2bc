package sim

import (
	"context"
	"io"

	"github.com/weirflow/weir/internal/vclock"
	"github.com/weirflow/weir/policy"
)

// A pass is what is done with the requests of the logs: all of them, in the order of their times.
type pass interface {
	start(r *runner) error // begins anew
	decide(q *query) error // the query is valid until it returns
	end(u *Reading) error  // after the last request
}

// A runner reads the logs of Options, and gives their requests to a pass.
type runner struct {
	*Options
	ctx      context.Context
	clock    *vclock.Clock
	layout   layout
	pass     pass
	unread   Reading
	requests *sorter // nil while they come in order
	rewind   []int64 // where seekable inputs begin
	q        query
	window   int
	bytes    int    // of the lines in the window
	scratch  []byte // for encoding a record
	read     int64
	decided  int64
	last     int64 // when the last response ends
	adaptive map[*policy.Engine]*replayedLimits

	memory *memory
	// spent is called with the memory of requests that were given to the pass: it gives it back to be read into
	// again, unless the pass replaces it because it still needs their texts
	spent func(buf []byte)
}

// A late request may be behind so many others, in lines of together so many bytes, without sorting all.
const (
	window      = 1 << 14
	windowBytes = 64 << 20
)

// runPass gives the requests of the logs to a pass. The first error is one of reading, after which the rest
// was done nevertheless.
//
// Inputs that can be read twice are taken for nearly ordered. Where they are not, it begins again, and
// sorts all requests first. It does so at once where a repetition is impossible.
func runPass(ctx context.Context, o *Options, l layout, p pass) (readErr, err error) {
	o.defaults()
	r := &runner{Options: o, ctx: ctx, layout: l, pass: p, window: window, bytes: windowBytes}
	if o.window > 0 {
		r.window = o.window
	}
	if o.windowBytes > 0 {
		r.bytes = o.windowBytes
	}
	if o.Decisions == nil && r.seekable() {
		if readErr, err = r.inOrder(); err != errDisorder {
			return readErr, err
		}
		for i, in := range o.Inputs {
			if _, err := in.R.(io.Seeker).Seek(r.rewind[i], io.SeekStart); err != nil {
				return nil, err
			}
		}
	}
	return r.sorted()
}

// seekable reports whether all inputs can be read twice, and notes where they begin.
func (r *runner) seekable() bool {
	for _, in := range r.Inputs {
		s, ok := in.R.(io.Seeker)
		if !ok {
			return false
		}
		at, err := s.Seek(0, io.SeekCurrent)
		if err == nil { // some seek, but not back
			_, err = s.Seek(at, io.SeekStart)
		}
		if err != nil {
			return false
		}
		r.rewind = append(r.rewind, at)
	}
	return true
}

// begin prepares for the first request.
func (r *runner) begin() error {
	r.clock, r.unread, r.read, r.decided, r.last = new(vclock.Clock), Reading{}, 0, 0, 0
	r.adaptive = map[*policy.Engine]*replayedLimits{}
	r.memory = &memory{poison: r.poison}
	r.spent = r.memory.put
	return r.pass.start(r)
}

// finish ends the pass after the last request.
func (r *runner) finish() error {
	r.progress()
	r.clock.Set(max(r.clock.Now(), r.last))
	return r.pass.end(&r.unread)
}

// reuses reports whether memory is used again: where nothing keeps a request, neither a merge of inputs nor a
// response that ends later.
func (r *runner) reuses() bool { return len(r.Inputs) == 1 && !r.layout.responses }

// newFeed begins to read the inputs.
func (r *runner) newFeed() *feed {
	f := newFeed(r.ctx, r.Options, &r.layout, r.Inputs, r.memory)
	if r.reuses() {
		f.spent = r.spent
	}
	return f
}

// inOrder decides the requests while it reads them.
func (r *runner) inOrder() (readErr, err error) {
	if err := r.begin(); err != nil {
		return nil, err
	}
	f := r.newFeed()
	defer f.close()
	o := order{feed: f, unread: &r.unread, window: r.window, bytes: r.bytes, use: func(it *item) error {
		r.layout.query(it, &r.q)
		r.read++
		return r.decideNext()
	}}
	if err := o.run(); err != nil {
		return nil, err
	}
	return f.err(), r.finish()
}

// sorted sorts all requests, and decides them.
func (r *runner) sorted() (readErr, err error) {
	if err := r.begin(); err != nil {
		return nil, err
	}
	r.requests = newSorter(r.TempDir, r.Memory)
	defer r.requests.close()
	if readErr, err = r.collect(); err != nil {
		return nil, err
	}
	err = r.requests.each(func(at int64, record string) error {
		r.layout.read(record, &r.q)
		r.q.at = at
		return r.decideNext()
	})
	if err != nil {
		return nil, err
	}
	return readErr, r.finish()
}

// collect reads the requests into the sorter.
func (r *runner) collect() (readErr, err error) {
	f := r.newFeed()
	defer f.close()
	lines := int64(0)
	for _, in := range f.inputs {
		for {
			before := lines + in.lines
			b, err := f.take(in, &r.unread)
			if err != nil {
				return nil, err
			}
			if b == nil {
				break
			}
			for i := range b.items {
				it := &b.items[i]
				r.scratch = r.layout.append(r.scratch[:0], before+it.place&(1<<lineBits-1), it)
				if err := r.requests.add(it.at, r.scratch); err != nil {
					return nil, err
				}
			}
			r.read += int64(len(b.items))
			f.release(b)
			r.progress()
		}
		lines += in.lines
	}
	return f.err(), nil
}

// progress reports how far the run is.
func (r *runner) progress() {
	if r.Progress != nil {
		r.Progress(r.read, r.decided)
	}
}

// decideNext decides the query.
func (r *runner) decideNext() error {
	if r.decided++; r.decided%4096 == 0 {
		if r.ctx.Err() != nil {
			return r.ctx.Err()
		}
		r.progress()
	}
	r.clock.Set(r.q.at)
	return r.pass.decide(&r.q)
}

// decide decides a request with an engine. Its charges are settled when its response ends, and its places at
// adaptive limits given back.
func (r *runner) decide(engine *policy.Engine, q *query) (policy.Verdict, error) {
	if !r.layout.responses {
		v := engine.Decide(q.req)
		v.WithoutPlaces()
		v.KeepEstimates()
		if v.CountsBytes() {
			v.SettleBytes(0) // a log without the length of a body
		}
		return v, nil
	}
	m := engine.Match(q.req)
	m.LoggedBody([]byte(q.res.Body))
	adaptives, err := r.limitsOf(engine)
	if err != nil {
		return policy.Verdict{}, err
	}
	if adaptives != nil {
		adaptives.look(q.at)
		m.AskUpstreams(adaptives.upstreams)
	}
	v := engine.DecideMatch(r.ctx, &m)
	if adaptives != nil {
		r.enter(adaptives, &v, q)
	} else {
		v.WithoutPlaces()
	}
	if v.CountsBytes() {
		v.SettleBytes(0)
	}
	if meter := v.Meter(); meter != nil {
		logged := q.res.Logged
		d := max(v.Delay, 0) + max(logged.Duration, 0)
		r.last = max(r.last, r.clock.Now()+int64(d))
		r.clock.AfterFunc(d, func() { meter.EndLogged(logged) })
	}
	return v, nil
}
