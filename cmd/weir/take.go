package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// taken is what a server decided about one limit.
type taken struct {
	Limit      string `json:"limit"`
	Allowed    bool   `json:"allowed"`
	Capacity   int64  `json:"capacity"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms,omitempty"`
	ResetAfter int64  `json:"reset_after_ms"`
	Window     int64  `json:"window_ms"`
	Source     string `json:"source"`
	Exempt     bool   `json:"exempt,omitempty"`
	Shadow     bool   `json:"shadow,omitempty"`
	Problem    string `json:"store_problem,omitempty"`
}

func takeCommand() *cobra.Command {
	s := servers{at: atHTTP}
	var plan string
	var peek, asJSON bool
	c := &cobra.Command{
		Use:   "take LIMIT KEY [COST]",
		Short: "Take from a limit of a running server, if it allows the cost",
		Long: `Take charges COST to a key of a limit, if the limit allows it. The server has listen.http, and its gateway and other
services count in the same state. It exits with 0 if the cost was allowed, with 1 if it was refused, with 2 for wrong usage, and
with 3 if there is no decision. default COST: the limit's own, usually 1.

KEY is the parts of the limit's key, separated by commas, or a JSON array of them; [] for a limit without a key.`,
		Example: "  weir take per-user ann\n  weir take per-user ann 5\n  weir take per-user ann --peek",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"limit": args[0]}
			if plan != "" {
				body["plan"] = plan
			}
			parts, err := keyParts(args[1])
			if err != nil {
				return err
			}
			body["key"] = parts
			if len(args) > 2 {
				cost, err := strconv.ParseInt(args[2], 10, 64)
				if err != nil || cost < 0 {
					return &usageError{fmt.Errorf("%q is not a cost: write a whole number of at least 0", args[2])}
				}
				body["cost"] = cost
			}
			operation := "take"
			if peek {
				operation = "peek"
			}
			var a struct {
				Limits  []taken `json:"limits"`
				Problem string  `json:"store_problem"`
			}
			if err := s.one(cmd, "POST", "/v1/"+operation+"?status=200", body, &a); err != nil {
				return err
			}
			if len(a.Limits) != 1 {
				return &undecidedError{errors.New("the server did not respond about the limit")}
			}
			d := a.Limits[0]
			d.Problem = a.Problem
			return d.report(cmd, asJSON)
		},
	}
	c.Flags().StringVar(&plan, "plan", "", "the customer's plan (default: as the server knows it)")
	c.Flags().BoolVar(&peek, "peek", false, "show what take would decide, and charge nothing")
	c.Flags().BoolVar(&asJSON, "json", false, "print the decision as JSON")
	s.flags(c)
	return c
}

// report prints the decision, in the words of scripts. A shadow limit refuses nobody.
func (d *taken) report(cmd *cobra.Command, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		if err := printJSON(out, d); err != nil {
			return err
		}
	} else {
		text := fmt.Sprintf("allow remaining=%d", d.Remaining)
		if !d.Allowed {
			retry := "never"
			if d.RetryAfter != nil {
				retry = (time.Duration(*d.RetryAfter) * time.Millisecond).String()
			}
			text = fmt.Sprintf("deny retry=%s remaining=%d", retry, d.Remaining)
		}
		text += fmt.Sprintf(" limit=%d reset=%v", d.Capacity, time.Duration(d.ResetAfter)*time.Millisecond)
		if d.Exempt {
			text = "allow (the limit does not apply to the key)"
		}
		if d.Shadow {
			text += " (shadow: not enforced)"
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return err
		}
	}
	if d.Problem != "" {
		cmd.PrintErrf("weir: %s\n", d.Problem)
	}
	if !d.Allowed && !d.Shadow {
		return errReported
	}
	return nil
}

// one calls one server. An error that is no wrong usage means that nothing was decided.
func (s *servers) one(cmd *cobra.Command, method, path string, body, out any) error {
	if err := s.open(); err != nil {
		return err
	}
	defer s.client.CloseIdleConnections()
	if len(s.addresses) > 1 {
		return &usageError{fmt.Errorf("name one server with --%s: each counts by itself", s.at.name())}
	}
	if err := s.ask(cmd.Context(), method, s.addresses[0]+path, body, "", out); err != nil {
		return &undecidedError{fmt.Errorf("%s: %w", s.addresses[0], err)}
	}
	return nil
}
