package weirplot

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/weirflow/weir/sim"
)

//go:embed page.html
var pageText string

// page is what page.html shows.
type page struct {
	*sim.Report
	First, Last time.Time
	Formats     string
	Plots       []pagePlot
	Peaks       []peak
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
	p := page{Report: r, First: time.Unix(0, r.Reading.First).UTC(), Last: time.Unix(0, r.Reading.Last).UTC()}
	for _, each := range plots {
		svg, err := each.svg()
		if err != nil {
			return err
		}
		p.Plots = append(p.Plots, pagePlot{each.Name, each.Title, template.HTML(svg)}) // made by us; texts in it are escaped
	}
	for i, window := range []string{"second", "minute", "hour"} {
		p.Peaks = append(p.Peaks, peak{window, r.Clients.Peaks[i]})
	}
	var logs []string
	for _, f := range r.Reading.Formats {
		logs = append(logs, fmt.Sprintf("%s (%s)", Harmless(f.Input, 80), f.Format))
	}
	p.Formats = strings.Join(logs, ", ")
	t, err := template.New("page").Funcs(template.FuncMap{
		"harmless": func(s string) string { return Harmless(s, 120) },
		"percent": func(n, of int64) string {
			return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(max(of, 1)))
		},
		"time": func(t time.Time) string { return t.Format("2006-01-02 15:04:05") },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, p)
}
