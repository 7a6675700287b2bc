package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
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
	Waits     int64             `json:"waits_ms,omitempty"`
	Math      string            `json:"arithmetic,omitempty"`
	Text      string            `json:"text"`
	Refusals  []earlier         `json:"refusals"`
}

// earlier is an earlier refusal of the key.
type earlier struct {
	At         string `json:"at"`
	Route      string `json:"route,omitempty"`
	Cost       int64  `json:"cost"`
	Capacity   int64  `json:"capacity"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms,omitempty"`
	Shadow     bool   `json:"shadow,omitempty"`
	Banned     bool   `json:"banned,omitempty"`
}

func (r *earlier) String() string {
	text := r.At
	if r.Route != "" {
		text += "  " + shown(r.Route)
	}
	switch {
	case r.Banned:
		text += "  banned"
	default:
		text += fmt.Sprintf("  cost %d, %d of %d left", r.Cost, r.Remaining, r.Capacity)
	}
	if r.RetryAfter != nil {
		text += fmt.Sprintf("  retry after %v", time.Duration(*r.RetryAfter)*time.Millisecond)
	}
	if r.Shadow {
		text += "  (shadow)"
	}
	return text
}

func explainCommand() *cobra.Command {
	s := servers{at: atHTTP}
	var plan string
	var asJSON bool
	var admin []string
	c := &cobra.Command{
		Use:   "explain LIMIT KEY",
		Short: "Show why a key of a running server is admitted or refused, and when that clears",
		Long: `Explain shows what a limit would decide about a key now, and why: the parameters that apply, by a plan, a ban, a grant
or the limit itself, what is left and how that follows, when the same work is admitted again, and the latest refusals of the key.
It charges nothing. It asks listen.http of the server; with --admin, or with $WEIR_ADMIN and without $WEIR_HTTP, listen.admin.
It exits with 0, also if the key is refused, with 2 for wrong usage, and with 3 if the server cannot tell.

KEY is the parts of the limit's key, separated by commas, or a JSON array of them; [] for a limit without a key.
An adaptive limit, as adaptive:/reports/ of a route or adaptive:app of an upstream, has no keys. listen.admin tells its state.`,
		Example: "  weir explain per-user ann\n  weir explain per-user ann --json\n  weir explain per-user ann --admin http://127.0.0.1:9090 --token-file token\n  weir explain adaptive:/reports/ --admin http://127.0.0.1:9090",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && strings.HasPrefix(args[0], adaptivePrefix) {
				return nil
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			adaptive := strings.HasPrefix(args[0], adaptivePrefix)
			if adaptive && len(args) > 1 {
				return &usageError{errors.New("an adaptive limit has no keys: leave KEY out")}
			}
			var parts []string
			if !adaptive {
				var err error
				if parts, err = keyParts(args[1]); err != nil {
					return err
				}
			}
			if len(admin) > 0 && len(s.addresses) > 0 {
				return &usageError{errors.New("--admin with --http: name one of them")}
			}
			if len(admin) > 0 || len(s.addresses) == 0 && os.Getenv(atHTTP.variable()) == "" && os.Getenv(atAdmin.variable()) != "" {
				s.at, s.addresses = atAdmin, admin
			}
			if adaptive {
				return explainAdaptive(cmd, &s, args[0], asJSON)
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
	c.Flags().StringSliceVar(&admin, "admin", nil, "the server's address of listen.admin, to be asked in place of listen.http; then, --token-file is a file with a token of admin.token_file")
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
	by, byState := strings.TrimSpace(x.By+" "+shown(x.Plan)), true
	switch x.Source {
	case "deny", "allow":
		by, byState = "on_failure: "+x.Source+", as the store is unavailable", false
	case "share":
		by += ", in this node's share: on_failure is local, and the store is unavailable"
	}
	fmt.Fprintf(w, "decided by\t%s\n", by)
	if byState {
		fmt.Fprintf(w, "left\t%d of %d\n", x.Remaining, x.Capacity)
	}
	if x.Math != "" {
		fmt.Fprintf(w, "arithmetic\t%s\n", x.Math)
	}
	if byState {
		fmt.Fprintf(w, "all back in\t%v\n", time.Duration(x.ResetAfter)*time.Millisecond)
	}
	for _, line := range [][2]string{{"admitted again", wholeSeconds(x.ClearsAt)}, {"override ends", x.Until}, {"store", x.Store}} {
		if line[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
	}
	for i, r := range x.Refusals {
		name := "refused before"
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(w, "%s\t%s\n", name, r.String())
	}
	return w.Flush()
}
