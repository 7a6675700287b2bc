package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/weirflow/weir/internal/overload"
)

// The layout of a picture, in pixels: panels below each other, with a line for each algorithm.
const (
	left        = 70
	perSecond   = 10
	width       = left + 60*perSecond + 20
	top         = 74
	panelHeight = 120
	panelSpace  = 34
	column      = 5 // bins that a point is the average of
)

const style = `
	.page { fill: #ffffff; stroke: #d0d7de; }
	text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; }
	.title { font-size: 14px; font-weight: 600; }
	.small { font-size: 11px; fill: #59636e; }
	.axis { stroke: #8c959f; stroke-width: 1; }
	.grid { stroke: #d0d7de; stroke-width: 1; }
	path { fill: none; stroke-width: 1.5; }
	.none { stroke: #8c959f; }
	.aimd { stroke: #bf8700; }
	.vegas { stroke: #8250df; }
	.gradient { stroke: #cf222e; }
	.knee { stroke: #0969da; stroke-width: 2.5; }
	.can { stroke: #1a7f37; stroke-dasharray: 4 3; stroke-width: 1; }
	@media (prefers-color-scheme: dark) {
		.page { fill: #0d1117; stroke: #3d444d; }
		text { fill: #f0f6fc; }
		.small { fill: #9198a1; }
		.axis { stroke: #656c76; }
		.grid { stroke: #3d444d; }
		.aimd { stroke: #d29922; }
		.vegas { stroke: #ab7df8; }
		.gradient { stroke: #f85149; }
		.knee { stroke: #4493f8; }
		.can { stroke: #3fb950; }
	}
`

// A panel is a figure over time. Larger values than most are drawn at the top.
type panel struct {
	name, unit string
	most       float64
	value      func(r run, b overload.Summary) (v float64, ok bool)
	can        func(overload.Service) float64 // the ideal
}

func panels() []panel {
	return []panel{
		{
			"limit", "", 250, func(r run, b overload.Summary) (float64, bool) { return b.Limit, r.limited },
			func(s overload.Service) float64 { return float64(s.Workers) },
		},
		{
			"served", "/s", 1100, func(_ run, b overload.Summary) (float64, bool) {
				return float64(b.Good) / (column * overload.BinWidth).Seconds(), true
			},
			func(s overload.Service) float64 {
				if s.Paused {
					return 0
				}
				return min(s.Rate, float64(s.Workers)/mean.Seconds()/max(s.Slowness, 1))
			},
		},
		{"p99", " s", 2, func(_ run, b overload.Summary) (float64, bool) { return b.P99.Seconds(), b.Good > 0 }, nil},
	}
}

// draw returns the picture of a scenario as SVG.
func (s scenario) draw(runs []run) []byte {
	var c bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&c, format+"\n", args...) }
	all := panels()
	height := top + len(all)*(panelHeight+panelSpace)
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`, width, height, width, height)
	line("<title>%s</title>", s.title)
	line("<style>%s</style>", style)
	line(`<rect class="page" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`, width-1, height-1)
	line(`<text class="title" x="16" y="24">%s</text>`, s.title)
	for i, r := range runs {
		line(`<path class="%s" d="M%d 44.5 h18"/><text class="small" x="%d" y="48">%s</text>`, r.class, 16+i*100, 40+i*100, r.name)
	}
	line(`<path class="can" d="M%d 44.5 h18"/><text class="small" x="%d" y="48">possible</text>`, 16+len(runs)*100, 40+len(runs)*100)
	for i, p := range all {
		ground := top + i*(panelHeight+panelSpace) + panelHeight
		y := func(v float64) float64 { return float64(ground) - min(v, p.most)*panelHeight/p.most }
		line(`<text class="small" x="%d" y="%d" text-anchor="end">%s</text>`, left-8, ground-panelHeight/2+4, p.name)
		line(`<text class="small" x="%d" y="%d" text-anchor="end">%g%s</text>`, left-8, ground-panelHeight+8, p.most, p.unit)
		line(`<text class="small" x="%d" y="%d" text-anchor="end">0</text>`, left-8, ground+4)
		for at := 0; at <= 60; at += 10 {
			line(`<path class="grid" d="M%d %d V%d"/>`, left+at*perSecond, ground-panelHeight, ground)
			line(`<text class="small" x="%d" y="%d" text-anchor="middle">%d s</text>`, left+at*perSecond, ground+16, at)
		}
		line(`<path class="axis" d="M%d %d.5 H%d"/>`, left, ground, left+60*perSecond)
		if p.can != nil {
			fmt.Fprintf(&c, `<path class="can" d="`)
			for d, mark := time.Duration(0), 'M'; d < length; d, mark = d+overload.BinWidth, 'L' {
				fmt.Fprintf(&c, "%c%.1f %.1f ", mark, left+d.Seconds()*perSecond, y(p.can(s.At(d))))
			}
			line(`"/>`)
		}
		for _, r := range runs {
			fmt.Fprintf(&c, `<path class="%s" d="`, r.class)
			mark := 'M'
			for from := 0; from+column <= len(r.bins); from += column {
				d := time.Duration(from) * overload.BinWidth
				v, ok := p.value(r, overload.Between(r.bins, d, d+column*overload.BinWidth))
				if !ok {
					mark = 'M'
					continue
				}
				fmt.Fprintf(&c, "%c%.1f %.1f ", mark, left+(d+column*overload.BinWidth/2).Seconds()*perSecond, y(v))
				mark = 'L'
			}
			line(`"/>`)
		}
	}
	line("</svg>")
	return c.Bytes()
}
