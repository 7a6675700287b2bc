// Package dashboard is the pages for operators in a browser: HTML, styles and scripts that are part of the
// program. They contain nothing of the server. Their scripts read and change it through the admin
// API, with the token that the operator enters.
package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var static embed.FS

// policyOfPages is the Content-Security-Policy: nothing from elsewhere, no inline script or style, no form
// that is sent, and no page of another origin around ours. frame-src is for the preview of a waiting
// room's page.
const policyOfPages = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is one of the files, ready to be sent.
type file struct {
	data        []byte
	contentType string
	etag        string
}

// Pages serves the files. It is safe for concurrent use.
type Pages struct{ files map[string]file }

// types are the Content-Types by the ends of file names: those of the system may differ.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// New returns the pages.
func New() (*Pages, error) {
	p := &Pages{files: map[string]file{}}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		at := "/ui/" + strings.TrimPrefix(name, "static/")
		if at == "/ui/index.html" {
			at = "/"
		}
		p.files[at] = file{data, types[path.Ext(name)], `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	return p, err
}

// Has reports whether a path is one of a file.
func (p *Pages) Has(path string) bool { _, ok := p.files[path]; return ok }

// ServeHTTP sends a file.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := p.files[r.URL.Path]
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	h.Set("Content-Security-Policy", policyOfPages)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-cache") // a new version of the program has other files under the same names
	h.Set("ETag", f.etag)
	h.Set("Content-Type", f.contentType)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.data)
	}
}
