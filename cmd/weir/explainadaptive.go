package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// adaptivePrefix begins the names of adaptive limits.
const adaptivePrefix = "adaptive:"

// adaptiveState is the state of an adaptive limit: fields of /v1/live.
type adaptiveState struct {
	Limit    string            `json:"limit"`
	Target   string            `json:"target,omitempty"` // of an upstream
	Now      int64             `json:"now"`
	InFlight int64             `json:"in_flight"`
	Waiting  int64             `json:"waiting"`
	OK       uint64            `json:"ok"`
	Dropped  uint64            `json:"dropped"`
	Refused  uint64            `json:"refused"`
	Least    float64           `json:"least_latency_ms,omitempty"`
	Overload string            `json:"overload,omitempty"`
	Reasons  map[string]uint64 `json:"refused_for,omitempty"`
}

// explainAdaptive prints the state of an adaptive limit, of an upstream for each of its targets.
func explainAdaptive(cmd *cobra.Command, s *servers, limit string, asJSON bool) error {
	if s.at != atAdmin {
		return &usageError{errors.New("an adaptive limit is explained by listen.admin: add --admin http://127.0.0.1:9090")}
	}
	var live struct {
		Adaptive []adaptiveState `json:"adaptive"`
	}
	if err := s.one(cmd, "GET", "/v1/live", nil, &live); err != nil {
		return err
	}
	var names []string
	all := []adaptiveState{}
	for _, a := range live.Adaptive {
		if names = append(names, a.Limit); a.Limit == limit {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		known := cmp.Or(strings.Join(slices.Compact(names), ", "), "none")
		return &undecidedError{fmt.Errorf("there is no adaptive limit %q: known: %s", limit, known)}
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), all)
	}
	for _, a := range all {
		if err := a.print(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	return nil
}

// print prints the state, one fact per line.
func (a *adaptiveState) print(to io.Writer) error {
	fmt.Fprintf(to, "%d of %d in flight\n", a.InFlight, a.Now)
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "limit\t%s\n", shown(strings.TrimSpace(a.Limit+" "+a.Target)))
	fmt.Fprintf(w, "queued\t%d\n", a.Waiting)
	fmt.Fprintf(w, "ended\t%d ok, %d dropped\n", a.OK, a.Dropped)
	fmt.Fprintf(w, "refused\t%s\n", a.refusals())
	if a.Least > 0 {
		fmt.Fprintf(w, "least latency\t%v\n", time.Duration(a.Least*float64(time.Millisecond)).Round(time.Microsecond))
	}
	if a.Overload != "" {
		fmt.Fprintf(w, "overload\t%s\n", shown(a.Overload))
	}
	return w.Flush()
}

// refusals says how many requests were refused, and for which reasons.
func (a *adaptiveState) refusals() string {
	var why []string
	for _, name := range slices.Sorted(maps.Keys(a.Reasons)) {
		why = append(why, fmt.Sprintf("%s %d", shown(name), a.Reasons[name]))
	}
	if len(why) == 0 {
		return fmt.Sprint(a.Refused)
	}
	return fmt.Sprintf("%d (%s)", a.Refused, strings.Join(why, ", "))
}
