package weirplot

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/weirflow/weir/sim"
)

//go:embed page.html sweep.html style.html
var pages embed.FS

// page is what page.html shows.
type page struct {
	*sim.Report
	head
	Peaks []peak
}

// sweepPage is what sweep.html shows.
type sweepPage struct {
	*sim.SweepReport
	head
}

// head is the same in both.
type head struct {
	First, Last time.Time
	Formats     string
	Plots       []pagePlot
}

type pagePlot struct {
	Name, Title string
	SVG         template.HTML
}

type peak struct {
	Window string
	sim.Quantiles
}

// WritePage writes a report with profiles as one HTML page that needs nothing else: no script, and nothing from the
// network.
func WritePage(w io.Writer, r *sim.Report) error {
	plots, err := Plots(r)
	if err != nil {
		return err
	}
	p := page{Report: r}
	if p.head, err = newHead(&r.Reading, plots); err != nil {
		return err
	}
	for i, window := range []string{"second", "minute", "hour"} {
		p.Peaks = append(p.Peaks, peak{window, r.Clients.Peaks[i]})
	}
	return write(w, "page.html", p)
}

// WriteSweepPage writes the report of a sweep as one HTML page, with its plot and its table.
func WriteSweepPage(w io.Writer, r *sim.SweepReport) error {
	plots, err := SweepPlots(r)
	if err != nil {
		return err
	}
	p := sweepPage{SweepReport: r}
	if p.head, err = newHead(&r.Reading, plots); err != nil {
		return err
	}
	return write(w, "sweep.html", p)
}

func newHead(r *sim.Reading, plots []*Plot) (h head, err error) {
	h.First, h.Last = time.Unix(0, r.First).UTC(), time.Unix(0, r.Last).UTC()
	for _, each := range plots {
		svg, err := each.svg()
		if err != nil {
			return head{}, err
		}
		h.Plots = append(h.Plots, pagePlot{each.Name, each.Title, template.HTML(svg)}) // made by us; texts in it are escaped
	}
	var logs []string
	for _, f := range r.Formats {
		logs = append(logs, fmt.Sprintf("%s (%s)", Harmless(f.Input, 80), f.Format))
	}
	h.Formats = strings.Join(logs, ", ")
	return h, nil
}

func write(w io.Writer, name string, content any) error {
	t, err := template.New(name).Funcs(template.FuncMap{
		"harmless": func(s string) string { return Harmless(s, 120) },
		"percent": func(n, of int64) string {
			return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(max(of, 1)))
		},
		"time": func(t time.Time) string { return t.Format("2006-01-02 15:04:05") },
	}).ParseFS(pages, name, "style.html")
	if err != nil {
		return err
	}
	return t.Execute(w, content)
}
