package policy

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// placeholders returns what a redirect may contain for the gateway to replace.
func placeholders() []string { return []string{"{host}", "{path}", "{uri}", "{query}", "{?query}"} }

// Location returns the URL to which a Response redirects a request. A browser would take a path
// that begins with two slashes for another host, so the URL gets one slash.
func (r Response) Location(host, path, query string) string {
	if !strings.Contains(r.Redirect, "{") {
		return r.Redirect
	}
	path = "/" + strings.TrimLeft(path, "/\\")
	asked := ""
	if query != "" {
		asked = "?" + query
	}
	return strings.NewReplacer("{host}", normalHost(host), "{path}", path, "{uri}", path+asked, "{query}", query, "{?query}", asked).Replace(r.Redirect)
}

// UpstreamTarget returns the decoded path of a request to the upstream of a route with an
// UpstreamPath: it replaces the part that Match names.
func (e *Engine) UpstreamTarget(route int, path string) string {
	p := &e.routes[route].pattern
	r := &request{Request: Request{Path: path}}
	return e.policy.Routes[route].UpstreamPath + p.after(r.pathFor(p))
}

// respondSettings checks the responses that a route gives itself, and how it changes requests and
// responses.
func (c *checker) respondSettings(r *Route, p *pattern, parsed bool, at string) {
	for i, address := range r.Address {
		known := names(c.Listen.Gateway, func(l Listener) string { return l.Address })
		if len(known) > 0 && !slices.Contains(known, address) {
			c.wrong(fmt.Sprintf("the gateway does not listen on %q", address), suggest(address, known), "routes", at, "address", fmt.Sprint(i))
		}
	}
	if r.Respond.IsSet() {
		c.respond(r, at)
	}
	for _, h := range r.AddHeaders {
		if !httpsyntax.IsToken(h.Name) || strings.ContainsAny(h.Value, "\r\n\x00") {
			c.wrong(fmt.Sprintf("%q is not a header field with a value", h.Name), "write NAME: VALUE, on one line", "routes", at, "add_headers", h.Name)
		}
	}
	if r.UpstreamPath == "" {
		return
	}
	_, literal := p.literal()
	switch {
	case !strings.HasPrefix(r.UpstreamPath, "/") || strings.ContainsAny(r.UpstreamPath, "?#%\r\n"):
		c.wrong(fmt.Sprintf("%q is not a path", r.UpstreamPath), "write it like /v2/, without escapes or a query", "routes", at, "upstream_path")
	case parsed && !literal:
		c.wrong("upstream_path replaces what match says, and match has a {variable}", "take the variable out of match, or upstream_path", "routes", at, "upstream_path")
	case r.Upstream == "":
		c.wrong("no upstream gets the path", "add upstream, or take upstream_path out", "routes", at, "upstream_path")
	}
}

// respond checks the response of a route.
func (c *checker) respond(r *Route, at string) {
	path := []string{"routes", at, "respond"}
	set := 0
	for _, v := range []string{r.Respond.Body, r.Respond.File, r.Respond.Redirect} {
		if v != "" {
			set++
		}
	}
	if set > 1 {
		c.wrong("body, file and redirect exclude each other", "keep one of them", path...)
	}
	if r.Upstream != "" {
		c.wrong("upstream and respond exclude each other", "keep one of them", path...)
	}
	low, high := 200, 599
	if r.Respond.Redirect != "" {
		low, high = 300, 399
		plain := r.Respond.Redirect
		for _, p := range placeholders() {
			plain = strings.ReplaceAll(plain, p, "x")
		}
		if u, err := url.Parse(plain); err != nil || strings.ContainsAny(plain, "{}\r\n") || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
			c.wrong(fmt.Sprintf("%q is not where a browser can go", r.Respond.Redirect),
				"write a path, or an http or https URL, with "+strings.Join(placeholders(), ", ")+" for parts of the request", append(path, "redirect")...)
		}
	}
	if r.Respond.Status != 0 && (r.Respond.Status < low || r.Respond.Status > high) {
		c.wrong(fmt.Sprintf("%d is not a status to respond with here", r.Respond.Status), fmt.Sprintf("write one within %d and %d", low, high), append(path, "status")...)
	}
}
