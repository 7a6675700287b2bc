package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/weirflow/weir/internal/asciijson"
	"github.com/weirflow/weir/internal/duration"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
)

// problem is an answer of RFC 9457 that something is wrong.
type problem struct {
	Title    string        `json:"title"`
	Status   int           `json:"status"`
	Detail   string        `json:"detail"`
	File     string        `json:"file,omitempty"`     // the policy file, if it was read
	Problems []fileProblem `json:"problems,omitempty"` // of a policy
}

// fileProblem is one thing that is wrong with a policy, or is probably not meant.
type fileProblem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
	Warning bool   `json:"warning,omitempty"`
}

func (p *problem) Error() string { return p.Detail }

// plan is a Plan as the API tells it.
type plan struct {
	Applied  bool          `json:"applied"`
	Saved    bool          `json:"saved"`
	ETag     string        `json:"etag"` // of the policy in force
	Changes  []change      `json:"changes"`
	Warnings []fileProblem `json:"warnings,omitempty"`
}

type change struct {
	What   string  `json:"what"`
	Name   string  `json:"name"`
	How    string  `json:"how"`
	Fields []field `json:"fields,omitempty"`
	Counts string  `json:"counts,omitempty"`
	Why    string  `json:"why,omitempty"`
	Text   string  `json:"text"`
}

type field struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// override is a ban or a grant.
type override struct {
	Limit string            `json:"limit"`
	Key   []string          `json:"key,omitempty"`
	Kind  string            `json:"kind,omitempty"` // ban or grant
	Set   map[string]string `json:"set,omitempty"`
	For   string            `json:"for,omitempty"`
	Until string            `json:"until,omitempty"`
}

func planOf(p active.Plan) plan {
	out := plan{Changes: []change{}, Warnings: problemsOf(p.Warnings)}
	for _, c := range p.Changes {
		shown := change{What: c.What, Name: c.Name, How: c.How, Counts: c.Counts, Why: c.Why, Text: c.String()}
		for _, f := range c.Fields {
			shown.Fields = append(shown.Fields, field(f))
		}
		out.Changes = append(out.Changes, shown)
	}
	return out
}

func problemsOf(all []policyfile.Problem) (out []fileProblem) {
	for _, p := range all {
		out = append(out, fileProblem{p.Line, p.Col, p.Message, p.Fix, p.Warning})
	}
	return out
}

func overrideOf(ex policy.Override, now time.Time) override {
	out := override{Limit: ex.Limit, Key: ex.Key, Kind: "grant", Set: ex.Set, For: duration.Format(ex.For.Round(time.Second)), Until: now.Add(ex.For).UTC().Format(time.RFC3339)}
	if ex.Ban {
		out.Kind = "ban"
	}
	return out
}

// problemOf is the answer to an error.
func problemOf(err error) *problem {
	var p *problem
	var invalid *policyfile.InvalidError
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &invalid):
		return &problem{Status: http.StatusUnprocessableEntity, Detail: "the policy is invalid: the running policy stays active", Problems: problemsOf(invalid.Problems)}
	case errors.As(err, &large):
		return &problem{Status: http.StatusRequestEntityTooLarge, Detail: "the body is too large"}
	case errors.Is(err, active.ErrConflict), errors.Is(err, policy.ErrTooMany):
		return &problem{Status: http.StatusConflict, Detail: plain(err, active.ErrConflict)}
	}
	return &problem{Status: http.StatusUnprocessableEntity, Detail: plain(err, nil)}
}

// plain is an error without what is only for errors.Is.
func plain(err, marker error) string {
	text := strings.TrimPrefix(err.Error(), "weir: ")
	if marker != nil {
		text = strings.TrimPrefix(text, marker.Error()+": ")
	}
	return text
}

// write answers with a problem.
func (p *problem) write(w http.ResponseWriter) {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	answer(w, p.Status, "application/problem+json", p)
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, status int, contentType string, v any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v)                             // all values here can be encoded
	_, _ = w.Write(asciijson.Escape(b.Bytes())) // the client has gone
}
