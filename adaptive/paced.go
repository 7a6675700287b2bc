package adaptive

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/weirflow/weir/adaptive/signals"
)

// paced is what a limiter with BBR has. It follows the clock: a caller that enters, is refused or has
// finished when a bucket is over ends it. Nobody waits for another.
type paced struct {
	BBR
	l      *Limiter
	source signals.Source
	width  int64 // of a bucket, in nanoseconds

	due    atomic.Int64 // when the bucket is over
	last   atomic.Int64 // when the latest request has finished
	passes atomic.Int64 // how many have finished in this bucket, of those that are measured
	excess atomic.Pointer[signals.Excess]

	mu     sync.Mutex // for what is below; never waited for
	since  int64      // when the bucket began
	sample latencies  // of finish calls that got the lock
	from   int64      // requests that finish before do not count in sample

	record  float64 // the best throughput without an overload, in requests per nanosecond; it fades
	rates   series  // those of buckets with an overload
	least   series  // the mean latencies of buckets without an overload, in nanoseconds
	limited bool
	limit   float64
	until   int64  // how long the limit holds at least
	refused uint64 // how many were refused when that was last looked at
	used    int64  // when the limit was last in use
	measure int64  // when the latency was last measured without a queue
	probe   int64  // when the probe began; 0: there is none
}

// A bucket is over when so many requests have finished, or after so many widths: of fewer, the best
// throughput and the least mean latency of many buckets would be those of chance.
const (
	enoughPasses  = 100
	enoughSamples = 20 // so many latencies have a mean
	mostWidths    = 10
)

// newPaced returns what a limiter needs for its algorithm: nil unless it is BBR.
func newPaced(l *Limiter, o Options) (*paced, error) {
	b, ok := o.Algorithm.(BBR)
	if !ok {
		return nil, nil
	}
	if o.Signals == nil {
		return nil, invalid("BBR", "Signals", "it needs Options.Signals, such as a Monitor of package adaptive/signals")
	}
	b, err := b.complete()
	if err != nil {
		return nil, err
	}
	p := &paced{BBR: b, l: l, source: o.Signals, width: int64(b.Window) / int64(b.Buckets)}
	p.rates, p.least = newSeries(b), newSeries(b)
	p.since = l.now()
	p.last.Store(p.since)
	p.due.Store(p.since + p.width)
	return p, nil
}

// at ends the bucket if it is over.
func (p *paced) at(now int64) {
	if p.over(now) && p.mu.TryLock() {
		if p.over(now) {
			p.tick(now)
		}
		p.mu.Unlock()
	}
}

// over reports whether the bucket is over, also if the clock went back.
func (p *paced) over(now int64) bool {
	due := p.due.Load()
	return now >= due || now < due-2*p.width
}

// refusedAt ends the bucket if it is over, for a caller that finds no place. It reports whether
// there is another limit now.
func (p *paced) refusedAt() bool {
	was := p.l.Limit()
	p.at(p.l.now())
	return p.l.Limit() > was
}

// finish counts a request that was done. A bucket that is over ends first: it is not of that.
func (p *paced) finish(began, now int64) {
	p.at(now)
	p.passes.Add(1)
	p.last.Store(now)
	if p.mu.TryLock() {
		if now >= p.from {
			p.sample.add(float64(max(now-began, 1)))
		}
		p.mu.Unlock()
	}
}

// tick learns from the bucket if it has enough, looks at the signals and sets the limit.
func (p *paced) tick(now int64) {
	p.due.Store(now + p.width)
	if now < p.last.Load()-p.width { // the clock went back: what was counted has no time
		p.endProbe()
		p.passes.Store(0)
		p.sample = latencies{}
		p.since, p.used, p.measure = now, now, now
		p.last.Store(now)
		p.until = min(p.until, now+int64(p.CoolOff))
	}
	rare := rareOf(p.l.plan.Load())
	passes := p.passes.Load()
	if passes >= enoughPasses || now-p.since >= mostWidths*p.width {
		rare = p.learn(now, p.passes.Swap(0), rare)
	}
	excess, over := p.Thresholds.Over(p.source.Reading())
	if over {
		p.until = now + int64(p.CoolOff)
	}
	p.decide(now, over)
	limit := int64(mostInFlight)
	if p.limited {
		if over {
			p.excess.Store(&excess)
		}
		limit = int64(min(max(p.limit, 2), mostInFlight))
	}
	p.l.window.least.Store(int64(p.least.fewest()))
	p.l.apply(plan{limit: limit, need: maxSamples}, rare)
}

// learn ends the bucket, and returns how rarely requests are measured from now on.
//
// The throughput is that from the last request of the bucket before until its own last request. So
// an idle time or a halt of the machine, after which many finish at once, is a part of the bucket
// that follows it, and makes it no record.
func (p *paced) learn(now, passes int64, rare uint) uint {
	next := p.l.rarity(now, passes)
	last := min(max(p.last.Load(), p.since), now)
	if passes > 0 {
		rate := float64(passes<<rare) / float64(max(last-p.since, p.width))
		switch {
		case p.probe != 0:
		case p.limited:
			p.rates.add(rate, now)
		default:
			p.record *= 1 - 1/float64(60*p.Buckets)
			p.record = max(p.record, rate)
		}
	}
	// at most ten means in a window: the least of more would be one of chance
	if !p.limited && p.sample.n >= enoughSamples && now-p.measure >= int64(p.Window)/10 {
		p.measure = now
		p.least.add(p.sample.bound(), now)
		p.sample = latencies{}
	}
	p.since = last
	return next
}

// fit returns the limit: a request finds a place while at most the best throughput times the least
// latency are in flight. It is 0 if nothing was learnt.
func (p *paced) fit() float64 {
	best := max(p.rates.most(), p.record) * p.least.fewest()
	if best == 0 {
		return 0
	}
	return math.Floor(best+1e-9) + 1
}

// decide sets the limit.
func (p *paced) decide(now int64, over bool) {
	refused := p.l.refused.Load()
	if refused != p.refused || p.l.InFlight() >= p.l.Limit() {
		p.refused, p.used = refused, now
	}
	if !p.limited {
		if fit := p.fit(); over && fit > 0 {
			p.limited, p.limit = true, fit
			// what was measured before ends with the window
			p.rates.only(p.record, now)
			p.record = 0
			p.measure, p.used = now, now
		}
		return
	}
	switch {
	case now < p.until:
		p.limit = p.fit()
		p.probeAt(now)
	case now-p.used < int64(p.CoolOff):
		p.endProbe()
		p.limit += max(p.limit/20, 0.25)
	default:
		p.endProbe()
		p.limited = false
		p.excess.Store(nil)
		p.record = p.rates.most()
		p.rates.only(0, now)
		p.sample = latencies{}
	}
}

// probed is the part of the limit that is left while the latency is measured in an overload. If all
// of it is queue, the new limit is this part of the old one, times what the best throughput is above
// that on average: together below 1, so that a queue does not grow.
const probed = 0.6

// probeAt lowers the limit now and then in a long overload, and measures the latency without the
// queue that it had, if it had one.
func (p *paced) probeAt(now int64) {
	if p.probe == 0 {
		if now-p.measure < int64(p.Window) {
			return
		}
		p.probe, p.from = now, math.MaxInt64
	}
	best := p.limit
	p.limit = max(2, math.Floor(best*probed))
	took := now - p.probe
	switch {
	case p.from == math.MaxInt64:
		// those that found the longer queue go first. To leave out those that began before would leave
		// out the long ones
		if p.l.InFlight() <= int64(p.limit) || took > int64(p.Window)/4 {
			p.from = now + int64(min(3*p.least.fewest(), float64(p.Window)/4))
			p.sample = latencies{}
		}
		return
	case p.sample.n < enoughPasses && took < int64(p.Window)*3/4:
		return
	case p.sample.n > 0:
		p.least.only(p.sample.sum/p.sample.n, now)
	}
	p.measure = now
	p.endProbe()
	p.limit = best
}

func (p *paced) endProbe() {
	if p.probe != 0 {
		p.probe, p.from, p.sample = 0, 0, latencies{}
	}
}

// A series has the values of a Window, and at least the latest one.
type series struct {
	values []float64 // 0: none
	times  []int64
	latest int
	window int64
}

func newSeries(b BBR) series {
	return series{values: make([]float64, b.Buckets), times: make([]int64, b.Buckets), window: int64(b.Window)}
}

func (s *series) add(v float64, now int64) {
	s.latest = (s.latest + 1) % len(s.values)
	s.values[s.latest], s.times[s.latest] = v, now
}

// only replaces all values by one.
func (s *series) only(v float64, now int64) {
	clear(s.values)
	s.add(v, now)
}

// most returns the largest value, or 0 if there is none.
func (s *series) most() (most float64) {
	for i, v := range s.values {
		if s.times[s.latest]-s.times[i] <= s.window {
			most = max(most, v)
		}
	}
	return most
}

// fewest returns the least value, or 0 if there is none.
func (s *series) fewest() (least float64) {
	for i, v := range s.values {
		if v > 0 && s.times[s.latest]-s.times[i] <= s.window && (least == 0 || v < least) {
			least = v
		}
	}
	return least
}

// latencies are those of some requests, in nanoseconds.
type latencies struct{ n, sum, squares float64 }

func (s *latencies) add(latency float64) {
	s.n++
	s.sum += latency
	s.squares += latency * latency
}

// bound returns the mean and two standard errors: the least of several means would otherwise be far
// too low where latencies vary.
func (s *latencies) bound() float64 {
	mean := s.sum / s.n
	return mean + 2*math.Sqrt(max(s.squares/s.n-mean*mean, 0)/s.n)
}
