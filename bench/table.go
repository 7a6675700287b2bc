package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A table is the result of a section.
type table struct {
	Section string
	Title   string
	Notes   []string // how it was measured, if that needs an explanation
	Columns []column
	Rows    []row

	// of a table that is drawn: what the number is that each row is named by, and the unit of its values
	Of, Unit string
}

// A column has a name, and the decimals of its numbers.
type column struct {
	Name     string `json:"name"`
	Decimals int    `json:"decimals"`
}

// A row is one line of numbers, one for each column; NaN leaves the cell empty.
type row struct {
	Name   string
	Values []float64
	Target string // the target and whether it was reached; may be empty
	Missed bool
}

// print writes the table as text: names to the left, numbers to the right.
func (t table) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s: %s\n", t.Section, t.Title)
	for _, note := range t.Notes {
		fmt.Fprintf(w, "  %s\n", note)
	}
	lines := [][]string{{""}}
	for _, c := range t.Columns {
		lines[0] = append(lines[0], c.Name)
	}
	for _, r := range t.Rows {
		line := []string{r.Name}
		for i, c := range t.Columns {
			line = append(line, number(r.Values[i], c.Decimals))
		}
		lines = append(lines, line)
	}
	widths := make([]int, len(t.Columns)+1)
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, line := range lines {
		var b strings.Builder
		fmt.Fprintf(&b, "  %-*s", widths[0], line[0])
		for j, cell := range line[1:] {
			fmt.Fprintf(&b, "  %*s", widths[j+1], cell)
		}
		if i > 0 && t.Rows[i-1].Target != "" {
			b.WriteString("  " + t.Rows[i-1].Target)
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// number returns a value as it is printed.
func number(v float64, decimals int) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// A record is one row as it is written to the JSON file.
type record struct {
	Section string             `json:"section"`
	Table   string             `json:"table"`
	Name    string             `json:"name"`
	Values  map[string]float64 `json:"values"`
	Target  string             `json:"target,omitempty"`
	Missed  bool               `json:"missed,omitempty"`
}

// records returns the rows, with the values by the names of their columns.
func (t table) records() (all []record) {
	for _, r := range t.Rows {
		byName := map[string]float64{}
		for i, c := range t.Columns {
			if v := r.Values[i]; !math.IsNaN(v) && !math.IsInf(v, 0) { // JSON has neither
				byName[c.Name] = v
			}
		}
		all = append(all, record{t.Section, t.Title, r.Name, byName, r.Target, r.Missed})
	}
	return all
}

// atMost returns the text of a target, and whether a figure missed it by being larger.
func atMost(found, target float64, what string) (text string, missed bool) {
	word := "MISSED" // also for NaN
	if found <= target {
		word = "ok"
	}
	return fmt.Sprintf("<= %s %s %s", strconv.FormatFloat(target, 'f', -1, 64), what, word), word != "ok"
}

// atLeast returns the text of a target, and whether a figure missed it by being smaller.
func atLeast(found, target float64, what string) (text string, missed bool) {
	word := "MISSED" // also for NaN
	if found >= target {
		word = "ok"
	}
	return fmt.Sprintf(">= %s %s %s", strconv.FormatFloat(target, 'f', -1, 64), what, word), word != "ok"
}

// A savedTable is a table as it is written to the JSON file; a cell without a value is null.
type savedTable struct {
	Section string     `json:"section"`
	Title   string     `json:"title"`
	Notes   []string   `json:"notes,omitempty"`
	Of      string     `json:"of,omitempty"`
	Unit    string     `json:"unit,omitempty"`
	Columns []column   `json:"columns"`
	Rows    []savedRow `json:"rows"`
}

type savedRow struct {
	Name   string     `json:"name"`
	Values []*float64 `json:"values"`
	Target string     `json:"target,omitempty"`
	Missed bool       `json:"missed,omitempty"`
}

func (t table) saved() savedTable {
	s := savedTable{t.Section, t.Title, t.Notes, t.Of, t.Unit, t.Columns, nil}
	for _, r := range t.Rows {
		cells := make([]*float64, len(r.Values))
		for i, v := range r.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) { // JSON has neither
				cells[i] = &v
			}
		}
		s.Rows = append(s.Rows, savedRow{r.Name, cells, r.Target, r.Missed})
	}
	return s
}

func (s savedTable) table() table {
	t := table{s.Section, s.Title, s.Notes, s.Columns, nil, s.Of, s.Unit}
	for _, r := range s.Rows {
		figures := make([]float64, len(r.Values))
		for i, v := range r.Values {
			if figures[i] = math.NaN(); v != nil {
				figures[i] = *v
			}
		}
		t.Rows = append(t.Rows, row{r.Name, figures, r.Target, r.Missed})
	}
	return t
}
