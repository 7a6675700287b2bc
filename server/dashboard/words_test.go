package dashboard

import (
	"regexp"
	"strings"
	"testing"
)

// TestEveryTextIsTranslated: each text of the pages is in the book of each language, with the same places
// for values, and no book has a text that no page uses.
func TestEveryTextIsTranslated(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	call := regexp.MustCompile(`\bt\('((?:[^'\\]|\\.)*)'`)
	for at, f := range p.files {
		if strings.HasSuffix(at, ".js") && !strings.Contains(at, "/words-") {
			for _, m := range call.FindAllStringSubmatch(string(f.data), -1) {
				used[m[1]] = true
			}
		}
	}
	if len(used) < 50 {
		t.Fatalf("only %d texts were found", len(used))
	}
	entry := regexp.MustCompile(`(?m)^  '((?:[^'\\]|\\.)*)': '((?:[^'\\]|\\.)*)',?$`)
	place := regexp.MustCompile(`\{\d\}`)
	for _, language := range []string{"de", "es", "fr"} {
		book := map[string]string{}
		for _, m := range entry.FindAllStringSubmatch(string(p.files["/ui/words-"+language+".js"].data), -1) {
			book[m[1]] = m[2]
		}
		for text := range used {
			if book[text] == "" {
				t.Errorf("%s: no translation of %q", language, text)
			} else if a, b := len(place.FindAllString(text, -1)), len(place.FindAllString(book[text], -1)); a != b {
				t.Errorf("%s: %q has %d places for values, and its translation %d", language, text, a, b)
			}
		}
		for text := range book {
			if !used[text] {
				t.Errorf("%s: nothing uses %q", language, text)
			}
		}
	}
}
