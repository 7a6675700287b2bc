package admin

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/room"
)

// roomJSON is a waiting room: its settings, and its visitors as the metrics have them.
type roomJSON struct {
	Name     string            `json:"name"`
	Admit    string            `json:"admit"`
	Most     int64             `json:"inside_most,omitempty"` // 0 is no bound
	Store    string            `json:"store,omitempty"`
	Opens    string            `json:"opens,omitempty"`
	Before   bool              `json:"before,omitempty"` // it has not opened yet
	Pause    bool              `json:"pause,omitempty"`
	Drain    bool              `json:"drain,omitempty"`
	Announce string            `json:"announce,omitempty"`
	Waiting  int64             `json:"waiting"`
	Inside   int64             `json:"inside"`
	Visitors map[string]uint64 `json:"visitors"` // by outcome, at this gateway
	Failures uint64            `json:"store_failures"`
}

// rooms lists the waiting rooms. What happens in them is what the metrics of the gateway say, which no client is in.
func (p *api) rooms(w http.ResponseWriter, _ *http.Request) error {
	families, err := p.registry.Gather()
	if err != nil {
		return err
	}
	all := []roomJSON{}
	for _, def := range p.policy.Engine().Policy().Rooms {
		r := roomJSON{Name: def.Name, Admit: def.Admit.String(), Most: def.Inside, Store: def.Store, Pause: def.Pause, Drain: def.Drain, Announce: def.Announce, Visitors: map[string]uint64{}}
		if !def.Opens.IsZero() {
			r.Opens, r.Before = def.Opens.UTC().Format(time.RFC3339), time.Now().Before(def.Opens)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["room"] != def.Name {
					continue
				}
				switch f.GetName() {
				case "weir_room_waiting":
					r.Waiting = int64(m.GetGauge().GetValue())
				case "weir_room_inside":
					r.Inside = int64(m.GetGauge().GetValue())
				case "weir_room_visitors_total":
					r.Visitors[labels["outcome"]] = uint64(m.GetCounter().GetValue())
				case "weir_room_store_failures_total":
					r.Failures = uint64(m.GetCounter().GetValue())
				}
			}
		}
		all = append(all, r)
	}
	answer(w, http.StatusOK, "application/json", map[string]any{"rooms": all})
	return nil
}

// previews are pages of waiting rooms that were asked for with the token. A frame cannot send it, so each has an address that
// nobody can guess, for a minute.
type previews struct {
	mu  sync.Mutex
	all []preview // the oldest first; at most mostPreviews
}

type preview struct {
	path, csp string
	body      []byte
	made      time.Time
}

const (
	mostPreviews  = 16
	previewKept   = time.Minute
	previewPrefix = "/ui/preview/"
)

func (p *previews) add(body []byte, csp string) (path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := preview{previewPrefix + rand.Text(), csp, body, time.Now()}
	if p.all = append(p.all, one); len(p.all) > mostPreviews {
		p.all = slices.Delete(p.all, 0, 1)
	}
	return one.path
}

// of returns the page at a path; nil if there is none any more.
func (p *previews) of(path string) *preview {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.all {
		if p.all[i].path == path && time.Since(p.all[i].made) < previewKept {
			return &p.all[i]
		}
	}
	return nil
}

// serve sends a page that can do nothing: it has no script, and is in a sandbox.
func (p *preview) serve(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.csp+"; sandbox")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write(p.body) // the client has gone
}

// previewRoom makes a preview of the page of a waiting room.
func (p *api) previewRoom(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Room     string `json:"room"`
		State    string `json:"state"`
		Language string `json:"language"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	if in.State == "" {
		in.State = "waiting"
	}
	states := []string{"waiting", "before", "kept"}
	if !slices.Contains(states, in.State) {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: fmt.Sprintf("there is no state %q of a page: write %s", cut(in.State), strings.Join(states, ", "))}
	}
	file := p.policy.File()
	i := slices.IndexFunc(file.Policy.Rooms, func(d policy.WaitingRoom) bool { return d.Name == in.Room })
	if i < 0 {
		return &problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no waiting room %q", cut(in.Room))}
	}
	def := file.Policy.Rooms[i]
	body, csp, err := room.Preview(def, file.Bodies[def.Page], in.State, in.Language)
	if err != nil {
		return &problem{Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	}
	answer(w, http.StatusOK, "application/json", map[string]string{"path": p.previews.add(body, csp)})
	return nil
}
