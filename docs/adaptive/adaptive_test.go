package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirflow/weir/adaptive"
	"github.com/weirflow/weir/internal/raced"
)

// TestPageIsUpToDate: docs/adaptive.md has the table that the simulation prints, and the pictures
// are those that it draws.
func TestPageIsUpToDate(t *testing.T) {
	raced.Skip(t)
	dir := t.TempDir()
	var b bytes.Buffer
	if err := write(&b, dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../adaptive.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), b.String()) {
		t.Errorf("the page has not this table:\n%s", b.String())
	}
	files, err := filepath.Glob("*.svg")
	if err != nil || len(files) != len(scenarios()) {
		t.Errorf("%v, %v", files, err)
	}
	for _, file := range files {
		got, err := os.ReadFile(file)
		want, err2 := os.ReadFile(filepath.Join(dir, file))
		if err != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the simulation draws: go run ./docs/adaptive (%v, %v)", file, err, err2)
		}
		if !strings.Contains(string(page), "](adaptive/"+file+")") {
			t.Errorf("the page does not show %s", file)
		}
		for d := xml.NewDecoder(bytes.NewReader(want)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
}

// TestKnee: in each scenario it serves at least nine tenths of what is possible, and the slowest
// hundredth takes at most twice as long as without load.
func TestKnee(t *testing.T) {
	raced.Skip(t)
	for _, s := range scenarios() {
		bins, err := s.behind(adaptive.Knee{})
		if err != nil {
			t.Fatal(err)
		}
		r := run{name: "Knee", limited: true, bins: bins}
		slow := 2 * 500 * ms
		if s.name == "slow upstream" {
			slow *= 3
		}
		if good, p99 := r.served(s); good < 0.9 || p99 > slow {
			t.Error(r.row(s))
		}
	}
}
