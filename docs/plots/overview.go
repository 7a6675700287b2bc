package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/rules"
)

// The overview is the picture of the README: one stream of requests, and what several limits of
// 10/s let through.

// The layout of the overview, in pixels. A row shows one limit; a column shows binWidth of time.
const (
	overviewEnd   = 10 * sec
	binWidth      = 100 * ms
	columnWidth   = 6
	rowLeft       = 196
	rowTop        = 64
	rowHeight     = 78
	barsHeight    = 58 // the tallest bar of a row
	overviewWidth = rowLeft + int(overviewEnd/binWidth)*columnWidth + 150
)

// overviewRow is one limit of the overview; no limit where limit is nil.
type overviewRow struct {
	name, parameters string
	limit            weir.Limit
}

func overviewRows() []overviewRow {
	ten := weir.PerSecond(10)
	return []overviewRow{
		{"no limit", "what clients send", nil},
		{"fixed window", "10 per 1s", weir.FixedWindow{Limit: 10, Window: sec}},
		{"token bucket (GCRA)", "10/s, burst 5", weir.TokenBucket{Rate: ten, Burst: 5}},
		{"sliding window log", "10 per 1s", weir.SlidingLog{Limit: 10, Window: sec}},
		{"leaky bucket", "10/s, queue 10", weir.LeakyBucket{Rate: ten, Queue: 10}},
	}
}

// overviewArrivals are the times of the requests: 5/s all along, a spike across the boundary of two
// windows, and two seconds of 25/s.
func overviewArrivals() (all []time.Duration) {
	every := func(from, until, step time.Duration) {
		for t := from; t < until; t += step {
			all = append(all, t)
		}
	}
	every(0, overviewEnd, 200*ms)
	every(1800*ms, 2200*ms, 12*ms)
	every(5500*ms, 7500*ms, 40*ms)
	slices.Sort(all)
	return all
}

// overviewBin counts what happens in one column: a delayed request counts where it goes on.
type overviewBin struct{ passed, delayed, refused int }

// decideAll runs all arrivals through a limit. It returns the columns, and the most requests that
// go on within one second.
func decideAll(l weir.Limit, arrivals []time.Duration) (bins []overviewBin, most int, err error) {
	bins = make([]overviewBin, overviewEnd/binWidth)
	var now time.Duration
	var limiter *weir.Limiter
	if l != nil {
		if limiter, err = weir.New(l, weir.WithClock(func() int64 { return int64(now) })); err != nil {
			return nil, 0, err
		}
	}
	queues := l != nil && rules.KindOf(l).Queues
	var passes []time.Duration
	for _, now = range arrivals {
		at, delay := now/binWidth, time.Duration(0)
		switch {
		case queues:
			r, ok := limiter.Reserve(1, -1)
			if !ok {
				bins[at].refused++
				continue
			}
			delay = r.Delay()
		case limiter != nil && !limiter.Allow():
			bins[at].refused++
			continue
		}
		passes = append(passes, now+delay)
		switch at = (now + delay) / binWidth; {
		case int(at) >= len(bins): // beyond the picture
		case delay > 0:
			bins[at].delayed++
		default:
			bins[at].passed++
		}
	}
	first := 0
	for i := range passes {
		for passes[i]-passes[first] >= sec {
			first++
		}
		most = max(most, i-first+1)
	}
	return bins, most, nil
}

// drawOverview draws the picture.
func drawOverview() ([]byte, error) {
	rows, arrivals := overviewRows(), overviewArrivals()
	height := rowTop + len(rows)*rowHeight + 30
	var c canvas
	c.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, overviewWidth, height, overviewWidth, height)
	c.line("<title>The same requests through four rate limits of 10/s: what passes, what is delayed, and what is refused</title>")
	c.line("<style>%s</style>", style)
	c.line(`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`, overviewWidth-1, height-1)
	c.text(16, 26, "title", "start", "The same requests through four limits of 10 requests a second")
	c.overviewLegend()
	scale := 0.0
	for i, row := range rows {
		bins, most, err := decideAll(row.limit, arrivals)
		if err != nil {
			return nil, err
		}
		if scale == 0 { // the first row has the tallest bar
			for _, b := range bins {
				scale = max(scale, float64(b.passed))
			}
			scale = barsHeight / scale
		}
		c.overviewRow(row, bins, most, rowTop+(i+1)*rowHeight-12, scale)
	}
	for s := time.Duration(0); s <= overviewEnd; s += sec {
		c.text(columnX(s), float64(height-14), "small", "middle", fmt.Sprintf("%d s", s/sec))
	}
	c.line("</svg>")
	return c.Bytes(), nil
}

// columnX is where a time is drawn.
func columnX(t time.Duration) float64 { return rowLeft + float64(t)/float64(binWidth)*columnWidth }

func (c *canvas) overviewLegend() {
	at := float64(rowLeft)
	for _, entry := range []struct {
		class, text string
		wide        float64
	}{{"yes", "passes at once", 118}, {"waits", "passes after a delay", 148}, {"no", "refused (429)", 120}} {
		c.line(`<rect class="%s" x="%.1f" y="43.5" width="8" height="8"/>`, entry.class, at)
		c.text(at+14, 52, "small", "start", entry.text)
		at += entry.wide
	}
	c.text(float64(overviewWidth-16), 52, "small", "end", "most in one second")
}

// overviewRow draws one limit with its bars standing on ground.
func (c *canvas) overviewRow(row overviewRow, bins []overviewBin, most, ground int, scale float64) {
	c.text(16, float64(ground-22), "title", "start", row.name)
	c.text(16, float64(ground-5), "small", "start", row.parameters)
	for s := time.Duration(0); s <= overviewEnd; s += sec {
		c.line(`<path class="grid" d="M%.1f %d V%d"/>`, columnX(s), ground-barsHeight, ground)
	}
	for i, b := range bins {
		x, y := columnX(time.Duration(i)*binWidth), float64(ground)
		for _, part := range []struct {
			class string
			n     int
		}{{"yes", b.passed}, {"waits", b.delayed}, {"no", b.refused}} {
			if part.n == 0 {
				continue
			}
			tall := float64(part.n) * scale
			y -= tall
			if part.class == "no" { // an outline, which is drawn half outside
				c.line(`<rect class="no" x="%.1f" y="%.1f" width="4" height="%.1f"/>`, x+1, y+0.5, max(tall-1, 0.5))
				continue
			}
			c.line(`<rect class="%s" x="%.1f" y="%.1f" width="5" height="%.1f"/>`, part.class, x+0.5, y, tall)
		}
	}
	c.line(`<path class="axis" d="M%d %d.5 H%.1f"/>`, rowLeft, ground, columnX(overviewEnd))
	c.text(float64(overviewWidth-16), float64(ground-12), "title", "end", fmt.Sprint(most))
}
