package gateway

import (
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/weirflow/weir/internal/refusal"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// response is what a route answers by itself, made ready once.
type response struct {
	policy.Response
	status int
	kind   string // the Content-Type
	body   []byte
}

func newResponse(r policy.Response, files map[string][]byte) *response {
	c := &response{Response: r, status: r.StatusCode(), kind: r.Type, body: []byte(r.Body)}
	switch {
	case r.File != "":
		c.body = files[r.File]
		if c.kind == "" {
			c.kind = mime.TypeByExtension(path.Ext(r.File))
		}
	case r.Body == "" && r.Redirect == "" && hasBody(c.status):
		c.body = []byte(http.StatusText(c.status) + "\n")
	}
	if c.kind == "" && len(c.body) > 0 {
		c.kind = refusal.TypeOf(c.body)
	}
	return c
}

// hasBody reports whether responses of a status may have a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusResetContent && status != http.StatusNotModified
}

func (c *response) write(w http.ResponseWriter, r *http.Request) {
	if r.Host == "" && strings.Contains(c.Redirect, "{host}") { // HTTP/1.0
		answer(w, http.StatusBadRequest, "this request names no host to be redirected to")
		return
	}
	h := w.Header()
	if c.Redirect != "" {
		h.Set("Location", c.Location(r.Host, r.URL.EscapedPath(), r.URL.RawQuery))
	}
	if c.kind != "" {
		h.Set("Content-Type", c.kind)
	}
	if hasBody(c.status) {
		h.Set("Content-Length", strconv.Itoa(len(c.body)))
	}
	w.WriteHeader(c.status)
	if r.Method != http.MethodHead && hasBody(c.status) {
		w.Write(c.body)
	}
}

// client is the address of the client of a request, and the key that limits have for it.
func (s *state) client(r *http.Request) (client netip.Addr, key string) {
	return weirhttp.ClientKeyFrom(r, s.file.Policy.TrustedProxies, s.fields.clientIn)
}

// onItsWay changes a request, and what its response is written to, as the route says: the path that
// the upstream gets, and header fields that are added.
func (s *state) onItsWay(w http.ResponseWriter, r *http.Request, route int) (http.ResponseWriter, *http.Request) {
	if route < 0 {
		return w, r
	}
	to := &s.routes[route]
	if len(to.fields) > 0 {
		w = &adding{ResponseWriter: w, fields: to.fields}
	}
	if to.target == nil {
		return w, r
	}
	at := &url.URL{Path: to.target(r.URL.EscapedPath()), RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	next := *r
	next.URL, next.RequestURI = at, at.RequestURI()
	return w, &next
}

// adding writes a response with header fields of the route.
type adding struct {
	http.ResponseWriter
	fields []policy.AddHeader
	wrote  bool
}

// WriteHeader adds the fields and writes the header.
func (a *adding) WriteHeader(status int) {
	if !a.wrote && status >= 200 {
		a.wrote = true
		for _, f := range a.fields {
			if f.Always || takesFields(status) {
				a.Header().Add(f.Name, f.Value)
			}
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write writes the body.
func (a *adding) Write(p []byte) (int, error) {
	if !a.wrote {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (a *adding) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// takesFields reports whether a status is one of those that nginx adds header fields to.
func takesFields(status int) bool {
	return slices.Contains([]int{200, 201, 204, 206, 301, 302, 303, 304, 307, 308}, status)
}
