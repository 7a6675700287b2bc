package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// draw draws a table whose rows are named by numbers, as an SVG file: a line for each column.
func (t *mergedTable) draw(file string) error {
	p := plot.New()
	p.Title.Text = t.Title
	p.X.Label.Text, p.Y.Label.Text = t.Of, t.Unit
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min = 0
	p.Legend.Top = true
	p.Legend.Left = true
	for i, c := range t.Columns {
		var points plotter.XYs
		for _, r := range t.Rows {
			x, err := strconv.ParseFloat(r.Name, 64)
			if err != nil {
				return fmt.Errorf("%s: the row %q is no number", t.Title, r.Name)
			}
			if i < len(r.Values) && !math.IsNaN(r.Values[i]) {
				points = append(points, plotter.XY{X: x, Y: r.Values[i]})
			}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", t.Title, c.Name, err)
		}
		line.Color, dots.Color, dots.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		line.Width = vg.Points(1.5)
		if i >= len(plotutil.DefaultColors) { // its color has been used
			line.Dashes = plotutil.Dashes(1)
		}
		p.Add(line, dots)
		p.Legend.Add(c.Name, line, dots)
	}
	p.Y.Max *= 1.4 // room for the legend
	p.X.Max *= 1.6 // room for the last number
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return p.Save(20*vg.Centimeter, 11*vg.Centimeter, file)
}
