package adaptive

// Gradient2 multiplies the limit by the ratio of the long-term average latency to the latest one,
// within 0.5 and 1, and adds Queue. Latency up to Tolerance times the average does not lower the
// limit. It does not hear of drops; and as Queue is added with each request, the limit and the
// average rise together, without bound but Max, while the overload is mild.
//
// It is Gradient2Limit of Netflix's concurrency-limits, with its defaults.
type Gradient2 struct {
	Initial   int64   // the limit at first; default: 20
	Min       int64   // default: 20
	Max       int64   // default: 200
	Smoothing float64 // the weight of each new estimate, above 0 and at most 1; default: 0.2
	Queue     float64 // how many requests may be queued; default: 4
	Window    int     // how many requests the long-term average is about; default: 600
	Tolerance float64 // at least 1; default: 1.5
}

func (g Gradient2) complete() (Gradient2, error) {
	if err := bounds("Gradient2", &g.Initial, &g.Min, &g.Max, [3]int64{20, 20, 200}); err != nil {
		return g, err
	}
	for p, d := range map[*float64]float64{&g.Smoothing: 0.2, &g.Queue: 4, &g.Tolerance: 1.5} {
		if *p == 0 {
			*p = d
		}
	}
	if g.Window == 0 {
		g.Window = 600
	}
	switch {
	case !(g.Smoothing > 0 && g.Smoothing <= 1):
		return g, invalid("Gradient2", "Smoothing", "%g is not above 0 and at most 1", g.Smoothing)
	case !(g.Queue > 0 && g.Queue <= 1e6):
		return g, invalid("Gradient2", "Queue", "%g is not above 0 and at most 1,000,000", g.Queue)
	case g.Window < 1:
		return g, invalid("Gradient2", "Window", "%d is not a number of requests: it must be at least 1", g.Window)
	case !(g.Tolerance >= 1 && g.Tolerance <= 1e6):
		return g, invalid("Gradient2", "Tolerance", "%g is not within 1 and 1,000,000", g.Tolerance)
	}
	return g, nil
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (g Gradient2) Validate() error {
	_, err := g.complete()
	return err
}

func (g Gradient2) begin(func() float64) (controller, plan) {
	g, _ = g.complete() // New has validated it
	s := &gradient2{Gradient2: g, limit: float64(g.Initial), long: average{window: g.Window, plain: 10}}
	c := eachSample{limit: func() int64 { return int64(s.limit) }, update: s.step}
	return c, c.plan()
}

type gradient2 struct {
	Gradient2
	limit float64
	long  average
}

func (g *gradient2) step(s sample) {
	short := float64(s.latency)
	long := g.long.add(short)
	if long/short > 2 {
		// the load has fallen: without this, the average would take long to follow
		g.long.value *= 0.95
	}
	if float64(s.inFlight) < g.limit/2 {
		return
	}
	gradient := min(max(g.Tolerance*long/short, 0.5), 1)
	next := g.limit*(1-g.Smoothing) + g.Smoothing*(g.limit*gradient+g.Queue)
	g.limit = min(max(next, float64(g.Min)), float64(g.Max))
}

// An average is exponential over about window samples, and a plain mean over the first few.
type average struct {
	window, plain, count int
	value, sum           float64
}

func (a *average) add(v float64) float64 {
	if a.count < a.plain {
		a.count++
		a.sum += v
		a.value = a.sum / float64(a.count)
	} else {
		weight := 2 / float64(a.window+1)
		a.value = a.value*(1-weight) + v*weight
	}
	return a.value
}
