// Package refusal writes the responses to requests that a limit refused: a body, a redirect, or by
// default a text or RFC 9457 problem+json, whichever the client accepts. The gateway, the hooks of
// proxies and the middleware share it.
package refusal

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/weirflow/weir/policy"
)

// A Response is a response that is made once, and written to many refused requests. It is never
// changed by writing it.
type Response struct {
	Status  int
	content content
	problem bool // clients that accept it get problem+json
	// the bodies of the limits that are known in advance
	problems map[string]content
}

// content is a body with its header fields.
type content struct {
	fields []field
	body   []byte
}

// field is a header field, its name in canonical form. Its values are shared by all responses and
// never changed.
type field struct {
	name   string
	values []string
}

func newField(name, value string) field { return field{name, []string{value}} }

// Of returns the response that a policy names. files are the bodies of the files that it may name, and
// limits those that may refuse. A last good response (Stale) and another upstream are the caller's.
func Of(r policy.Refused, limits []string, files map[string][]byte) Response {
	status := r.StatusCode()
	if r.Redirect != "" {
		return Redirect(status, r.Redirect)
	}
	if body, ok := files[r.File]; ok && r.File != "" {
		contentType := r.Type
		if contentType == "" {
			contentType = mime.TypeByExtension(path.Ext(r.File))
		}
		return Body(status, contentType, body)
	}
	if r.Body != "" {
		return Body(status, r.Type, []byte(r.Body))
	}
	return Default(status, limits...)
}

// Redirect returns a redirect to a URL.
func Redirect(status int, location string) Response {
	return Response{Status: status, content: content{fields: []field{newField("Cache-Control", "no-store"), newField("Location", location)}}}
}

// Body returns a response with a body. An empty type is detected.
func Body(status int, contentType string, body []byte) Response {
	return Response{Status: status, content: newContent(contentType, body)}
}

// Default returns a response that says no more than the status, and in problem+json also which
// limit refused. The bodies for the named limits are made in advance.
func Default(status int, limits ...string) Response {
	r := Body(status, "text/plain; charset=utf-8", []byte(http.StatusText(status)+"\n"))
	r.problem, r.problems = true, map[string]content{}
	for _, limit := range limits {
		r.problems[limit] = problem(status, limit)
	}
	return r
}

// newContent compiles a body; an empty type is detected.
func newContent(contentType string, body []byte) content {
	if contentType == "" {
		contentType = TypeOf(body)
	}
	return content{
		fields: []field{
			newField("Cache-Control", "no-store"),
			newField("Content-Type", contentType),
			newField("Content-Length", strconv.Itoa(len(body))),
			newField("X-Content-Type-Options", "nosniff"),
		},
		body: body,
	}
}

// TypeOf detects the type of a body: JSON, HTML or plain text.
func TypeOf(body []byte) string {
	switch text := strings.TrimSpace(string(body)); {
	case strings.HasPrefix(text, "<"):
		return "text/html; charset=utf-8"
	case (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) && json.Valid(body):
		return "application/json"
	}
	return "text/plain; charset=utf-8"
}

// Write responds to a request that the named limit refused; an empty name is no limit.
func (f *Response) Write(w http.ResponseWriter, r *http.Request, limit string) {
	c := &f.content
	if f.problem && limit != "" && acceptsProblem(r.Header["Accept"]) {
		p, ok := f.problems[limit]
		if !ok {
			p = problem(f.Status, limit)
		}
		c = &p
	}
	h := w.Header()
	for _, field := range c.fields {
		h[field.name] = field.values
	}
	w.WriteHeader(f.Status)
	if len(c.body) > 0 && r.Method != http.MethodHead {
		w.Write(c.body)
	}
}

// acceptsProblem reports whether a client accepts problem+json or JSON by name.
func acceptsProblem(accept []string) bool {
	for _, field := range accept {
		for item := range strings.SplitSeq(field, ",") {
			name, parameters, err := mime.ParseMediaType(item)
			if err != nil || name != "application/problem+json" && name != "application/json" {
				continue
			}
			if q, err := strconv.ParseFloat(parameters["q"], 64); err != nil || q > 0 {
				return true
			}
		}
	}
	return false
}

// problem is an RFC 9457 body, with the problem types of the RateLimit draft.
func problem(status int, limit string) content {
	kind := "quota-exceeded"
	if status == http.StatusServiceUnavailable {
		kind = "temporary-reduced-capacity"
	}
	body, err := json.Marshal(struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies"`
	}{"https://iana.org/assignments/http-problem-types#" + kind, http.StatusText(status), status, []string{limit}})
	if err != nil {
		return content{} // texts and a number can always be written
	}
	return newContent("application/problem+json", append(body, '\n'))
}

// Unidentified returns the response to requests without valid credentials. bearer says that a client can
// send some in Authorization: Bearer.
func Unidentified(bearer bool) Response {
	r := Body(http.StatusUnauthorized, "text/plain; charset=utf-8", []byte("this request has no valid API key or token\n"))
	var authenticate []field
	if bearer {
		authenticate = append(authenticate, newField("Www-Authenticate", "Bearer"))
	}
	r.content.fields = append(r.content.fields, authenticate...)
	p := newContent("application/problem+json",
		fmt.Appendf(nil, `{"type":"about:blank","title":%q,"status":401,"detail":"this request has no valid API key or token"}`+"\n",
			http.StatusText(http.StatusUnauthorized)))
	p.fields = append(p.fields, authenticate...)
	r.problem, r.problems = true, map[string]content{unidentified: p}
	return r
}

// unidentified stands for a limit in the response to requests without valid credentials.
const unidentified = "unidentified"

// WriteUnidentified responds to a request without valid credentials.
func (f *Response) WriteUnidentified(w http.ResponseWriter, r *http.Request) {
	f.Write(w, r, unidentified)
}

// unverifiedText is for requests whose API key could not be looked up.
const unverifiedText = "whether the API key of this request is valid could not be found out: try again"

// WriteUnverified responds to a request whose API key may be valid, and could not be looked up: 503, so
// that clients keep their key and try again.
func WriteUnverified(w http.ResponseWriter, r *http.Request) {
	c := newContent("text/plain; charset=utf-8", []byte(unverifiedText+"\n"))
	if acceptsProblem(r.Header["Accept"]) {
		c = newContent("application/problem+json", fmt.Appendf(nil, `{"type":"about:blank","title":%q,"status":503,"detail":%q}`+"\n",
			http.StatusText(http.StatusServiceUnavailable), unverifiedText))
	}
	w.Header().Set("Retry-After", "1")
	response := Response{Status: http.StatusServiceUnavailable, content: c}
	response.Write(w, r, "")
}
