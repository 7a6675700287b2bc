package listen

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/weirflow/weir/internal/httpsyntax"
)

// isRequest reports whether a request has the one form that the gateway passes on. The rules are
// those of the guard, for HTTP/2 too, where net/http accepts more. It gives the request the target
// and the cookies that are sent on: upstreams get nothing that was not read here.
func isRequest(r *http.Request) bool {
	return isMethod(r.Method) && isHost(r) && isTarget(r) && oneLength(r) && areFields(r) && areTrailers(r)
}

// isMethod reports whether a method is a token without lower-case letters. Many upstreams, such as
// gunicorn, Django and Symfony, take post for POST, which would get past the routes of POST.
func isMethod(s string) bool { return httpsyntax.IsToken(s) && strings.ToUpper(s) == s }

// isHost reports whether a request names one host. Only HTTP/1.0 may name none. In HTTP/2, the field
// Host has to equal :authority if both are there.
func isHost(r *http.Request) bool {
	hosts := r.Header["Host"]
	delete(r.Header, "Host")
	if len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host) {
		return false
	}
	return httpsyntax.IsHost(r.Host) || r.Host == "" && !r.ProtoAtLeast(1, 1)
}

// isTarget reports whether a target can be sent on, and brings it into the form in which it is: a
// path with a query, or *.
func isTarget(r *http.Request) bool {
	if r.Method == http.MethodConnect {
		return true // refused later
	}
	u := r.URL
	if u.Opaque != "" || u.User != nil || !httpsyntax.IsTarget(r.RequestURI) {
		return false
	}
	target := r.RequestURI
	switch {
	case target == "*":
		return r.Method == http.MethodOptions
	case target[0] == '/':
	case r.ProtoMajor == 2:
		return false // :path has no other form
	default: // an absolute URL, whose host the guard has compared with Host
		_, rest, _ := strings.Cut(target, "://")
		target = strings.TrimLeftFunc(rest, func(c rune) bool { return c != '/' && c != '?' })
		if target == "" || target[0] == '?' {
			target = "/" + target
		}
	}
	target = httpsyntax.CanonicalTarget(target)
	if target == r.RequestURI && u.Host == "" {
		return true
	}
	next, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	r.URL, r.RequestURI = next, target
	return true
}

// oneLength reports whether a request of HTTP/2 has at most one Content-Length, which fits its body.
func oneLength(r *http.Request) bool {
	lengths := r.Header["Content-Length"]
	if r.ProtoMajor != 2 || len(lengths) == 0 {
		return true
	}
	return len(lengths) == 1 && (r.ContentLength != 0 || lengths[0] == "0")
}

// areFields reports whether the values of fields of HTTP/2 have no space around them, which readers
// of HTTP/1 would cut off. It joins several Cookie fields to one: some upstreams read only one of
// them, and some join them in another way.
func areFields(r *http.Request) bool {
	if cookies := r.Header["Cookie"]; len(cookies) > 1 {
		r.Header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	if r.ProtoMajor != 2 {
		return true
	}
	for _, values := range r.Header {
		for _, v := range values {
			if v != "" && (isSpace(v[0]) || isSpace(v[len(v)-1])) {
				return false
			}
		}
	}
	return true
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// areTrailers reports whether the announced trailers have names.
func areTrailers(r *http.Request) bool {
	for name := range r.Trailer {
		if !httpsyntax.IsToken(name) {
			return false
		}
	}
	return true
}
