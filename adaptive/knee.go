package adaptive

import (
	"cmp"
	"math"
	"slices"
)

// Knee is the default. It keeps the limit a little above the knee of the latency curve: the fewest
// requests in flight that use all of the service. By Little's law that is the highest throughput
// times the least latency.
//
// At the end of each period, of about two round trips, it compares the latency with the least
// latency: what a request takes that does not wait for others.
//
//   - While they are alike and the limit is in use, the limit rises: at first by an eighth, and in
//     further periods by up to a half.
//   - The aim is a latency that is longer than the least by 0.3 times the mean of nine tenths of the
//     requests, or for one request that waits. Above it, the limit falls in proportion.
//   - Whether the least latency still holds is tested with each larger cut, and with a small one
//     now and then. If fewer requests in flight do not lower the latency, then the service itself
//     has become slower: that latency becomes the least, and the limit returns. So a limit that
//     is too high never becomes the measure of itself, and no request waits for a measurement.
//     A limit that has fallen to a quarter without that is raised as a test.
//   - Drops lower the limit, which then keeps a distance from where they began, and tries a
//     little more from time to time. Drops that a lower limit does not make fewer have another cause,
//     such as a path that refuses on purpose: the limit returns, and they do not count.
//   - A limit that is not in use does not change, and nothing is learnt meanwhile.
//
// The latency of a period is the mean of the faster half of the requests: a wait for others makes all
// of them longer. So those that are slow for reasons of their own do not change the limit.
//
// There is nothing to tune. Initial, Min and Max are bounds.
type Knee struct {
	Initial int64 // the limit at first; default: 20
	Min     int64 // default: 1
	Max     int64 // default: 1000
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (k Knee) Validate() error {
	return bounds("Knee", &k.Initial, &k.Min, &k.Max, [3]int64{20, 1, 1000})
}

func (k Knee) begin(func() float64) (controller, plan) {
	_ = bounds("Knee", &k.Initial, &k.Min, &k.Max, [3]int64{20, 1, 1000}) // New has validated it
	c := &knee{Knee: k, limit: float64(k.Initial), usual: aim, spread: 1, quiet: dipEvery - dipSoon}
	// the first to finish are the fast ones, and do not tell what is usual
	return c, c.plan(min(int(k.Initial), maxSamples))
}

// The constants of Knee. Each is a ratio, so none depends on how fast the service is.
const (
	aim       = 1.3  // the latency that is kept, in multiples of the least, if all take the same time
	longTail  = 4    // the mean of most requests counts as so many times that of the faster half at most
	large     = 1.5  // times aim: from there the limit is cut at once
	telling   = 0.7  // a limit that was lowered so far shows whether the latency follows
	dipFactor = 0.75 // the limit during a dip, in multiples of the limit
	dipEvery  = 10   // periods between two dips
	dipSoon   = 2    // the same, at first and after the least latency was raised
	deepEvery = 4    // of so many dips, one goes on while the latency falls
	longDips  = 4    // how many steps a dip has at most
	oldCut    = 6    // periods after which a small cut is no test any more
	fewest    = 16   // samples of a period
	precise   = 0.14 // the standard error, in multiples of the latency, that a period should reach
	drift     = 5e-4 // by how much the least latency may change between two periods: a variance
)

// A knee is the state of Knee.
type knee struct {
	Knee
	limit  float64
	least  float64 // the latency of a request that does not wait for others; 0: not known yet
	doubt  float64 // the variance of least, in multiples of its square
	spread float64 // the standard deviation of the latency, in multiples of it
	tail   float64 // the mean without the slowest tenth, in multiples of it
	usual  float64 // the latency of the last periods, in multiples of least
	streak int     // how many periods in a row had room for more
	quiet  int     // periods since the latency was last known to be without a queue
	dips   int
	cut    state // before the limit was lowered because of the latency, as far as that is a test
	fall   state // before it was lowered for the first time since there was room
	dip    state // before the limit was lowered as a test alone
	rise   state // before it was raised as one
	high   state // when it was last raised because there was room
	last   float64
	steps  int     // of the dip
	before reading // the period before
	ceiling
}

// A state is a limit and the latency under it, in multiples of the least. A limit of 0 is none.
type state struct {
	limit, stretch float64
	age            int  // in periods
	again          bool // the second of two cuts: the latency may have changed during the first
}

// A reading is what a controller makes of a period.
type reading struct {
	latency  float64 // the mean of the faster half
	spread   float64 // the standard deviation, in multiples of the latency
	noise    float64 // the variance of the latency if only one request were counted, in multiples of its square
	tail     float64 // the mean without the slowest tenth, in multiples of the latency
	ok       int     // how many requests were counted
	inFlight float64 // the mean
	inUse    bool    // whether the limit mattered
}

func (k *knee) plan(inFlight int) plan {
	k.limit = min(max(k.limit, float64(k.Min)), float64(k.Max))
	need := int(min((k.spread*k.spread)/(precise*precise), maxSamples))
	need = min(max(need, inFlight, fewest), max(2*inFlight, fewest), maxSamples)
	drops := max(fewSeen, need/8)
	if k.raised {
		inFlight, k.raised = max(inFlight, int(k.limit)), false
	}
	if k.began > 0 && k.lost { // a service that is back is to be found soon
		need = fewSeen
	}
	if k.normal > 0 { // those that are dropped anyway come on top
		more := 1 / (1 - min(k.normal, allLost))
		need, inFlight = min(int(float64(need)*more), maxSamples), int(float64(inFlight)*more)
		drops += int(2 * k.normal * float64(need))
	}
	return plan{limit: int64(math.Round(k.limit)), skip: inFlight, need: need, drops: drops}
}

func (k *knee) leastLatency() float64 { return k.least }

func (k *knee) next(p *period) plan {
	finished := 0
	for _, s := range p.samples {
		if !s.dropped {
			finished++
		}
	}
	r := k.read(p)
	switch {
	case k.heardDrops(p.drops, finished):
	case r.ok == 0:
		k.streak, k.cut = 0, state{}
		k.endTest()
	case k.least == 0:
		k.least, k.spread, k.tail, k.doubt = r.latency, r.spread, r.tail, r.variance()
	default:
		k.spread += (r.spread - k.spread) / 4
		k.tail += (r.tail - k.tail) / 8
		k.adjust(r)
	}
	k.before = r
	return k.plan(p.inFlight)
}

// read counts the requests that were not dropped, if at least half the limit was in use on average.
// Otherwise they say nothing about the limit, and a few of them say nothing at all. It does not choose
// among them: where few began while the limit was in use, the fast ones of those are the first to
// finish.
func (k *knee) read(p *period) (r reading) {
	counted := slices.DeleteFunc(p.samples, func(s sample) bool { return s.dropped })
	if len(counted) < fewest/2 {
		return r
	}
	for _, s := range counted {
		r.inFlight += float64(s.inFlight) / float64(len(counted))
	}
	if r.inFlight < k.limit/2 {
		return r
	}
	r.ok = len(counted)
	r.inUse = p.refused || r.inFlight >= 0.75*k.limit
	slices.SortFunc(counted, func(a, b sample) int { return cmp.Compare(a.latency, b.latency) })
	whole := 0.0
	for i, s := range counted[:r.ok*9/10] {
		if whole += float64(s.latency); i < r.ok/2 {
			r.latency += float64(s.latency)
		}
	}
	whole /= float64(r.ok * 9 / 10)
	half := float64(r.ok / 2)
	r.latency = max(r.latency/half, 1)
	r.tail = max(whole/r.latency, 1)
	for _, s := range counted[:r.ok/2] {
		d := float64(s.latency)/r.latency - 1
		r.spread += d * d
	}
	// the slower half counts like the median here, which varies too (Tukey and McLaughlin, 1963)
	median := float64(counted[r.ok/2].latency)/r.latency - 1
	r.noise = 2*(r.spread/half+median*median) - median*median
	r.spread = math.Sqrt(r.spread / half)
	return r
}

// variance is that of the latency, in multiples of its square.
func (r reading) variance() float64 { return max(r.noise, 1e-3) / float64(r.ok) }

// adjust changes the limit after a period without an excess of drops.
func (k *knee) adjust(r reading) {
	stretch := r.latency / k.least
	// a wait is long or short beside the mean; and the more the latency varies by itself, the more of it
	// is accepted. One request may always wait: otherwise a service that works at one or two would be idle
	// from the end of each to the next.
	target := 1 + max((aim-1)*min(k.tail, longTail), stretch/k.limit) + k.spread/math.Sqrt(float64(r.ok))
	switch {
	case k.dip.limit > 0:
		k.dipped(r, stretch)
		return
	case k.rise.limit > 0:
		k.risen(r, stretch)
		return
	}
	if both := max(r.latency, k.before.latency) / k.least; r.inUse && k.before.inUse && both < 1-3*math.Sqrt(k.doubt+r.variance()) {
		// the least latency is at most this one
		k.least, k.doubt, k.usual = k.least*both, r.variance(), 1
		k.streak, k.quiet, k.dips = 0, max(k.quiet, dipEvery-dipSoon), 0
		stretch /= both
	}
	if !r.inUse && stretch <= target {
		k.streak, k.cut = 0, state{}
		return
	}
	k.usual += (stretch - k.usual) / 2
	k.quiet++
	k.cut.age++
	if k.cut.limit > 0 && k.tested(stretch) {
		return
	}
	if low := k.limit < float64(k.Min)+0.5; low && k.cut.age > 2 && k.usual > target {
		// there is no lower limit to test, so this is what a request takes by itself
		k.slower(k.usual)
		return
	}
	if k.limit < k.high.limit/4 && k.cut.limit > 0 && k.cut.age >= 2 && k.usual > target {
		// so low a limit did not help: with few requests in flight, it would take long to find out why
		k.rise = state{limit: k.limit, stretch: k.usual}
		k.limit *= 2
		return
	}
	k.settle(k.limit)
	before := k.limit
	if k.fall.limit == 0 && stretch > target {
		k.fall = state{limit: k.limit, stretch: stretch}
	}
	switch ratio := target / stretch; {
	case ratio < 1/large:
		k.streak = 0
		k.cut = state{limit: k.limit, stretch: stretch}
		k.limit *= max(ratio, 0.5)
		return
	case ratio < 1:
		if k.streak = 0; k.cut.limit == 0 {
			k.cut = state{limit: k.limit, stretch: k.usual}
		}
		k.limit *= math.Sqrt(ratio)
	case r.inUse:
		k.grow(r, stretch, ratio)
	}
	if k.quiet >= dipEvery && k.cut.limit == 0 && k.streak < 2 {
		k.dip, k.last, k.steps = state{limit: before, stretch: k.usual}, k.usual, 0
		k.limit = before * dipFactor
		k.dips++
	}
}

// grow raises the limit: the longer there is room, the faster.
func (k *knee) grow(r reading, stretch, ratio float64) {
	if k.streak++; k.streak >= 3 && k.before.inUse && stretch < 1+2*math.Sqrt(k.doubt+r.variance()) {
		// the limit is below the knee, so this is what a request takes by itself
		k.quiet = 0
		k.learn(r, stretch)
	}
	factor := math.Pow(ratio, []float64{0.5, 1, 2}[min(k.streak-1, 2)])
	k.limit = k.bound(max(k.limit*min(factor, 1.5), min(k.limit+1, k.limit*1.5)))
	if k.limit > k.high.limit {
		k.high = state{limit: k.limit, stretch: max(stretch, aim)}
	}
	if k.limit >= k.cut.limit {
		k.cut = state{}
	}
	if k.limit >= k.fall.limit || k.streak >= 3 {
		k.fall = state{}
	}
}

// learn moves the least latency towards that of a period without a queue: by as much as the period
// is more certain.
func (k *knee) learn(r reading, stretch float64) {
	v := r.variance()
	weight := k.doubt / (k.doubt + v)
	k.least *= math.Pow(stretch, weight)
	k.doubt = k.doubt*(1-weight) + drift
}

// dipped ends a dip, or takes it a step further: while the latency falls with the limit, there may
// still be a queue.
func (k *knee) dipped(r reading, stretch float64) {
	if !r.inUse {
		k.endTest()
		return
	}
	k.steps++
	falls := math.Log(k.last/stretch) / math.Log(1/dipFactor)
	further := stretch < 0.85 || stretch > 1.15 || k.dips%deepEvery == 1
	if falls >= 0.5 && further && k.steps < longDips && k.limit*dipFactor >= float64(k.Min) {
		k.last = stretch
		k.limit *= dipFactor
		return
	}
	before, lower := k.least, stretch < 1-3*math.Sqrt(k.doubt+r.variance())
	if lower {
		k.doubt = 1
	}
	k.learn(r, stretch)
	k.restore(k.dip, k.least/before)
	if k.quiet = 0; lower { // perhaps there is a queue still: the next dip comes soon, and goes deep
		k.quiet, k.dips = dipEvery-dipSoon, 0
	}
}

// endTest ends a dip or a rise that has shown nothing. A dip is made up for soon.
func (k *knee) endTest() {
	if k.dip.limit > 0 {
		k.limit, k.dip = k.dip.limit, state{}
		k.quiet, k.dips = dipEvery-dipSoon, k.dips-1
	}
	if k.rise.limit > 0 {
		k.limit, k.rise = k.rise.limit, state{}
	}
}

// risen ends a rise. If requests wait for each other, the latency has risen with the limit; otherwise the
// service itself has become slower.
func (k *knee) risen(r reading, stretch float64) {
	from, rose := k.rise, k.limit/k.rise.limit
	k.endTest()
	if r.inUse && stretch < math.Sqrt(rose)*from.stretch {
		k.slower(math.Sqrt(stretch * from.stretch))
		return
	}
	k.cut, k.fall, k.high = state{}, state{}, from
}

// tested compares the latency before and after the limit was lowered. It reports whether that was
// wrong, and undone.
func (k *knee) tested(stretch float64) bool {
	small := k.cut.age > 2
	if small && k.limit > k.cut.limit*telling*telling || k.limit > k.cut.limit*telling {
		if k.cut.age > oldCut && k.limit > 0.85*k.cut.limit || k.cut.age > dipEvery {
			k.cut = state{} // a dip tests it, which waits for the end of a cut
		}
		return false
	}
	if small {
		stretch = k.usual
	}
	// if requests wait for each other, the latency falls with the limit
	queued := k.cut.stretch * k.limit / k.cut.limit
	switch {
	case k.cut.age == 1 && stretch > 0.8*k.cut.stretch && !k.cut.again:
		// the service may have changed during the period before, so compare with this one
		k.cut = state{limit: k.limit, stretch: stretch, again: true}
		k.limit *= 0.5
		return true
	case stretch > math.Sqrt(max(queued, 1)*k.cut.stretch):
		// it did not fall: the service itself has become slower
		k.slower(stretch)
		return true
	case stretch < 0.7*queued:
		// it fell by far more: what had raised it is over
		k.limit, k.cut = k.cut.limit, state{}
		return true
	}
	k.cut = state{}
	return false
}

// slower multiplies the least latency: the service has become slower, so the limit goes back to
// where it was.
func (k *knee) slower(factor float64) {
	k.least *= factor
	for _, s := range []state{k.fall, k.high} {
		if s.limit > k.cut.limit {
			k.cut = s
		}
	}
	k.restore(k.cut, factor)
	k.quiet, k.dips = dipEvery-dipSoon, 0
}

// restore sets the limit to what the latency before a test allows, after the least latency was
// multiplied by a factor.
func (k *knee) restore(s state, factor float64) {
	fits := s.limit * factor / s.stretch // without a wait
	k.limit = min(s.limit, max(fits*(aim+k.spread/8), fits+1))
	k.usual, k.streak, k.cut, k.fall, k.dip, k.rise = aim, 0, state{}, state{}, state{}, state{}
}
