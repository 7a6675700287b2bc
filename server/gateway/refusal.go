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

// refusal is what the refused get, made ready once.
type refusal struct {
	status   int
	content  content
	problems map[string]content // by limit, for clients that accept problem+json; nil where the policy names a body

	stale    time.Duration // how old the last good answer may be that is given first of all; 0 is none
	upstream string        // of that answer
	other    *passage      // another upstream, which is asked then; nil for none
	own      bool          // the policy names no status
	plain    bool          // and no body, file or redirect
}

// content is a body with the header fields that go with it.
type content struct {
	fields []field
	body   []byte
}

// field is a header field, its name in canonical form. Its values are used for one answer after another, and never changed.
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

// newContent readies a body; of a type that is empty, the type is found out.
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

// typeOf finds the type of a body that is written in a policy: JSON, HTML, or plain text.
func typeOf(body []byte) string {
	switch text := strings.TrimSpace(string(body)); {
	case strings.HasPrefix(text, "<"):
		return "text/html; charset=utf-8"
	case (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) && json.Valid(body):
		return "application/json"
	}
	return "text/plain; charset=utf-8"
}

// write answers a request that a limit refused.
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

// acceptsProblem reports whether a client asks for problem+json, or for JSON, by name.
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

// problem is the body for programs: RFC 9457, of the types that the RateLimit draft registers.
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
		return nil // it cannot fail: there are only texts and a number
	}
	return append(body, '\n')
}
