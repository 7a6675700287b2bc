package adaptive

import "math"

// Vegas estimates how many of the requests in flight are queued, limit * (1 - least / latency), and
// keeps that between Alpha and Beta times the decimal logarithm of the limit. The least latency is
// forgotten now and then, after Probe times the limit requests. If the service is then under load,
// the latency under load becomes the least, and the limit drifts upwards.
//
// It is VegasLimit of Netflix's concurrency-limits, with its defaults.
type Vegas struct {
	Initial   int64   // the limit at first; default: 20
	Min       int64   // default: 1
	Max       int64   // default: 1000
	Alpha     float64 // below so many queued requests the limit rises; default: 3
	Beta      float64 // above so many it falls; default: 6
	Smoothing float64 // the weight of each new estimate, above 0 and at most 1; default: 1
	Probe     float64 // default: 30
}

func (v Vegas) complete() (Vegas, error) {
	if err := bounds("Vegas", &v.Initial, &v.Min, &v.Max, [3]int64{20, 1, 1000}); err != nil {
		return v, err
	}
	for p, d := range map[*float64]float64{&v.Alpha: 3, &v.Beta: 6, &v.Smoothing: 1, &v.Probe: 30} {
		if *p == 0 {
			*p = d
		}
	}
	switch {
	case !(v.Alpha > 0 && v.Alpha <= v.Beta):
		return v, invalid("Vegas", "Alpha", "%g is not above 0 and at most Beta (%g)", v.Alpha, v.Beta)
	case !(v.Beta <= 1e6):
		return v, invalid("Vegas", "Beta", "%g is not within Alpha (%g) and 1,000,000", v.Beta, v.Alpha)
	case !(v.Smoothing > 0 && v.Smoothing <= 1):
		return v, invalid("Vegas", "Smoothing", "%g is not above 0 and at most 1", v.Smoothing)
	case !(v.Probe >= 1 && v.Probe <= 1e9):
		return v, invalid("Vegas", "Probe", "%g is not within 1 and 1,000,000,000", v.Probe)
	}
	return v, nil
}

// Validate returns an error if a parameter is invalid. The error names the field.
func (v Vegas) Validate() error {
	_, err := v.complete()
	return err
}

func (v Vegas) begin(draw func() float64) (controller, plan) {
	v, _ = v.complete() // New has validated it
	s := &vegas{Vegas: v, limit: float64(v.Initial), draw: draw, decrease: func(limit float64) float64 { return limit - log10(limit) }}
	s.jitter = 0.5 + s.draw()/2
	c := eachSample{limit: func() int64 { return int64(s.limit) }, update: s.step, least: func() float64 { return float64(s.least) }}
	return c, c.plan()
}

type vegas struct {
	Vegas
	limit    float64
	least    int64   // the least latency
	count    int     // samples since the least latency was forgotten
	jitter   float64 // so that many limiters do not probe at once
	draw     func() float64
	decrease func(limit float64) float64
}

// log10 is the step by which the limit changes: the whole digits of the logarithm, at least 1.
func log10(limit float64) float64 { return math.Max(1, math.Floor(math.Log10(limit))) }

func (v *vegas) step(s sample) {
	v.count++
	if v.jitter*v.Probe*v.limit <= float64(v.count) {
		v.jitter, v.count, v.least = 0.5+v.draw()/2, 0, s.latency
		return
	}
	if v.least == 0 || s.latency < v.least {
		v.least = s.latency
		return
	}
	digits := log10(math.Floor(v.limit))
	queue := math.Ceil(v.limit * (1 - float64(v.least)/float64(s.latency)))
	next := v.limit
	switch {
	case s.dropped:
		next = v.decrease(v.limit)
	case float64(s.inFlight)*2 < v.limit:
		return
	case queue <= digits:
		next += v.Beta * digits
	case queue < v.Alpha*digits:
		next += digits
	case queue > v.Beta*digits:
		next = v.decrease(v.limit)
	default:
		return
	}
	next = min(max(next, float64(v.Min)), float64(v.Max))
	v.limit = (1-v.Smoothing)*v.limit + v.Smoothing*next
}
