package weirplot

import (
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/weirflow/weir/sim"
)

// SweepPlots returns the plot of a sweep: the share of the clients that each combination limits, as a heat map
// if two parameters vary, and as bars if one does.
func SweepPlots(r *sim.SweepReport) ([]*Plot, error) {
	if len(r.Combinations) == 0 || len(r.Parameters) > 2 {
		return nil, nil
	}
	title := "Clients limited, in percent, of the limit " + Harmless(r.Limit, 60)
	if len(r.Parameters) == 2 {
		p, err := heatPlot(heatOfSweep(r), title, r.Parameters[0], r.Parameters[1])
		if p != nil {
			p.Name, p.Title = "sweep", "Clients limited"
		}
		return []*Plot{p}, err
	}
	p := newPlot(title)
	var values plotter.Values
	var labels []string
	for _, c := range r.Combinations {
		values = append(values, 100*float64(c.Clients)/float64(max(r.Clients, 1)))
		labels = append(labels, c.Values[0])
	}
	bars, err := plotter.NewBarChart(values, vg.Points(14))
	if err != nil {
		return nil, err
	}
	bars.Color, bars.LineStyle.Width = limitedColor, 0
	p.Add(bars)
	p.X.Label.Text, p.X.Tick.Marker = r.Parameters[0], names(labels)
	p.Y.Min = 0
	return []*Plot{{"sweep", "Clients limited", p, 9 * vg.Centimeter, vg.Centimeter / 2}}, nil
}

// heatOfSweep returns the shares of clients by the values of two parameters.
func heatOfSweep(r *sim.SweepReport) (h heatMap) {
	for _, c := range r.Combinations {
		if !slices.Contains(h.columns, c.Values[0]) {
			h.columns, h.share = append(h.columns, c.Values[0]), append(h.share, nil)
		}
		if !slices.Contains(h.rows, c.Values[1]) {
			h.rows = append(h.rows, c.Values[1])
		}
		last := len(h.share) - 1 // the first parameter changes last
		h.share[last] = append(h.share[last], float64(c.Clients)/float64(max(r.Clients, 1)))
	}
	return h
}
