package main

import (
	"bytes"
	"fmt"
	"time"
)

// The layout, in pixels.
const (
	left   = 66 // of what is drawn, beside the labels
	perSec = 40
	width  = left + 16*perSec + 18
	bin    = 250 * time.Millisecond // what stands in one column
	cell   = 8                      // of a request, with the space around it
	top    = 78
	ground = top + 146   // where requests stand on
	strip  = ground + 66 // where strokes for those that go stand on
	each   = 3           // of a stroke, for each request
	base   = strip + 68  // of what is left
	tall   = 46          // of what is left, at most
	height = base + 34
)

const style = `
	.page { fill: #ffffff; stroke: #d0d7de; }
	text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
	.title { font-size: 14px; font-weight: 600; }
	.small { font-size: 11px; fill: #59636e; }
	.axis { stroke: #8c959f; stroke-width: 1; }
	.grid { stroke: #d0d7de; stroke-width: 1; }
	.phase { fill: #f0f3f6; }
	.yes { fill: #0969da; }
	.waits { fill: #bf8700; }
	.no { fill: none; stroke: #cf222e; stroke-width: 1; }
	.goes { stroke: #0969da; stroke-width: 1.5; }
	.left { fill: #0969da; fill-opacity: 0.22; stroke: #0969da; stroke-width: 1; }
	@media (prefers-color-scheme: dark) {
		.page { fill: #0d1117; stroke: #3d444d; }
		text { fill: #f0f6fc; }
		.small { fill: #9198a1; }
		.axis { stroke: #656c76; }
		.grid { stroke: #3d444d; }
		.phase { fill: #1a212b; }
		.yes { fill: #4493f8; }
		.waits { fill: #d29922; }
		.no { stroke: #f85149; }
		.goes { stroke: #4493f8; }
		.left { fill: #4493f8; stroke: #4493f8; }
	}
`

// canvas is a picture that is being drawn.
type canvas struct{ bytes.Buffer }

func (c *canvas) line(format string, args ...any) { fmt.Fprintf(&c.Buffer, format+"\n", args...) }

func (c *canvas) text(x, y float64, class, anchor, text string) {
	c.line(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, text)
}

// x is where a time is.
func x(t time.Duration) float64 { return left + t.Seconds()*perSec }

// draw returns the picture as SVG.
func (p plot) draw() ([]byte, error) {
	requests, levels, err := run(p.limit)
	if err != nil {
		return nil, err
	}
	admitted, waiting := 0, false
	for _, r := range requests {
		if !r.refused {
			admitted++
		}
		waiting = waiting || !r.refused && r.goes > r.at
	}
	c := &canvas{}
	c.line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, width, height, width, height)
	summary := fmt.Sprintf("%d of %d go, at most %d within 2 s", admitted, len(requests), most(requests))
	c.line("<title>%s: %s</title>", p.title, summary)
	c.line("<style>%s</style>", style)
	c.line(`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`, width-1, height-1)
	c.text(16, 24, "title", "start", p.title)
	c.text(width-16, 24, "", "end", summary)
	c.legend(waiting)
	c.axes()
	c.requests(requests)
	c.goes(requests)
	c.levels(levels, waiting)
	c.line("</svg>")
	return c.Bytes(), nil
}

// legend explains the marks.
func (c *canvas) legend(waiting bool) {
	at := 16.0
	entry := func(class, text string, wide float64) {
		c.line(`<rect class="%s" x="%.1f" y="37.5" width="7" height="7"/>`, class, at)
		c.text(at+13, 45, "small", "start", text)
		at += wide
	}
	entry("yes", "a request that goes at once", 178)
	if waiting {
		entry("waits", "one that waits", 108)
	}
	entry("no", "one that is refused", 0)
}

// axes draws the phases, the time, and the names of what is shown.
func (c *canvas) axes() {
	for _, p := range traffic {
		c.line(`<rect class="phase" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x(p.from), top, x(p.until)-x(p.from), base-top)
		middle, anchor := (x(p.from)+x(p.until))/2, "middle"
		if p.until == end {
			middle, anchor = x(end), "end"
		}
		c.text(middle, top-6, "small", anchor, p.name)
	}
	for s := 0; s <= 16; s += 2 {
		t := time.Duration(s) * time.Second
		c.line(`<path class="grid" d="M%.1f %d V%d"/>`, x(t), ground, base+4)
		c.text(x(t), base+18, "small", "middle", fmt.Sprintf("%d s", s))
	}
	c.line(`<path class="axis" d="M%d %d.5 H%.1f"/>`, left, ground, x(end))
	c.line(`<path class="axis" d="M%d %d.5 H%.1f"/>`, left, strip, x(end))
	c.line(`<path class="axis" d="M%d %d.5 H%.1f"/>`, left, base, x(end))
	c.text(left-8, ground, "small", "end", "come")
	c.text(left-8, strip, "small", "end", "go")
}

// requests stacks the requests of each quarter of a second.
func (c *canvas) requests(requests []request) {
	count := map[time.Duration]int{}
	for _, r := range requests {
		column := r.at / bin
		cx, cy := x(column*bin)+1, float64(ground-cell*(count[column]+1))
		count[column]++
		switch {
		case r.refused:
			c.line(`<rect class="no" x="%.1f" y="%.1f" width="6" height="6"/>`, cx+0.5, cy+0.5)
		case r.goes > r.at:
			c.line(`<rect class="waits" x="%.1f" y="%.1f" width="7" height="7"/>`, cx, cy)
		default:
			c.line(`<rect class="yes" x="%.1f" y="%.1f" width="7" height="7"/>`, cx, cy)
		}
	}
}

// goes draws a stroke for each moment at which requests go, the longer the more there are.
func (c *canvas) goes(requests []request) {
	n := map[time.Duration]int{}
	var moments []time.Duration
	for _, r := range requests {
		if r.refused || r.goes > end {
			continue
		}
		if n[r.goes]++; n[r.goes] == 1 {
			moments = append(moments, r.goes)
		}
	}
	for i, t := range moments {
		top := strip - 4 - each*(n[t]-1)
		c.line(`<path class="goes" d="M%.1f %d V%d"/>`, x(t), strip, top)
		switch near := i+1 < len(moments) && n[moments[i+1]] > 5 && x(moments[i+1])-x(t) < 30; {
		case n[t] > 5 && near:
			c.text(x(t)-4, float64(top+9), "small", "end", fmt.Sprint(n[t]))
		case n[t] > 5:
			c.text(x(t)+4, float64(top+9), "small", "start", fmt.Sprint(n[t]))
		}
	}
}

// levels draws what is left.
func (c *canvas) levels(levels []level, queue bool) {
	highest := int64(1)
	for _, l := range levels {
		highest = max(highest, l.left)
	}
	y := func(left int64) float64 { return base - float64(left)*tall/float64(highest) }
	name := "left"
	if queue {
		name = "waiting"
	}
	c.text(left-8, base-tall/2+4, "small", "end", name)
	c.text(left-8, base-tall+4, "small", "end", fmt.Sprint(highest))
	c.text(left-8, base+4, "small", "end", "0")
	fmt.Fprintf(&c.Buffer, `<path class="left" d="M%d %d`, left, base)
	for _, l := range levels {
		fmt.Fprintf(&c.Buffer, " H%.1f V%.1f", x(l.at), y(l.left))
	}
	c.line(` H%.1f V%d Z"/>`, x(end), base)
}
