package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// shownNames is how many names of bots and monitors a report lists.
const shownNames = 15

// WriteText writes the suggestion as a policy, with the reasons as comments.
func (s *Suggestion) WriteText(w io.Writer) error {
	var b bytes.Buffer
	var about bytes.Buffer
	s.writeText(&about)
	fmt.Fprintf(&about, "clients   %d, of which %d seem to be bots and %d monitors", s.Clients, s.Bots, s.Monitors)
	if s.Sampled {
		about.WriteString("   (so many that all counts of clients are estimates from a sample)")
	}
	about.WriteString("\n")
	s.names(&about)
	for i := range s.Limits {
		s.front(&about, &s.Limits[i])
	}
	for line := range bytes.Lines(about.Bytes()) {
		if len(bytes.TrimSpace(line)) == 0 {
			b.WriteString("#\n")
			continue
		}
		b.WriteString("# ")
		b.Write(line)
	}
	b.WriteString(s.YAML())
	_, err := w.Write(b.Bytes())
	return err
}

// names lists the bots and monitors.
func (s *Suggestion) names(b *bytes.Buffer) {
	if len(s.Named) == 0 {
		return
	}
	best := s.Limits[0].Front[s.Limits[0].Best]
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\nbots and monitors\tkind\tclients\trequests\tburst needed at %s\n", best.Rate)
	for _, n := range s.Named[:min(len(s.Named), shownNames)] {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", shownName(n.Name), n.Kind, n.Clients, n.Requests, n.Burst)
	}
	t.Flush()
	if more := len(s.Named) - shownNames; more > 0 {
		fmt.Fprintf(b, "and %d more\n", more)
	}
}

// front lists the limits that none of the others is better than.
func (s *Suggestion) front(b *bytes.Buffer, l *SuggestedLimits) {
	fmt.Fprintf(b, "\n%v %% of the clients would never notice any of these\n", l.Percent)
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "rate\tburst\tclients limited\tshare\tof them people\t\n")
	for i, f := range l.Front {
		mark := ""
		if i == l.Best {
			mark = " <- the fewest requests in a minute"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%.2f %%\t%d\t%s\n", f.Rate, f.Burst, f.Limited, percent(f.Limited, s.Clients), f.People, mark)
	}
	t.Flush()
	switch {
	case s.Short:
		fmt.Fprintf(b, "the log is shorter than an hour: it does not show what clients do in other hours\n")
	case !l.Sure:
		fmt.Fprintf(b, "there are too few clients to expect the same of other days\n")
	}
}

// YAML returns a policy with the first suggestion, and its reason as a comment. It is empty if there were no requests.
func (s *Suggestion) YAML() string {
	if len(s.Limits) == 0 {
		return ""
	}
	l := &s.Limits[0]
	f := l.Front[l.Best]
	var b bytes.Buffer
	first, last := time.Unix(0, s.First).UTC(), time.Unix(0, s.Last).UTC()
	b.WriteString("limits:\n  per-client:\n")
	fmt.Fprintf(&b, "    # %v %% of the clients would never notice: of %d from %s to %s,\n", l.Percent, s.Clients, first.Format("2006-01-02 15:04"), last.Format("2006-01-02 15:04"))
	fmt.Fprintf(&b, "    # it would have limited %d (%.2f %%).", f.Limited, percent(f.Limited, s.Clients))
	switch {
	case s.Short:
		b.WriteString(" The log is shorter than an hour: try a longer one.\n")
	case l.Sure:
		b.WriteString(" There is room for days with more.\n")
	default:
		b.WriteString(" They are too few to expect the same of other days.\n")
	}
	if l.Alone > 0 {
		fmt.Fprintf(&b, "    # Without bots and monitors, burst: %d would do: exempt them, or give them a limit of their own.\n", l.Alone)
	}
	fmt.Fprintf(&b, "    key: client.ip\n    token_bucket: { rate: %s, burst: %d }\nroutes:\n  - match: /\n    limits: [per-client]\n", f.Rate, f.Burst)
	return b.String()
}

// MarshalJSON writes {"requests":N,"unparsed":N,"clients":N,"bots":N,"monitors":N,"named":[...],"suggestions":[{"percent":99,
// "sure":true,"best":{"rate":"10/m","burst":20,"clients_limited":N,"people_limited":N},"front":[...]}],"yaml":"..."}.
func (s *Suggestion) MarshalJSON() ([]byte, error) {
	type suggested struct {
		Rate    string `json:"rate"`
		Burst   int64  `json:"burst"`
		Limited int64  `json:"clients_limited"`
		People  int64  `json:"people_limited"`
	}
	type limits struct {
		Percent float64     `json:"percent"`
		Sure    bool        `json:"sure"`
		Best    suggested   `json:"best"`
		Front   []suggested `json:"front"`
	}
	type named struct {
		Name     string `json:"name"`
		Kind     string `json:"kind"`
		Clients  int64  `json:"clients"`
		Requests int64  `json:"requests"`
		Burst    int64  `json:"burst_needed"`
	}
	j := struct {
		Requests int64    `json:"requests"`
		Unparsed int64    `json:"unparsed"`
		Clients  int64    `json:"clients"`
		Bots     int64    `json:"bots"`
		Monitors int64    `json:"monitors"`
		Sampled  bool     `json:"sampled,omitempty"`
		Named    []named  `json:"named"`
		Limits   []limits `json:"suggestions"`
		YAML     string   `json:"yaml"`
	}{s.Requests, s.Unparsed, s.Clients, s.Bots, s.Monitors, s.Sampled, []named{}, []limits{}, s.YAML()}
	for _, n := range s.Named {
		j.Named = append(j.Named, named(n))
	}
	for _, l := range s.Limits {
		of := limits{Percent: l.Percent, Sure: l.Sure}
		for i, f := range l.Front {
			of.Front = append(of.Front, suggested{f.Rate, f.Burst, f.Limited, f.People})
			if i == l.Best {
				of.Best = of.Front[i]
			}
		}
		j.Limits = append(j.Limits, of)
	}
	return json.Marshal(j)
}
