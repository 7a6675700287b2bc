package main

import (
	"math"
	"strings"
	"testing"
)

func sample() table {
	return table{
		Section: "fruit",
		Title:   "sizes",
		Notes:   []string{"by eye"},
		Columns: []column{{"cm", 1}, {"/ plum", 2}},
		Rows: []row{
			{Name: "plum", Values: []float64{4, 1}},
			{Name: "melon", Values: []float64{25.04, 6.26}, Target: "<= 7 plum ok"},
			{Name: "void", Values: []float64{math.NaN(), math.Inf(1)}},
		},
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	sample().print(&b)
	want := `
fruit: sizes
  by eye
           cm  / plum
  plum    4.0    1.00
  melon  25.0    6.26  <= 7 plum ok
  void           +Inf
`
	if b.String() != want {
		t.Errorf("printed %s\nwant %s", b.String(), want)
	}
}

func TestRecords(t *testing.T) {
	all := sample().records()
	if len(all) != 3 || all[1].Section != "fruit" || all[1].Table != "sizes" || all[1].Name != "melon" || all[1].Target == "" {
		t.Fatalf("%+v", all)
	}
	if v := all[1].Values; v["cm"] != 25.04 || v["/ plum"] != 6.26 {
		t.Error(v)
	}
	if len(all[2].Values) != 0 {
		t.Errorf("%v cannot be written as JSON", all[2].Values)
	}
}
