package gateway

import (
	"encoding/json"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/weirflow/weir/policy"
)

// refusal is what the refused get, made ready once.
type refusal struct {
	status      int
	redirect    string
	body        []byte
	contentType string
	own         bool // the policy says nothing of a body: a client that accepts problem+json gets that
}

func newRefusal(r policy.Refused, files map[string][]byte) refusal {
	f := refusal{status: r.StatusCode(), redirect: r.Redirect, contentType: r.Type}
	switch {
	case r.Redirect != "":
	case r.File != "":
		f.body = files[r.File]
		if f.contentType == "" {
			f.contentType = mime.TypeByExtension(path.Ext(r.File))
		}
	case r.Body != "":
		f.body = []byte(r.Body)
	default:
		f.own = true
		f.body = []byte(http.StatusText(f.status) + "\n")
		f.contentType = "text/plain; charset=utf-8"
	}
	if f.contentType == "" {
		f.contentType = typeOf(f.body)
	}
	return f
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
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if f.redirect != "" {
		h.Set("Location", f.redirect)
		w.WriteHeader(f.status)
		return
	}
	body, contentType := f.body, f.contentType
	if f.own && acceptsProblem(r.Header["Accept"]) {
		body, contentType = problem(f.status, limit), "application/problem+json"
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		w.Write(body)
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
