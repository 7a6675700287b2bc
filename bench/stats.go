package main

import (
	"math"
	"slices"
)

// percentile returns the value below which a share p, from 0 to 1, of the values lie, with linear
// interpolation. Without values, it is NaN.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := p * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// median returns the value in the middle.
func median(values []float64) float64 { return percentile(values, 0.5) }

// values are the figures of one run, by name.
type values map[string]float64

// get returns a figure; NaN if it is missing.
func (v values) get(name string) float64 {
	if f, ok := v[name]; ok {
		return f
	}
	return math.NaN()
}

// row lays figures out in the order of their names.
func (v values) row(title string, names ...string) row {
	r := row{Name: title}
	for _, name := range names {
		r.Values = append(r.Values, v.get(name))
	}
	return r
}

// medians returns the median of each figure over the runs that have it.
func medians(runs []values) values {
	found := map[string][]float64{}
	for _, run := range runs {
		for name, v := range run {
			found[name] = append(found[name], v)
		}
	}
	m := values{}
	for name, v := range found {
		m[name] = median(v)
	}
	return m
}
