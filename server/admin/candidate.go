package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/guard"
)

// trialCount is how many requests had a pair of outcomes.
type trialCount struct {
	Live      string `json:"live"`
	Candidate string `json:"candidate"`
	Requests  uint64 `json:"requests"`
}

// disagreement is a request about which the candidate decided otherwise.
type disagreement struct {
	At             string   `json:"at"`
	Live           string   `json:"live"`
	Candidate      string   `json:"candidate"`
	LiveLimit      string   `json:"live_limit,omitempty"`
	CandidateLimit string   `json:"candidate_limit,omitempty"`
	LiveRoute      string   `json:"live_route,omitempty"`
	CandidateRoute string   `json:"candidate_route,omitempty"`
	Key            []string `json:"key,omitempty"`   // of the candidate's limit; only if identities were asked for
	Shown          string   `json:"shown,omitempty"` // masked otherwise
}

// candidateJSON is the candidate policy and how it has decided.
type candidateJSON struct {
	File          string         `json:"file"`
	ETag          string         `json:"etag"` // of the file on trial: for If-Match of a promotion
	Since         string         `json:"since"`
	Requests      uint64         `json:"requests"`
	Disagreed     uint64         `json:"disagreed"`
	Counts        []trialCount   `json:"counts"`
	Limits        []limitLive    `json:"limits"`
	Disagreements []disagreement `json:"disagreements"` // the latest first
	Changes       []change       `json:"changes"`       // what promoting it changes
	LeftOut       []string       `json:"left_out"`      // limits that a trial cannot decide
	Skipped       uint64         `json:"skipped"`
}

func trialCounts(all []active.TrialCount) []trialCount {
	out := []trialCount{}
	for _, c := range all {
		out = append(out, trialCount{c.Live.String(), c.Candidate.String(), c.Requests})
	}
	return out
}

// showCandidate tells how the candidate policy has decided beside the active one.
func (p *api) showCandidate(w http.ResponseWriter, r *http.Request) error {
	open, err := flag(r, "identities")
	if err != nil {
		return err
	}
	t := p.policy.Candidate()
	if t == nil {
		return &problem{Status: http.StatusNotFound, Detail: "there is no candidate policy: start weir serve with --candidate FILE"}
	}
	plan, err := p.policy.CandidatePlan()
	if err != nil {
		return err
	}
	out := candidateJSON{
		File: t.File().Path, ETag: p.tags.of(t.File().Data), Since: t.Since().UTC().Format(time.RFC3339), Counts: trialCounts(t.Counts()), Limits: limitsLive(t.Engine()),
		Disagreements: []disagreement{}, Changes: planOf(plan).Changes, LeftOut: t.LeftOut(), Skipped: t.Skipped(),
	}
	if out.LeftOut == nil {
		out.LeftOut = []string{}
	}
	for _, c := range t.Counts() {
		out.Requests += c.Requests
		if c.Live != c.Candidate {
			out.Disagreed += c.Requests
		}
	}
	for _, d := range t.Disagreements() {
		out.Disagreements = append(out.Disagreements, p.disagreementOf(d, open))
	}
	answer(w, http.StatusOK, "application/json", out)
	return nil
}

func (p *api) disagreementOf(d active.Disagreement, open bool) disagreement {
	out := disagreement{
		At: d.At.UTC().Format(time.RFC3339Nano), Live: d.Live.String(), Candidate: d.Candidate.String(),
		LiveLimit: d.LiveBy, CandidateLimit: d.TrialBy, LiveRoute: d.LiveAt, CandidateRoute: d.TrialRoute,
	}
	if d.Key == "" {
		return out
	}
	parts, err := policy.DecodeKey(d.Key)
	switch {
	case err != nil:
	case open:
		out.Key, out.Shown = parts, strings.Join(parts, ", ")
	default:
		out.Shown = p.masked(parts)
	}
	return out
}

// promote makes the candidate the active policy.
func (p *api) promote(w http.ResponseWriter, r *http.Request) error {
	save, err := flag(r, "save")
	if err != nil {
		return err
	}
	if !guard.IsTyped(r, "application/json") {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "send Content-Type: application/json, also without a body"}
	}
	plan, err := p.policy.Promote(r.Context(), save, p.ifMatch(r, "another candidate is on trial than the one in If-Match: look at how it decides first"))
	p.changed("promote", strings.Join(append([]string{"candidate promoted"}, texts(plan)...), "; "), err)
	return p.tell(w, plan, err, true, save)
}

// previewJSON is what a policy would have decided about the latest requests.
type previewJSON struct {
	Requests        int            `json:"requests"`
	From            string         `json:"from,omitempty"`
	To              string         `json:"to,omitempty"`
	Changed         []trialCount   `json:"outcomes"`
	Limits          []previewLimit `json:"limits"`
	NewlyRefused    int            `json:"clients_newly_refused"`
	NoLongerRefused int            `json:"clients_no_longer_refused"`
	Unseen          []string       `json:"unseen_headers"`
	LeftOut         []string       `json:"left_out"`
}

type previewLimit struct {
	Limit string       `json:"limit"`
	Now   previewCount `json:"now"`
	Next  previewCount `json:"next"`
}

type previewCount struct {
	Allowed uint64 `json:"allowed"`
	Delayed uint64 `json:"delayed"`
	Limited uint64 `json:"limited"`
	Shadow  bool   `json:"shadow,omitempty"`
}

// preview has a policy that is sent decide about the latest requests, and changes nothing.
func (p *api) preview(w http.ResponseWriter, r *http.Request) error {
	if !guard.IsTyped(r, "application/yaml", "application/json") {
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "a policy is sent as Content-Type: application/yaml, or application/json"}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPolicy))
	if err != nil {
		return bodyError(err)
	}
	if p.policy.File().Policy.Admin.Recent == 0 {
		return &problem{Status: http.StatusConflict, Detail: fmt.Sprintf("no requests are kept for previews: set admin: { recent: %d } in the policy", 50_000)}
	}
	if !p.previewing.TryLock() { // one at a time: each has memory and time of its own
		return &problem{Status: http.StatusServiceUnavailable, Detail: "another preview is being made: send this one again later"}
	}
	defer p.previewing.Unlock()
	got, err := p.policy.Preview(r.Context(), data, p.hasToken())
	if err != nil {
		return err
	}
	out := previewJSON{
		Requests: got.Requests, Changed: trialCounts(got.Changed), Limits: []previewLimit{}, NewlyRefused: got.NewlyRefused, NoLongerRefused: got.NoLongerRefused,
		Unseen: append([]string{}, got.Unseen...), LeftOut: append([]string{}, got.LeftOut...),
	}
	if got.Requests > 0 {
		out.From, out.To = got.From.UTC().Format(time.RFC3339), got.To.UTC().Format(time.RFC3339)
	}
	for _, l := range got.Limits {
		out.Limits = append(out.Limits, previewLimit{l.Limit, previewCount(l.Now), previewCount(l.Next)})
	}
	answer(w, http.StatusOK, "application/json", out)
	return nil
}

// source answers with the text of the policy file, in which the passwords of stores are hidden. Comments may
// hold anything, so it is for callers with a token alone.
func (p *api) source(w http.ResponseWriter) (bool, error) {
	now := p.policy.Status()
	text, ok := now.File.HiddenText()
	if !ok || !p.hasToken() {
		return false, nil
	}
	h := w.Header()
	h.Set("ETag", p.tags.of(now.File.Data))
	h.Set("Content-Type", "application/yaml; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(text)
	return true, nil
}
