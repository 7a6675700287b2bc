package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"
)

// liveCounts is what a server counts: the fields of /v1/live that weir top shows.
type liveCounts struct {
	Now    int64       `json:"now_ms"`
	Since  string      `json:"since"`
	File   string      `json:"file"`
	Limits []liveLimit `json:"limits"`
	Stores []struct {
		Name    string `json:"name"`
		Breaker string `json:"breaker"`
	} `json:"stores"`
	Adaptive []struct {
		Limit   string `json:"limit"`
		Target  string `json:"target"`
		Waiting int    `json:"waiting"`
		OK      uint64 `json:"ok"`
		Dropped uint64 `json:"dropped"`
		Refused uint64 `json:"refused"`
	} `json:"adaptive"`
}

// withAdaptive lists the adaptive limits behind the others. They have no keys, and what they have admitted counts when it
// has ended.
func (l *liveCounts) withAdaptive() {
	for _, a := range l.Adaptive {
		name := a.Limit
		if a.Target != "" {
			name += " " + a.Target
		}
		l.Limits = append(l.Limits, liveLimit{Name: name, Allowed: a.OK + a.Dropped, Limited: a.Refused, Waiting: a.Waiting})
	}
}

// liveLimit is a limit in it.
type liveLimit struct {
	Name      string `json:"name"`
	Shadow    bool   `json:"shadow"`
	Rest      bool   `json:"rest"`
	Allowed   uint64 `json:"allowed"`
	Limited   uint64 `json:"limited"`
	Delayed   uint64 `json:"delayed"`
	Banned    uint64 `json:"banned"`
	Granted   uint64 `json:"granted"`
	Exempt    uint64 `json:"exempt"`
	Errors    uint64 `json:"errors"`
	Waiting   int    `json:"waiting"`
	KeysCount int    `json:"keys"`
}

// admitted is how many requests the limit has let pass at once, as the dashboard counts them: by a grant and exempt
// ones, too.
func (l *liveLimit) admitted() uint64 { return l.Allowed + l.Granted + l.Exempt }

// liveKeys is the keys of limits.
type liveKeys struct {
	Limits []struct {
		Limit   string    `json:"limit"`
		Counts  bool      `json:"counts"`
		Refused []liveKey `json:"refused"`
	} `json:"limits"`
}

// liveKey is a key that was refused.
type liveKey struct {
	Key   []string `json:"key"`
	Shown string   `json:"shown"`
	Count uint64   `json:"count"`
	Error uint64   `json:"error"`
}

// id tells a key apart from others of its list. Texts of clients may be such that two of them are shown alike.
func (k *liveKey) id() string {
	if k.Key == nil {
		return k.Shown
	}
	return "\x00" + strings.Join(k.Key, "\x00")
}

// How often weir top asks the server, and for how many keys.
const (
	topEvery = time.Second
	topKeys  = 100
)

func topCommand() *cobra.Command {
	var s servers
	var identities bool
	var banFor string
	c := &cobra.Command{
		Use:   "top",
		Short: "Show what the limits of a running server do, and the keys to ban, live in the terminal",
		Long: `Top shows, every second, what each limit of a server admits, delays and refuses, and the keys that the chosen limit refuses
most. It needs a terminal.

Keys are masked until i is pressed. Press
  up, down     to choose a limit, or a key
  tab          to go from the limits to the keys, and back
  s            to sort by another column
  /            to type a filter; enter ends it, esc clears it
  i            to show keys, or to mask them again
  b, then y    to ban the chosen key for --ban-for
  l, then y    to lift its ban
  q            to end`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.open(); err != nil {
				return err
			}
			defer s.client.CloseIdleConnections()
			if len(s.addresses) > 1 {
				return &usageError{errors.New("name one server with --admin: each counts by itself")}
			}
			// the first answer before the screen changes: its error is one line
			m := newTop(&topServer{servers: &s, banFor: banFor}, identities)
			first := m.server.load(cmd.Context(), identities)
			if first.err != nil {
				return fmt.Errorf("%s: %w", s.addresses[0], first.err)
			}
			m.add(first)
			_, err := tea.NewProgram(m, tea.WithContext(cmd.Context()), tea.WithAltScreen(), tea.WithInput(cmd.InOrStdin()), tea.WithOutput(cmd.OutOrStdout())).Run()
			if errors.Is(err, tea.ErrProgramKilled) && cmd.Context().Err() != nil {
				return nil // interrupted, which is how it ends
			}
			return err
		},
	}
	c.Flags().BoolVar(&identities, "identities", false, "show keys from the beginning")
	c.Flags().StringVar(&banFor, "ban-for", "1h", "how long b bans a key, like 10m or 1d")
	s.flags(c)
	return c
}

// topServer is the server of weir top.
type topServer struct {
	*servers
	banFor string
}

// reading is what a server has answered.
type reading struct {
	at   time.Time
	live liveCounts
	keys liveKeys
	err  error
}

// load asks the server.
func (s *topServer) load(ctx context.Context, identities bool) (r reading) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r.at = time.Now()
	if r.err = s.ask(ctx, "GET", s.addresses[0]+"/v1/live", nil, "", &r.live); r.err != nil {
		return r
	}
	r.live.withAdaptive()
	q := url.Values{"n": {fmt.Sprint(topKeys)}}
	if identities {
		q.Set("identities", "1")
	}
	r.err = s.ask(ctx, "GET", s.addresses[0]+"/v1/keys?"+q.Encode(), nil, "", &r.keys)
	return r
}

// override bans a key, or lifts its ban, and returns what to tell the user.
func (s *topServer) override(ctx context.Context, what, limit string, key []string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	of := override{Limit: limit, Key: key}
	if what == "ban" {
		of.For = s.banFor
	}
	var done override
	if err := s.ask(ctx, "POST", s.addresses[0]+"/v1/"+what, of, "", &done); err != nil {
		return what + ": " + shown(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if what == "ban" {
		return "banned until " + shown(done.Until)
	}
	return "lifted"
}
