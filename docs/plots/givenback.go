package main

import (
	"fmt"
	"time"

	"github.com/weirflow/weir"
)

// The picture shows how much of a limit is used if requests are charged an estimate and settled to
// their actual cost: with the exact refund rule of Limiter, and with the rule for states alone, which
// stores use. docs/guarantees.md describes both.
const (
	perMinute = 100_000 // and as many in a burst
	estimated = 4_000
	actual    = 500
	token     = int64(time.Minute) / perMinute // nanoseconds in which one token refills
)

// A settler admits a request at its estimated cost. The caller settles the actual cost later.
type settler interface {
	admit(now int64) (settle func(now int64), ok bool)
}

// exactly is a settler with the exact rule: a Limiter.
type exactly struct {
	now     int64
	limiter *weir.Limiter
}

func newExactly() (*exactly, error) {
	e := &exactly{}
	var err error
	e.limiter, err = weir.New(weir.TokenBucket{Rate: weir.PerMinute(perMinute), Burst: perMinute}, weir.WithClock(func() int64 { return e.now }))
	return e, err
}

func (e *exactly) admit(now int64) (func(int64), bool) {
	e.now = now
	r, ok := e.limiter.Reserve(estimated, 0)
	return func(now int64) { e.now = now; r.Settle(actual) }, ok
}

// byState is a settler with the rule for states alone. Its state is the time at which the bucket is
// full, and the total given back. No work is delayed here.
type byState struct{ full, returned int64 }

func (b *byState) admit(now int64) (func(int64), bool) {
	full := max(b.full, now) + estimated*token
	if full > now+perMinute*token {
		return nil, false
	}
	b.full = full
	returned := b.returned
	return func(now int64) {
		give := min((estimated-actual)*token, full-(b.returned-returned)-now, max(b.full-now, 0))
		b.full -= max(give, 0)
		b.returned += max(give, 0)
	}, true
}

// utilisation returns the fraction of the limit that is used in an hour. Each request takes the given
// time, and requests arrive at the rate at which the limit could serve them.
func utilisation(s settler, takes time.Duration) float64 {
	type open struct {
		settle func(int64)
		ends   int64
	}
	var running []open
	done := int64(0)
	for now := int64(0); now < int64(time.Hour); now += actual * token {
		for len(running) > 0 && running[0].ends <= now {
			running[0].settle(running[0].ends)
			running = running[1:]
		}
		if settle, ok := s.admit(now); ok {
			running = append(running, open{settle, now + int64(takes)})
			done += actual
		}
	}
	return float64(done) / (60 * perMinute)
}

// drawGivenBack draws the utilisation with both rules, over the duration of requests.
func drawGivenBack() ([]byte, error) {
	const (
		wide, high          = 640, 330
		originX, originY    = 60, 270
		perSecond, perWhole = 9.0, 190.0
		longest             = 60
	)
	at := func(seconds int, used float64) (x, y float64) {
		return originX + float64(seconds)*perSecond, originY - used*perWhole
	}
	c := &canvas{}
	c.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, wide, high, wide, high)
	c.line(`<title>Part of a limit that is used, by how long requests take until they are settled</title>`)
	c.line(`<style>%s</style>`, style)
	c.line(`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`, wide-1, high-1)
	c.text(18, 28, "title", "start", "What each rule for giving back wastes")
	c.text(18, 47, "small", "start", fmt.Sprintf("TokenBucket %d/m, burst %d: requests estimated at %d, settled to %d", perMinute, perMinute, estimated, actual))
	for tenth := 0; tenth <= 10; tenth += 2 {
		_, y := at(0, float64(tenth)/10)
		c.line(`<line class="grid" x1="%d" y1="%.1f" x2="%.1f" y2="%.1f"/>`, originX, y, originX+longest*perSecond, y)
		c.text(originX-8, y+4, "small", "end", fmt.Sprintf("%d %%", tenth*10))
	}
	for s := 0; s <= longest; s += 10 {
		x, y := at(s, 0)
		c.text(x, y+18, "small", "middle", fmt.Sprintf("%d s", s))
	}
	c.text(originX+longest*perSecond/2, originY+40, "small", "middle", "time from the estimate to the settlement")
	for _, rule := range []struct {
		class, name string
		open        func() (settler, error)
	}{
		{"axis", "the rule for states alone", func() (settler, error) { return &byState{}, nil }},
		{"goes", "the exact rule (in process)", func() (settler, error) { return newExactly() }},
	} {
		points := ""
		for s := 0; s <= longest; s++ {
			of, err := rule.open()
			if err != nil {
				return nil, err
			}
			x, y := at(s, utilisation(of, time.Duration(s)*time.Second))
			points += fmt.Sprintf("%.1f,%.1f ", x, y)
			switch {
			case s == 22 && rule.class == "goes":
				c.text(x+8, y-12, "small", "start", rule.name)
			case s == 20 && rule.class == "axis":
				c.text(x-8, y+30, "small", "end", rule.name)
			}
		}
		c.line(`<polyline class="%s" fill="none" style="stroke-width:2" points="%s"/>`, rule.class, points)
	}
	c.line(`</svg>`)
	return c.Bytes(), nil
}
