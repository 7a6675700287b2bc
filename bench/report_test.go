package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: a report of two runs has the machine, the missed targets first, each table with the medians, and a
// plot of each sweep.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const of = `{"machine":{"go":"go1","cpu":"a|b","cpus":2,"load":"LOAD 0 0","rounds":3},"tables":[
		{"section":"take","title":"alone","notes":["a note"],"columns":[{"name":"ns/op","decimals":1},{"name":"/ floor","decimals":2}],"rows":[
			{"name":"weir","values":[NS,1.5],"target":"<= 1.2 floor VERDICT, <= 0 allocs ok","missed":MISSED},{"name":"floor","values":[10,null]},{"name":"floor","values":[7,null]}]},
		{"section":"scaling","title":"keys","of":"keys","unit":"ns/op","columns":[{"name":"weir","decimals":1}],"rows":[{"name":"1000","values":[5]},{"name":"10000","values":[8]}]}]}`
	a := write("a.json", strings.NewReplacer("LOAD", "0.1", "NS", "20", "VERDICT", "MISSED", "MISSED", "true").Replace(of))
	b := write("b.json", strings.NewReplacer("LOAD", "0.2", "NS", "30", "VERDICT", "ok", "MISSED", "false").Replace(of))
	var errs bytes.Buffer
	if err := run([]string{"-report", dir, a, b}, io.Discard, &errs); err != nil {
		t.Fatal(err, errs.String())
	}
	text, err := os.ReadFile(filepath.Join(dir, "REPORT.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"load in the minute before each: 0.1, 0.2",
		"1 of 1 lines with a target missed it",
		"| take: alone | weir | <= 1.2 floor, <= 0 allocs | 1 of 2 |",
		"| weir | 25.0 | 1.50 | 20.0 to 30.0 | <= 1.2 floor, <= 0 allocs: **missed** in 1 of 2 |",
		"| floor | 10.0 |  | 10.0 to 10.0 |  |",
		"| floor | 7.0 |  | 7.0 to 7.0 |  |",
		"![keys by the number of keys](plots/keys.svg)",
		"| 10000 | 8.0 |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	if picture, err := os.ReadFile(filepath.Join(dir, "plots", "keys.svg")); err != nil || !bytes.Contains(picture, []byte("<svg")) {
		t.Errorf("%v, or no plot", err)
	}
	for _, bad := range [][]string{{"-report", dir}, {"-report", dir, write("c.json", "{}")}, {"-report", dir, write("d.json", "x")}, {"-report", dir, dir + "/none"}} {
		if err := run(bad, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// TestSavedTables: a table is read from JSON as it was written, with its empty cells.
func TestSavedTables(t *testing.T) {
	s := newSweep("keys", "keys", "ns/op", 1)
	s.add(1, []string{"a"}, []float64{1})
	s.add(10, []string{"b", "a"}, []float64{2, 3})
	got := s.saved().table()
	var before, after bytes.Buffer
	s.print(&before)
	got.print(&after)
	if before.String() != after.String() || got.Of != "keys" || got.Unit != "ns/op" || !strings.Contains(before.String(), "10  3.0  2.0") {
		t.Errorf("%s\n%s", before.String(), after.String())
	}
}
