package main

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// explanation is why a limit of a server decides about a key as it does.
type explanation struct {
	taken
	Key       []string          `json:"key"`
	Plan      string            `json:"plan,omitempty"`
	Algorithm string            `json:"algorithm"`
	Fields    map[string]string `json:"parameters"`
	By        string            `json:"decided_by"`
	Until     string            `json:"override_ends,omitempty"`
	Store     string            `json:"store,omitempty"`
	ClearsAt  string            `json:"clears_at,omitempty"`
	Text      string            `json:"text"`
}

func explainCommand() *cobra.Command {
	s := servers{at: atHTTP}
	var plan string
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain LIMIT KEY",
		Short: "Show why a key of a running server is admitted or refused, and when that clears",
		Long: `Explain shows what a limit would decide about a key now, and why: the parameters that apply, by a plan, a ban, a grant
or the limit itself, what is left, and when the same work is admitted again. It charges nothing. The server has listen.http.
It exits with 0, also if the key is refused, with 2 for wrong usage, and with 3 if the server cannot tell.

KEY is the parts of the limit's key, separated by commas, or a JSON array of them; [] for a limit without a key.`,
		Example: "  weir explain per-user ann\n  weir explain per-user ann --json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			parts, err := keyParts(args[1])
			if err != nil {
				return err
			}
			q := url.Values{"limit": {args[0]}, "key": parts}
			if plan != "" {
				q.Set("plan", plan)
			}
			var x explanation
			if err := s.one(cmd, "GET", "/v1/explain?"+q.Encode(), nil, &x); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), x)
			}
			return x.print(cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&plan, "plan", "", "the customer's plan (default: as the server knows it)")
	c.Flags().BoolVar(&asJSON, "json", false, "print the explanation as JSON")
	s.flags(c)
	return c
}

// wholeSeconds is a time without fractions of a second, rounded up.
func wholeSeconds(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return at.Add(time.Second - 1).Truncate(time.Second).Format(time.RFC3339)
}

// print prints the explanation, one fact per line.
func (x *explanation) print(to io.Writer) error {
	fmt.Fprintln(to, escaped(x.Text))
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	rule := x.Algorithm
	for _, name := range slices.Sorted(maps.Keys(x.Fields)) {
		rule += " " + name + "=" + x.Fields[name]
	}
	fmt.Fprintf(w, "limit\t%s\n", x.Limit)
	fmt.Fprintf(w, "key\t%s\n", keyText(x.Key))
	fmt.Fprintf(w, "rule\t%s\n", rule)
	fmt.Fprintf(w, "decided by\t%s\n", strings.TrimSpace(x.By+" "+shown(x.Plan)))
	fmt.Fprintf(w, "left\t%d of %d\n", x.Remaining, x.Capacity)
	fmt.Fprintf(w, "all back in\t%v\n", time.Duration(x.ResetAfter)*time.Millisecond)
	for _, line := range [][2]string{{"admitted again", wholeSeconds(x.ClearsAt)}, {"override ends", x.Until}, {"store", x.Store}} {
		if line[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
	}
	return w.Flush()
}
