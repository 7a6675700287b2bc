package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/asciijson"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/decisions"
)

// decision is a decision as the stream of /v1/decisions has it.
type decision struct {
	At         string   `json:"at"`
	Decision   string   `json:"decision"`
	Limit      string   `json:"limit,omitempty"`
	Key        []string `json:"key,omitempty"`      // only if the client asks for keys
	KeyHash    string   `json:"key_hash,omitempty"` // otherwise
	Route      string   `json:"route,omitempty"`
	Cost       int64    `json:"cost"`
	Capacity   int64    `json:"capacity"`
	Remaining  int64    `json:"remaining"`
	RetryAfter *int64   `json:"retry_after_ms,omitempty"` // rounded up; without it, no wait helps, or none is needed
	Delay      int64    `json:"delay_ms,omitempty"`
	Source     string   `json:"source,omitempty"` // who decided about a limit in a store
	Shadow     bool     `json:"shadow,omitempty"`
	Banned     bool     `json:"banned,omitempty"`
}

// Times of the stream.
const (
	streamEvery = 100 * time.Millisecond
	streamAlive = 10 * time.Second // without an event, something is sent this often
)

// decisionOf returns an event for a client, with or without its key.
func decisionOf(e *decisions.Event, of *decisions.Observers, keys bool) decision {
	d := decision{
		At: e.At.UTC().Format("2006-01-02T15:04:05.000Z"), Decision: e.Outcome.String(), Limit: e.Limit, Route: e.Match,
		Cost: e.Cost, Capacity: e.Decision.Limit, Remaining: e.Decision.Remaining, Delay: milliseconds(e.Delay), Shadow: e.Shadow, Banned: e.Banned,
	}
	if after := e.Decision.RetryAfter; e.IsRefused() && after != weir.Never {
		ms := milliseconds(after)
		d.RetryAfter = &ms
	}
	if s := e.Decision.Source; s != weir.SourceLocal {
		d.Source = s.String()
	}
	if e.Key == "" {
		return d
	}
	d.KeyHash = of.Hash(e.Limit, e.Key)
	if keys {
		if parts, err := policy.DecodeKey(e.Key); err == nil {
			d.Key = parts
		}
	}
	return d
}

// milliseconds rounds a duration up.
func milliseconds(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// watch streams decisions as they are made, as server-sent events, until the client leaves.
func (p *api) watch(w http.ResponseWriter, r *http.Request) error {
	f, err := p.filterOf(r.URL.Query())
	if err != nil {
		return err
	}
	keys, err := flag(r, "keys")
	if err != nil {
		return err
	}
	of := p.policy.Decisions()
	watcher, err := of.Watch(f)
	if err != nil {
		return &problem{Status: http.StatusServiceUnavailable, Detail: err.Error()}
	}
	defer watcher.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return nil
	}
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	flusher := http.NewResponseController(w)
	var out bytes.Buffer
	out.WriteString(": the decisions of this server, as they are made\n\n")
	for sent := time.Now(); ; {
		if out.Len() > 0 {
			if _, err := w.Write(out.Bytes()); err != nil || flusher.Flush() != nil {
				return nil // the client has left, or reads nothing
			}
			sent = time.Now()
			out.Reset()
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-p.ending:
			return nil
		case now := <-tick.C:
			events, lost := watcher.Next(now)
			for i := range events {
				event(&out, "decision", decisionOf(&events[i], of, keys))
			}
			if lost != (decisions.Lost{}) {
				event(&out, "lost", map[string]uint64{"refused": lost.Refused, "others": lost.Others})
			}
			if out.Len() == 0 && now.Sub(sent) >= streamAlive {
				out.WriteString(":\n\n")
			}
		}
	}
}

// event writes a server-sent event.
func event(out *bytes.Buffer, name string, v any) {
	text, err := asciijson.Marshal(v) // one line
	if err != nil {
		return // not of these types
	}
	fmt.Fprintf(out, "event: %s\ndata: %s\n\n", name, text)
}

// filterOf returns the filter of a request.
func (p *api) filterOf(q url.Values) (f decisions.Filter, err error) {
	wrong := func(format string, args ...any) error {
		return &problem{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...)}
	}
	known := []string{"limit", "decision", "route", "key", "shadow", "per_second", "keys"}
	for name := range q {
		if !slices.Contains(known, name) {
			return f, wrong("there is no parameter %.40q: write %s", name, strings.Join(known, ", "))
		}
	}
	f.Limits, f.Routes = q["limit"], q["route"]
	for _, name := range f.Limits {
		if !p.hasLimit(name) {
			return f, wrong("there is no limit %.80q", name)
		}
	}
	for _, text := range q["decision"] {
		o := decisions.Outcomes(text)
		if o == nil {
			return f, wrong("decision: %.40q is none: write allow, delay or deny", text)
		}
		f.Outcomes = append(f.Outcomes, o...)
	}
	if parts := q["key"]; len(parts) > 0 {
		f.Key = policy.EncodeKey(parts...)
	}
	switch text := q.Get("shadow"); text {
	case "":
	case "no":
		f.Shadows = decisions.WithoutShadows
	case "only":
		f.Shadows = decisions.OnlyShadows
	default:
		return f, wrong("shadow: %.40q: write no, only, or leave it out", text)
	}
	if text := q.Get("per_second"); text != "" {
		if f.PerSecond, err = strconv.Atoi(text); err != nil || f.PerSecond < 1 || f.PerSecond > decisions.MostPerSecond {
			return f, wrong("per_second: %.40q: write a whole number from 1 to %d", text, decisions.MostPerSecond)
		}
	}
	return f, nil
}

// hasLimit reports whether the active policy has a limit of that name, or an adaptive one.
func (p *api) hasLimit(name string) bool {
	e := p.policy.Engine()
	return slices.ContainsFunc(e.Counts(), func(c policy.Count) bool { return c.Limit == name }) ||
		slices.ContainsFunc(e.AdaptiveCounts(), func(c policy.AdaptiveCount) bool { return c.Name == name })
}
