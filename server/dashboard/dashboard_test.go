package dashboard

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestPagesAreWhole: the page names only files that are there, and none from elsewhere; no script makes
// elements of text, and no file has an inline script or style, which the Content-Security-Policy would block.
func TestPagesAreWhole(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?:src|href)="(/[^"]*)"|from '\./([^']*)'`)
	for at, f := range p.files {
		text := string(f.data)
		if f.contentType == "" {
			t.Errorf("%s has no Content-Type", at)
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if to := m[1]; to != "" && !p.Has(to) {
				t.Errorf("%s names %s, which is not there", at, to)
			}
			if m[2] != "" && !p.Has("/ui/"+m[2]) {
				t.Errorf("%s imports %s, which is not there", at, m[2])
			}
		}
		for _, never := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "https://", "<style", " style=", " onclick=\""} {
			if strings.Contains(text, never) {
				t.Errorf("%s has %q", at, never)
			}
		}
		if n := strings.Count(text, "\n"); n > 500 {
			t.Errorf("%s has %d lines", at, n)
		}
	}
}

// TestServesOnlyReading: a file is read, with the header fields that keep other pages away, and comes again
// only if it has changed.
func TestServesOnlyReading(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	get := func(method, path, etag string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, path, nil)
		if etag != "" {
			r.Header.Set("If-None-Match", etag)
		}
		p.ServeHTTP(w, r)
		return w
	}
	w := get("GET", "/", "")
	csp := w.Header().Get("Content-Security-Policy")
	if w.Code != http.StatusOK || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("%d %s", w.Code, csp)
	}
	if again := get("GET", "/", w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
		t.Errorf("again: %d", again.Code)
	}
	for path, want := range map[string]int{"/ui/": 404, "/ui/index.html": 404, "/ui/../dashboard.go": 404, "/static/app.js": 404, "/ui/app.js": 200} {
		if got := get("GET", path, "").Code; got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
	if got := get("POST", "/", "").Code; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got)
	}
}
