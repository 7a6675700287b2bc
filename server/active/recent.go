package active

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/vclock"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// recent is the latest requests, where the policy has them kept (admin.recent). They hold what the active
// policy reads of a request, and are given to nobody: a preview answers with counts.
type recent struct {
	reads atomic.Pointer[[]string] // the header fields that the policy reads; nil while nothing is kept

	mu    sync.Mutex
	most  int
	bytes int
	all   []seen // a queue: the oldest is at first
	first int
}

// seen is a request at a time.
type seen struct {
	at      int64 // nanoseconds of Unix time
	size    int
	request policy.Request
}

// Bounds of what is kept: of all requests, and of one; larger requests are left out.
const (
	maxRecentBytes  = 64 << 20
	maxRecentSize   = 4 << 10
	recentFixedSize = 256 // of a request without its texts, about
)

// set changes what is kept to what a policy says.
func (r *recent) set(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = p.Admin.Recent
	if r.most == 0 {
		r.reads.Store(nil)
		r.all, r.first, r.bytes = nil, 0, 0
		return
	}
	fields := p.ReadsHeaders()
	r.reads.Store(&fields)
	r.trim()
}

// add keeps a request, if the policy has requests kept.
func (r *recent) add(q *policy.Request) {
	fields := r.reads.Load()
	if fields == nil {
		return
	}
	s := seen{at: time.Now().UnixNano(), size: recentFixedSize + len(q.Method) + len(q.Host) + len(q.Path) + len(q.Query) + len(q.Client), request: *q}
	var header http.Header
	for _, name := range *fields {
		if values := q.Header[name]; values != nil {
			if header == nil {
				header = http.Header{}
			}
			header[name] = slices.Clone(values)
			for _, v := range values {
				s.size += len(v) + len(name)
			}
		}
	}
	s.request.Header = header
	if s.size > maxRecentSize {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.most == 0 {
		return
	}
	r.all = append(r.all, s)
	r.bytes += s.size
	r.trim()
}

// trim drops the oldest requests beyond the bounds. The lock is held.
func (r *recent) trim() {
	for len(r.all)-r.first > r.most || r.bytes > maxRecentBytes {
		r.bytes -= r.all[r.first].size
		r.all[r.first] = seen{}
		r.first++
	}
	if r.first > len(r.all)/2 {
		n := copy(r.all, r.all[r.first:])
		clear(r.all[n:])
		r.all, r.first = r.all[:n], 0
	}
}

// list returns what is kept, the oldest first.
func (r *recent) list() []seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all[r.first:])
}

// See lets the policy know of a request that was decided about: for the trial of a candidate, and for
// previews. It reports whether there are any, which may keep the request.
func (p *Policy) See(r *policy.Request, live *policy.Verdict, match string) (keeps bool) {
	trial := p.trial.Load()
	if trial == nil && p.recent.reads.Load() == nil {
		return false
	}
	p.recent.add(r)
	trial.Decide(*r, live, match)
	return true
}

// A Preview is what another policy would have decided about the latest requests, beside the active one. Both
// begin with unused limits.
type Preview struct {
	Requests int
	From, To time.Time
	Limits   []PreviewLimit
	Changed  []TrialCount // by the outcomes under both, also the equal ones
	// distinct client addresses that are refused at least once under one policy and never under the other
	NewlyRefused, NoLongerRefused int
	Unseen                        []string // header fields that the policy reads, and of which nothing was kept
	LeftOut                       []string // limits that no preview can decide
}

// PreviewLimit is what a limit decides under both policies; a limit that one of them does not have decides
// nothing under it.
type PreviewLimit struct {
	Limit     string
	Now, Next PreviewCount
}

// PreviewCount is requests by what a limit decided; those of a shadow did not notice.
type PreviewCount struct {
	Allowed, Delayed, Limited uint64
	Shadow                    bool
}

// Preview has a policy that was sent decide about the latest requests. With many limits that can take seconds; it
// ends with the context, and returns its error.
func (p *Policy) Preview(ctx context.Context, data []byte, trusted bool) (*Preview, error) {
	parse := policyfile.Parse
	if !trusted {
		parse = policyfile.ParseText
	}
	now := p.File()
	file, err := parse(now.Path, now.Reveal(data))
	if err != nil {
		return nil, err
	}
	if file, err = p.completed(now, file); err != nil {
		return nil, err
	}
	out := &Preview{}
	if fields := p.recent.reads.Load(); fields != nil {
		for _, name := range file.Policy.ReadsHeaders() {
			if !slices.Contains(*fields, name) {
				out.Unseen = append(out.Unseen, name)
			}
		}
	}
	all := p.recent.list()
	was, _, err := p.decideAgain(ctx, all, now)
	if err != nil {
		return nil, err
	}
	is, left, err := p.decideAgain(ctx, all, file)
	if err != nil {
		return nil, err
	}
	out.LeftOut = left
	out.compare(all, was, is)
	return out, nil
}

// decidedAgain is what a policy decides about requests.
type decidedAgain struct {
	outcomes []policy.Outcome
	counts   []policy.Count
}

// decideAgain has a policy decide about requests in virtual time.
func (p *Policy) decideAgain(ctx context.Context, all []seen, file *policyfile.File) (*decidedAgain, []string, error) {
	of, left := trialPolicy(file.Policy)
	clock := new(vclock.Clock)
	engine, err := policy.New(of, policy.Options{
		Signals:   noSignals,
		Customers: p.customersFor(file), Values: file.Values, Clock: clock.Now,
		Timers: func(d time.Duration, f func()) weir.Timer { return clock.AfterFunc(d, f) },
	})
	if err != nil {
		return nil, nil, err
	}
	defer engine.Close()
	out := &decidedAgain{}
	for i := range all {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		clock.Set(max(clock.Now(), all[i].at))
		v := engine.Decide(all[i].request)
		out.outcomes = append(out.outcomes, v.Outcome)
	}
	out.counts = engine.Counts()
	return out, left, nil
}

// compare fills in what differs.
func (out *Preview) compare(all []seen, was, is *decidedAgain) {
	if out.Requests = len(all); out.Requests > 0 {
		out.From, out.To = time.Unix(0, all[0].at), time.Unix(0, all[len(all)-1].at)
	}
	var pairs [outcomes][outcomes]uint64
	refused := map[string]uint8{} // by client: under the active policy, under the next one
	for i := range all {
		a, b := was.outcomes[i], is.outcomes[i]
		pairs[a][b]++
		if a == policy.Deny {
			refused[all[i].request.Client] |= 1
		}
		if b == policy.Deny {
			refused[all[i].request.Client] |= 2
		}
	}
	for a := range pairs {
		for b, n := range pairs[a] {
			if n > 0 {
				out.Changed = append(out.Changed, TrialCount{policy.Outcome(a), policy.Outcome(b), n})
			}
		}
	}
	for _, under := range refused {
		switch under {
		case 1:
			out.NoLongerRefused++
		case 2:
			out.NewlyRefused++
		}
	}
	at := map[string]int{}
	add := func(counts []policy.Count, of func(*PreviewLimit) *PreviewCount) {
		for _, c := range counts {
			if c.Rest {
				continue
			}
			i, ok := at[c.Limit]
			if !ok {
				i = len(out.Limits)
				at[c.Limit] = i
				out.Limits = append(out.Limits, PreviewLimit{Limit: c.Limit})
			}
			*of(&out.Limits[i]) = PreviewCount{c.Allowed, c.Delayed, c.Limited, c.Shadow}
		}
	}
	add(was.counts, func(l *PreviewLimit) *PreviewCount { return &l.Now })
	add(is.counts, func(l *PreviewLimit) *PreviewCount { return &l.Next })
}
