package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks: every relative link of the documents leads to an existing file, and to a heading in
// it.
func TestLinks(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tops, err := filepath.Glob(root + "/*.md")
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, page := range append(append(pages, tops...), root+"/bench/README.md", root+"/examples/flash-sale/README.md", root+"/examples/api-plans/README.md") {
		for _, link := range link.FindAllStringSubmatch(proseOf(t, page), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			links++
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: there is no such file", filepath.Base(page), link[1])
				continue
			}
			if anchor != "" && !anchors(proseOf(t, target))[anchor] {
				t.Errorf("%s links to %s: the page has no such heading", filepath.Base(page), link[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unnamed = regexp.MustCompile("[^a-z0-9 _-]")
)

// proseOf returns a page without its fenced blocks.
func proseOf(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return fence.ReplaceAllString(string(text), "")
}

// anchors returns the anchors that a Markdown renderer gives to the headings of a page.
func anchors(prose string) map[string]bool {
	all := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(prose, -1) {
		all[strings.ReplaceAll(unnamed.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}
