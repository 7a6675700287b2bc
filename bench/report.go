package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A savedRun is a JSON file of a run.
type savedRun struct {
	Machine machine      `json:"machine"`
	Tables  []savedTable `json:"tables"`
}

// writeReport writes REPORT.md, and its plots, from the JSON files of several runs: the median of the runs, and
// how far they lie apart.
func writeReport(folder string, files []string) error {
	if len(files) == 0 {
		return errors.New("-report: name the JSON files of one or more runs, as -json writes them")
	}
	var runs []savedRun
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var run savedRun
		if err := json.Unmarshal(text, &run); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if len(run.Tables) == 0 {
			return fmt.Errorf("%s has no tables: write it with -json", file)
		}
		runs = append(runs, run)
	}
	all := merge(runs)
	var text strings.Builder
	text.WriteString("# Measured\n\n")
	text.WriteString("`make report` writes this page. [README.md](README.md) says how each section measures.\n\n")
	writeMachine(&text, runs)
	writeMissed(&text, all)
	for _, t := range all {
		name := "plots/" + strings.ReplaceAll(t.Of, " ", "-") + ".svg"
		drawn := t.Of != ""
		if drawn {
			if err := t.draw(filepath.Join(folder, name)); err != nil {
				return err
			}
		}
		t.write(&text, drawn, name)
	}
	return os.WriteFile(filepath.Join(folder, "REPORT.md"), []byte(text.String()), 0o644)
}

// A mergedTable is a table of several runs. Its values are the medians of the runs.
type mergedTable struct {
	table
	lines  []string    // for each row, what lineOf returns
	apart  int         // the first column in which runs differ
	spread [][]float64 // for each row, of that column: the least and the largest of the runs
	missed []int       // for each row, in how many runs it missed its target
	runs   []int       // for each row, in how many runs it is
}

// merge puts the tables of several runs together, in the order of the first run that has each.
func merge(runs []savedRun) (all []*mergedTable) {
	type figures map[string][][]float64 // by row, and then by column, the values of the runs
	found := map[string]figures{}
	for _, run := range runs {
		for _, saved := range run.Tables {
			t := saved.table()
			key := t.Section + "\x00" + t.Title
			if found[key] == nil {
				found[key] = figures{}
				all = append(all, &mergedTable{table: table{Section: t.Section, Title: t.Title, Notes: t.Notes, Columns: t.Columns, Of: t.Of, Unit: t.Unit}})
			}
			m := all[slices.IndexFunc(all, func(m *mergedTable) bool { return m.Section == t.Section && m.Title == t.Title })]
			for i, r := range t.Rows {
				id := lineOf(t.Rows[:i], r.Name)
				at := slices.Index(m.lines, id)
				if at < 0 {
					at = len(m.Rows)
					m.Rows, m.lines = append(m.Rows, row{Name: r.Name}), append(m.lines, id)
					m.missed, m.runs, m.spread = append(m.missed, 0), append(m.runs, 0), append(m.spread, nil)
				}
				if m.runs[at]++; r.Missed {
					m.missed[at]++
				}
				m.Rows[at].Target = r.Target
				columns := found[key][id]
				for i, v := range r.Values {
					if i == len(columns) {
						columns = append(columns, nil)
					}
					if !math.IsNaN(v) {
						columns[i] = append(columns[i], v)
					}
				}
				found[key][id] = columns
			}
		}
	}
	for _, m := range all {
		m.apart = differs(m.Columns, found[m.Section+"\x00"+m.Title])
		for i := range m.Rows {
			columns := found[m.Section+"\x00"+m.Title][m.lines[i]]
			m.Rows[i].Values = each(columns, median)
			if m.apart < len(columns) && len(columns[m.apart]) > 0 {
				m.spread[i] = []float64{slices.Min(columns[m.apart]), slices.Max(columns[m.apart])}
			}
			m.Rows[i].Missed = 2*m.missed[i] >= m.runs[i] && m.missed[i] > 0
		}
	}
	return all
}

// differs returns the first column that has different values in different runs; 0 if none has.
func differs(columns []column, rows map[string][][]float64) int {
	for c := range columns {
		for _, values := range rows {
			if c < len(values) && len(values[c]) > 1 && slices.Min(values[c]) != slices.Max(values[c]) {
				return c
			}
		}
	}
	return 0
}

// lineOf returns what identifies a row of a table in all runs: its name, and how many rows before it have that too.
func lineOf(before []row, name string) string {
	n := 0
	for _, r := range before {
		if r.Name == name {
			n++
		}
	}
	return fmt.Sprintf("%s\x00%d", name, n)
}

// targetOf is a target without the result of one run.
func targetOf(r row) string {
	return strings.NewReplacer(" MISSED", "", " ok", "").Replace(r.Target)
}

func writeMachine(text *strings.Builder, runs []savedRun) {
	m := runs[0].Machine
	var loads []string
	for _, run := range runs {
		first, _, _ := strings.Cut(run.Machine.Load, " ")
		loads = append(loads, first)
	}
	fmt.Fprintf(text, "- Machine: %s, %d CPUs, %s, %s\n", m.CPU, m.CPUs, m.OS, m.Go)
	fmt.Fprintf(text, "- %d runs, each of %d rounds; load in the minute before each: %s\n", len(runs), m.Rounds, strings.Join(loads, ", "))
	text.WriteString("- Cells: medians of the runs. The last but one column says how far they lie apart in the column that it names.\n")
	fmt.Fprintf(text, "- Peers: %s\n\n", strings.Join(m.Peers, ", "))
}

// writeMissed lists the targets that were missed, first of all.
func writeMissed(text *strings.Builder, all []*mergedTable) {
	n, of := 0, 0
	var rows strings.Builder
	for _, t := range all {
		for i, r := range t.Rows {
			if r.Target == "" {
				continue
			}
			if of++; r.Missed {
				n++
				fmt.Fprintf(&rows, "| %s: %s | %s | %s | %d of %d |\n", t.Section, cell(t.Title), cell(r.Name), cell(targetOf(r)), t.missed[i], t.runs[i])
			}
		}
	}
	fmt.Fprintf(text, "## Missed targets\n\n%d of %d lines with a target missed it in half of the runs or more.\n\n", n, of)
	if n > 0 {
		fmt.Fprintf(text, "| table | line | targets | missed in |\n|---|---|---|---|\n%s\n", rows.String())
	}
}

// cell is a text in a cell of a Markdown table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// write writes a table. The last but one column says how far the runs lie apart, in the first column of numbers.
func (t *mergedTable) write(text *strings.Builder, drawn bool, plot string) {
	fmt.Fprintf(text, "## %s: %s\n\n", t.Section, t.Title)
	for _, note := range t.Notes {
		fmt.Fprintf(text, "- %s\n", note)
	}
	if len(t.Notes) > 0 {
		text.WriteString("\n")
	}
	if drawn {
		fmt.Fprintf(text, "![%s by the number of %s](%s)\n\n", t.Title, t.Of, plot)
	}
	fmt.Fprintf(text, "| %s |", t.Of)
	for _, c := range t.Columns {
		fmt.Fprintf(text, " %s |", cell(c.Name))
	}
	fmt.Fprintf(text, " runs: %s | targets |\n|---|%s---|---|\n", cell(t.Columns[t.apart].Name), strings.Repeat("---:|", len(t.Columns)))
	for i, r := range t.Rows {
		fmt.Fprintf(text, "| %s |", cell(r.Name))
		for j, c := range t.Columns {
			v := ""
			if j < len(r.Values) {
				v = number(r.Values[j], c.Decimals)
			}
			fmt.Fprintf(text, " %s |", v)
		}
		apart := ""
		if s := t.spread[i]; s != nil && t.runs[i] > 1 {
			apart = number(s[0], t.Columns[t.apart].Decimals) + " to " + number(s[1], t.Columns[t.apart].Decimals)
		}
		verdict := cell(targetOf(r))
		switch {
		case r.Target == "":
		case t.missed[i] > 0:
			verdict += fmt.Sprintf(": **missed** in %d of %d", t.missed[i], t.runs[i])
		default:
			verdict += ": ok"
		}
		fmt.Fprintf(text, " %s | %s |\n", apart, verdict)
	}
	text.WriteString("\n")
}
