package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		p      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 0.9, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{5, 4, 3, 2, 1}, 0, 1},
		{[]float64{5, 4, 3, 2, 1}, 1, 5},
		{[]float64{10, 0}, 0.1, 1},
		{[]float64{10, 0}, 0.9, 9},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9, 9},
	} {
		if got := percentile(c.values, c.p); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("percentile(%v, %v) = %v, want %v", c.values, c.p, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
	values := []float64{2, 1}
	if median(values); values[0] != 2 {
		t.Error("median sorted its argument")
	}
}

func TestMedians(t *testing.T) {
	m := medians([]values{{"a": 1, "b": 5}, {"a": 3}, {"a": 100, "b": 7}})
	if m.get("a") != 3 || m.get("b") != 6 || !math.IsNaN(m.get("c")) {
		t.Error(m)
	}
	r := m.row("x", "b", "", "a")
	if r.Name != "x" || r.Values[0] != 6 || !math.IsNaN(r.Values[1]) || r.Values[2] != 3 {
		t.Error(r)
	}
}
