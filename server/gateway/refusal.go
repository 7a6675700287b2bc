package gateway

import (
	"encoding/json"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
)

// refusal is the compiled response to refused requests.
type refusal struct {
	status  int
	content content
	// by limit, for clients that accept problem+json; nil where the policy names a body
	problems map[string]content

	stale    time.Duration // send the last good response first, up to this age; 0 is never
	upstream string        // of that response
	other    *forwarder    // then try another upstream; nil for none
	own      bool          // the policy names no status
	plain    bool          // and no body, file or redirect
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

func newRefusal(r policy.Refused, limits []string, files map[string][]byte) refusal {
	f := refusal{status: r.StatusCode()}
	switch {
	case r.Redirect != "":
		f.content = content{fields: []field{newField("Cache-Control", "no-store"), newField("Location", r.Redirect)}}
	case r.File != "":
		contentType := r.Type
		if contentType == "" {
			contentType = mime.TypeByExtension(path.Ext(r.File))
		}
		f.content = newContent(contentType, files[r.File])
	case r.Body != "":
		f.content = newContent(r.Type, []byte(r.Body))
	default:
		f.content = newContent("text/plain; charset=utf-8", []byte(http.StatusText(f.status)+"\n"))
		f.problems = map[string]content{}
		for _, limit := range limits {
			f.problems[limit] = newContent("application/problem+json", problem(f.status, limit))
		}
	}
	return f
}

// newContent compiles a body; an empty type is detected.
func newContent(contentType string, body []byte) content {
	if contentType == "" {
		contentType = typeOf(body)
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

// typeOf detects the type of a body in a policy: JSON, HTML or plain text.
func typeOf(body []byte) string {
	switch text := strings.TrimSpace(string(body)); {
	case strings.HasPrefix(text, "<"):
		return "text/html; charset=utf-8"
	case (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) && json.Valid(body):
		return "application/json"
	}
	return "text/plain; charset=utf-8"
}

// write responds to a request that a limit refused.
func (f *refusal) write(w http.ResponseWriter, r *http.Request, limit string) {
	c := &f.content
	if p, ok := f.problems[limit]; ok && acceptsProblem(r.Header["Accept"]) {
		c = &p
	}
	h := w.Header()
	for _, field := range c.fields {
		h[field.name] = field.values
	}
	w.WriteHeader(f.status)
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
func problem(status int, limit string) []byte {
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
		return nil // texts and a number can always be written
	}
	return append(body, '\n')
}
