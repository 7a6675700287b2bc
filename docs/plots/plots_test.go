package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
)

// TestPlotsAreUpToDate: the pictures are those that the command draws, and there are no others.
func TestPlotsAreUpToDate(t *testing.T) {
	raced.Skip(t)
	for _, p := range pictures() {
		want, err := p.draw()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(p.file)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the limits do now: go run ./docs/plots (%v)", p.file, err)
		}
		for d := xml.NewDecoder(bytes.NewReader(want)); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", p.file, err)
			}
		}
	}
	files, err := filepath.Glob("*.svg")
	if err != nil || len(files) != len(pictures()) {
		t.Errorf("%v, %v", files, err)
	}
}

// TestUtilisation compares the figures in docs/guarantees.md with the rules.
func TestUtilisation(t *testing.T) {
	e, err := newExactly()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("With the exact rule, %.0f %% of the limit is used", 100*utilisation(e, 10*time.Second))
	if !strings.Contains(string(page), text) {
		t.Errorf("the page does not say: %s", text)
	}
	if text = fmt.Sprintf("With the rule for states alone, %.0f %% is used", 100*utilisation(&byState{}, 10*time.Second)); !strings.Contains(string(page), text) {
		t.Errorf("the page does not say: %s", text)
	}
}

// TestWorst compares the last column of the table in docs/algorithms.md with a search: the most
// that the limits admit of random loads with pauses.
func TestWorst(t *testing.T) {
	raced.Skip(t)
	page, err := os.ReadFile("../algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plots() {
		name, _, _ := strings.Cut(p.title, ":")
		_, row, _ := strings.Cut(string(page), "\n| "+name+" | ")
		row, _, _ = strings.Cut(row, "\n")
		if worst := fmt.Sprintf("| %d |", worst(p.limit, 2000)); !strings.HasSuffix(row, worst) {
			t.Errorf("%s: found %s, and the page says %s", name, worst, row)
		}
	}
}

// worst returns the most that was admitted in any window, in a number of tries of 10 s with clock
// steps of 10 ms.
func worst(l weir.Limit, tries int) (most int) {
	const step = 10 * time.Millisecond
	prepared, err := weir.Prepare(l, step)
	if err != nil {
		return -1
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range tries {
		var state []int64
		var went []int64
		asking, left := r.IntN(2) == 0, r.IntN(300)
		for now := range int64(1000) {
			if left == 0 {
				asking, left = !asking, 1+r.IntN([]int{3, 60, 250}[r.IntN(3)])
			}
			left--
			for n := r.IntN(12); asking && n >= 0; n-- {
				var d weir.Decision
				if state, d = prepared.Step(state, now, 1); !d.Allowed {
					break
				}
				went = append(went, now)
			}
		}
		first := 0
		for i := range went {
			for went[i]-went[first] >= int64(window/step) {
				first++
			}
			most = max(most, i-first+1)
		}
	}
	return most
}
