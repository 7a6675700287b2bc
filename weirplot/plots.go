package weirplot

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/weirflow/weir/sim"
)

// A Plot is one picture of a report.
type Plot struct {
	Name   string // for a file: lower case, without an extension
	Title  string // short; the picture has a longer one
	plot   *plot.Plot
	height vg.Length
	left   vg.Length // margin: a browser may have wider fonts
}

// width is that of all plots.
const width = 24 * vg.Centimeter

// Encode writes the plot in a format: svg, png or pdf.
func (p *Plot) Encode(w io.Writer, format string) error {
	c, err := draw.NewFormattedCanvas(width, p.height, format)
	if err != nil {
		return err
	}
	p.plot.Draw(draw.Crop(draw.New(c), p.left, -vg.Centimeter/2, 0, 0))
	if format != "svg" {
		_, err = c.WriteTo(w)
		return err
	}
	var b bytes.Buffer
	if _, err = c.WriteTo(&b); err != nil {
		return err
	}
	// the places of texts are computed for the widths of this font, which few systems have
	_, err = w.Write(bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Serif;"), []byte("font-family:'Liberation Serif','Times New Roman',Times,serif;font-size-adjust:.46;")))
	return err
}

// svg returns the plot as an element of an HTML page.
func (p *Plot) svg() (string, error) {
	var b bytes.Buffer
	if err := p.Encode(&b, "svg"); err != nil {
		return "", err
	}
	_, element, ok := strings.Cut(b.String(), "<svg")
	if !ok {
		return "", fmt.Errorf("the plot %s is not SVG", p.Name)
	}
	return "<svg" + element, nil
}

var (
	allowedColor = color.RGBA{0x4c, 0x8c, 0xbf, 0xff}
	delayedColor = color.RGBA{0xe8, 0xb0, 0x3a, 0xff}
	limitedColor = color.RGBA{0xc2, 0x3b, 0x3b, 0xff}
)

// Plots returns the plots of a report with profiles, those for which there is something to draw.
func Plots(r *sim.Report) ([]*Plot, error) {
	var all []*Plot
	for _, of := range []func(*sim.Report) (*Plot, error){requests, heat, most} {
		p, err := of(r)
		if err != nil {
			return nil, err
		}
		if p != nil {
			all = append(all, p)
		}
	}
	return all, nil
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = vg.Points(13)
	p.Title.Padding = vg.Points(6)
	p.Legend.Padding = vg.Points(3) // the spaces after names are room for the wider fonts of browsers
	return p
}

// requests draws the requests over time: what was allowed, on it what was delayed, on it what was limited.
func requests(r *sim.Report) (*Plot, error) {
	if len(r.Timeline) == 0 {
		return nil, nil
	}
	p := newPlot("Requests per " + slot(r) + ": allowed, delayed, limited")
	p.X.Tick.Marker = clockTicks{}
	p.X.Label.Text = "UTC"
	p.Y.Min = 0
	p.Y.Tick.Marker = wholeTicks{}
	p.Legend.Top = true
	below := make([]float64, len(r.Timeline))
	for _, layer := range []struct {
		name  string
		color color.Color
		of    func(*sim.Span) int64
	}{
		{"allowed", allowedColor, func(s *sim.Span) int64 { return s.Allowed }},
		{"delayed", delayedColor, func(s *sim.Span) int64 { return s.Delayed }},
		{"limited", limitedColor, func(s *sim.Span) int64 { return s.Limited }},
	} {
		var top, bottom plotter.XYs
		some := false
		for i := range r.Timeline {
			s := &r.Timeline[i]
			from := float64(s.Start.UnixNano()) / 1e9
			to := from + r.Slot.Seconds()
			bottom = append(bottom, plotter.XY{X: from, Y: below[i]}, plotter.XY{X: to, Y: below[i]})
			n := float64(layer.of(s))
			some = some || n > 0
			below[i] += n
			top = append(top, plotter.XY{X: from, Y: below[i]}, plotter.XY{X: to, Y: below[i]})
		}
		if !some {
			continue
		}
		for i := len(bottom) - 1; i >= 0; i-- {
			top = append(top, bottom[i])
		}
		area, err := plotter.NewPolygon(top)
		if err != nil {
			return nil, err
		}
		area.Color, area.LineStyle.Width = layer.color, 0
		p.Add(area)
		p.Legend.Add(layer.name+"  ", area)
	}
	p.Y.Max *= 1.2 // room for the legend
	return &Plot{"requests", "Requests over time", p, 9 * vg.Centimeter, vg.Centimeter / 2}, nil
}

// slot says how long a slot of the timeline is.
func slot(r *sim.Report) string {
	if d := r.Slot; d >= 24*time.Hour && d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	text := r.Slot.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// heatMap has shares of clients, from 0 to 1, by column and row.
type heatMap struct {
	columns, rows []string
	share         [][]float64
}

func (h heatMap) Dims() (c, r int)   { return len(h.columns), len(h.rows) }
func (h heatMap) X(c int) float64    { return float64(c) }
func (h heatMap) Y(r int) float64    { return float64(r) }
func (h heatMap) Z(c, r int) float64 { return math.Sqrt(h.share[c][r]) } // small shares matter most

// ramp is a palette from nearly white to dark red.
type ramp struct{}

func (ramp) Colors() []color.Color {
	all := make([]color.Color, 64)
	for i := range all {
		t := float64(i) / 63
		all[i] = color.RGBA{uint8(250 - 90*t), uint8(246 - 220*t), uint8(240 - 210*t), 0xff}
	}
	return all
}

// heat draws the share of clients that a token bucket for each client would have limited.
func heat(r *sim.Report) (*Plot, error) {
	h := heatMap{r.Heat.Rates, numbers(r.Heat.Bursts), r.Heat.Share}
	if len(h.columns) == 0 || len(h.rows) < 2 {
		return nil, nil
	}
	return heatPlot(h, "Clients limited, in percent, by the rate and burst of a token bucket for each client", "rate", "burst")
}

// heatPlot draws shares as colors, and writes them into the cells.
func heatPlot(h heatMap, title, columns, rows string) (*Plot, error) {
	p := newPlot(title)
	if len(h.columns) > 1 && len(h.rows) > 1 { // the library draws no smaller one
		m := plotter.NewHeatMap(h, ramp{})
		m.Min, m.Max = 0, 1
		p.Add(m)
	}
	var cells plotter.XYLabels
	for c := range h.columns {
		for b := range h.rows {
			cells.XYs = append(cells.XYs, plotter.XY{X: float64(c), Y: float64(b)})
			cells.Labels = append(cells.Labels, shareText(h.share[c][b]))
		}
	}
	labels, err := plotter.NewLabels(cells)
	if err != nil {
		return nil, err
	}
	for i := range labels.TextStyle {
		s := &labels.TextStyle[i]
		s.Font.Size, s.XAlign, s.YAlign = font.Length(7), text.XCenter, text.YCenter
		if len(h.columns) > 1 && len(h.rows) > 1 && h.share[i/len(h.rows)][i%len(h.rows)] > 0.3 {
			s.Color = color.White
		}
	}
	p.Add(labels)
	p.X.Label.Text, p.Y.Label.Text = columns, rows
	p.X.Tick.Marker, p.Y.Tick.Marker = names(h.columns), names(h.rows)
	return &Plot{"heat", "Which share of the clients a rate and a burst would limit", p, vg.Length(4+0.6*float64(len(h.rows))) * vg.Centimeter, vg.Centimeter / 2}, nil
}

// shareText is a share in percent, with the digits that matter.
func shareText(share float64) string {
	switch p := 100 * share; {
	case p == 0:
		return "0"
	case p < 0.1:
		return "<.1"
	case p < 10:
		return strconv.FormatFloat(p, 'f', 1, 64)
	default:
		return strconv.FormatFloat(p, 'f', 0, 64)
	}
}

func names(all []string) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for i, name := range all {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
	}
	return ticks
}

func numbers(all []int64) (texts []string) {
	for _, n := range all {
		texts = append(texts, strconv.FormatInt(n, 10))
	}
	return texts
}

// most draws the clients that were limited most.
func most(r *sim.Report) (*Plot, error) {
	if len(r.Doing) == 0 {
		return nil, nil
	}
	p := newPlot("The clients that were limited most: their requests")
	n := len(r.Doing)
	limited, rest := make(plotter.Values, n), make(plotter.Values, n)
	clients := make([]string, n)
	for i, c := range r.Doing {
		at := n - 1 - i // the first is at the top
		limited[at], rest[at] = float64(c.Limited), float64(c.Requests-c.Limited)
		clients[at] = Harmless(c.Client, 40)
	}
	var below *plotter.BarChart
	for _, layer := range []struct {
		name   string
		values plotter.Values
		color  color.Color
	}{{"limited", limited, limitedColor}, {"admitted", rest, allowedColor}} {
		bars, err := plotter.NewBarChart(layer.values, vg.Points(14))
		if err != nil {
			return nil, err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width = true, layer.color, 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(layer.name+"  ", bars)
	}
	p.NominalY(clients...)
	longest := 0
	for _, name := range clients {
		longest = max(longest, len(name))
	}
	return &Plot{"clients", "The clients that were limited most", p, vg.Length(3+0.8*float64(n)) * vg.Centimeter, vg.Length(0.5+0.07*float64(longest)) * vg.Centimeter}, nil
}

// Harmless returns a text of a log as it can be shown: control characters and those that change the direction of text
// are escaped, and it is cut to a length.
func Harmless(s string, most int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > most {
			b.WriteString("…")
			break
		}
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
