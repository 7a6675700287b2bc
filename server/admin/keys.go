package admin

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/decisions"
)

// topKey is one of the heaviest or most refused keys of a limit.
type topKey struct {
	Key   []string `json:"key,omitempty"` // only if identities were asked for, and of texts alone: JSON has no other bytes
	Shown string   `json:"shown"`         // masked, unless identities were asked for
	Count uint64   `json:"count"`         // at most
	Error uint64   `json:"error"`         // and at least this much less
	Long  bool     `json:"long,omitempty"`
}

// topOf is the keys of one limit.
type topOf struct {
	Limit    string   `json:"limit"`
	Counts   bool     `json:"counts"` // whether the limit counts its keys
	Heaviest []topKey `json:"heaviest"`
	Refused  []topKey `json:"refused"`
}

const (
	defaultTop = 20
	mostTop    = 100
)

// keys lists the heaviest and the most refused keys of a limit, or of all. Who they are is masked unless
// identities=1.
func (p *api) keys(w http.ResponseWriter, r *http.Request) error {
	open, err := flag(r, "identities")
	if err != nil {
		return err
	}
	n := defaultTop
	if text := r.URL.Query().Get("n"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > mostTop {
			return &problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf("n is a number of keys from 1 to %d", mostTop)}
		}
	}
	engine, wanted, all := p.policy.Engine(), r.URL.Query().Get("limit"), []topOf{}
	for _, l := range engine.Policy().Limits {
		if wanted != "" && l.Name != wanted {
			continue
		}
		heaviest, refused, ok := engine.Top(l.Name, n)
		all = append(all, topOf{l.Name, ok, p.shownKeys(heaviest, open), p.shownKeys(refused, open)})
	}
	if wanted != "" && len(all) == 0 {
		return &problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no limit %q", cut(wanted))}
	}
	answer(w, http.StatusOK, "application/json", map[string]any{"limits": all, "identities": open})
	return nil
}

func (p *api) shownKeys(all []policy.TopKey, open bool) []topKey {
	out := []topKey{}
	for _, k := range all {
		one := topKey{Count: k.Count, Error: k.Error}
		switch {
		case k.Key == nil:
			one.Long, one.Shown = true, "(a key that is too long: it is kept as a hash)"
		case open && slices.ContainsFunc(k.Key, func(part string) bool { return !utf8.ValidString(part) }):
			one.Shown = strings.Trim(strconv.QuoteToASCII(strings.Join(k.Key, ", ")), `"`)
		case open:
			one.Key, one.Shown = k.Key, strings.Join(k.Key, ", ")
		default:
			one.Shown = p.masked(k.Key)
		}
		out = append(out, one)
	}
	return out
}

// masked is a key that cannot be recognised, but told apart from others of this list: the beginning of
// each part, and four digits of a hash with a key of this process.
func (p *api) masked(key []string) string {
	parts := make([]string, len(key))
	m := hmac.New(sha256.New, p.tags.key[:])
	for i, part := range key {
		parts[i] = maskedPart(part)
		fmt.Fprintf(m, "%d:%s", len(part), part)
	}
	return strings.Join(parts, ", ") + " #" + hex.EncodeToString(m.Sum(nil)[:2])
}

// maskedPart keeps the first half of an IPv4 address, the first 32 bits of an IPv6 prefix, and of other texts
// two characters at most.
func maskedPart(part string) string {
	address, _, _ := strings.Cut(part, "/")
	if a, err := netip.ParseAddr(address); err == nil {
		if a = a.Unmap(); a.Is4() {
			b := a.As4()
			return fmt.Sprintf("%d.%d.*.*", b[0], b[1])
		}
		b := a.As16()
		return fmt.Sprintf("%x:%x:*", uint(b[0])<<8|uint(b[1]), uint(b[2])<<8|uint(b[3]))
	}
	keep, end := min(2, utf8.RuneCountInString(part)/4), 0
	for range keep {
		_, size := utf8.DecodeRuneInString(part[end:])
		end += size
	}
	return part[:end] + "***"
}

// explained is why a limit decides about a key as it does. Its fields are those of /v1/explain of
// listen.http.
type explained struct {
	Limit     string            `json:"limit"`
	Key       []string          `json:"key"`
	Plan      string            `json:"plan,omitempty"`
	Algorithm string            `json:"algorithm"`
	Fields    map[string]string `json:"parameters"`
	By        string            `json:"decided_by"`
	Until     string            `json:"override_ends,omitempty"`
	Store     string            `json:"store,omitempty"`
	Shadow    bool              `json:"shadow,omitempty"`
	Allowed   bool              `json:"allowed"`
	Capacity  int64             `json:"capacity"`
	Remaining int64             `json:"remaining"`
	ClearsAt  string            `json:"clears_at,omitempty"`
	Retry     int64             `json:"retry_after_ms,omitempty"` // -1 if no wait helps
	Reset     int64             `json:"reset_after_ms"`
	Window    int64             `json:"window_ms"`
	Exempt    bool              `json:"exempt,omitempty"`
	Source    string            `json:"source"`
	Problem   string            `json:"store_problem,omitempty"`
	Waits     int64             `json:"waits_ms,omitempty"` // how long a request would wait in the limit's queue
	Math      string            `json:"arithmetic,omitempty"`
	Text      string            `json:"text"`

	Refusals []decisions.Refusal `json:"refusals"` // the latest
}

// explain says why a key is admitted or refused now, and when that clears. It charges nothing.
func (p *api) explain(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	x, err := p.policy.Engine().Explain(r.Context(), policy.Ask{Limit: q.Get("limit"), Key: q["key"], Plan: q.Get("plan"), OwnCost: true})
	if err != nil {
		return askError(err)
	}
	a, now := x.Answer.Each[0], time.Now()
	d := a.Decision
	out := explained{
		Limit: a.Limit, Key: a.Key, Plan: a.Plan, Algorithm: weir.Algorithm(x.Rule), Fields: x.Fields, By: x.By, Store: x.Store, Shadow: a.Shadow,
		Allowed: d.Allowed, Capacity: d.Limit, Remaining: d.Remaining, Reset: milliseconds(d.ResetAfter), Source: d.Source.String(), Text: x.String(),
		Window: milliseconds(a.Window), Exempt: a.Exempt, Waits: milliseconds(x.Waits), Math: x.Arithmetic(), Refusals: p.policy.Decisions().Refusals(a.Limit, policy.EncodeKey(a.Key...)),
	}
	if out.Key == nil {
		out.Key = []string{}
	}
	if x.Answer.Err != nil {
		out.Problem = policy.StoreProblem(x.Answer.Err)
	}
	if x.Override > 0 {
		out.Until = now.Add(x.Override).UTC().Format(time.RFC3339)
	}
	switch {
	case d.Allowed:
	case d.RetryAfter == weir.Never:
		out.Retry = -1
	default:
		out.Retry = milliseconds(d.RetryAfter)
		out.ClearsAt = now.Add(d.RetryAfter + time.Millisecond - 1).UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
	}
	answer(w, http.StatusOK, "application/json", out)
	return nil
}

// reset makes a key of a limit start over.
func (p *api) reset(w http.ResponseWriter, r *http.Request) error {
	var in override
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.Kind != "" || in.Until != "" || in.For != "" || in.Set != nil {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: "a reset has a limit and a key only: take out kind, until, for and set"}
	}
	err := p.policy.Engine().Reset(r.Context(), policy.Ask{Limit: in.Limit, Key: in.Key})
	p.changed("reset", fmt.Sprintf("a key of the limit %q reset", cut(in.Limit)), withoutKey(err))
	if err != nil {
		return askError(err)
	}
	answer(w, http.StatusOK, "application/json", map[string]any{"reset": true})
	return nil
}

// withoutKey is an error for the log, which must hold no key.
func withoutKey(err error) error {
	if err == nil {
		return nil
	}
	return errors.New("refused")
}

// askError is the answer to an error about a limit and a key that were named.
func askError(err error) error {
	if ask := new(policy.AskError); errors.As(err, &ask) {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: cut(ask.Problem + ": " + ask.Fix)}
	}
	if errors.Is(err, weir.ErrCharge) {
		return &problem{Status: http.StatusConflict, Detail: policy.Undecidable}
	}
	return &problem{Status: http.StatusServiceUnavailable, Detail: "the store did not respond: " + errorText(err)}
}

// cut is a text that a caller has sent, for an answer.
func cut(text string) string {
	if len(text) > longError {
		return strings.ToValidUTF8(text[:longError], "") + "..."
	}
	return text
}
