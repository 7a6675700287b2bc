package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// used is what a server reports about a key and a limit.
type used struct {
	Limit     string   `json:"limit"`
	Key       []string `json:"key,omitempty"`
	Plan      string   `json:"plan,omitempty"`
	Allowed   int64    `json:"allowed"`
	Used      int64    `json:"used"`
	Remaining int64    `json:"remaining"`
	ResetAt   string   `json:"reset_at,omitempty"`
	NextAt    string   `json:"next_at,omitempty"`
	Unlimited bool     `json:"unlimited,omitempty"`
	Shadow    bool     `json:"shadow,omitempty"`
	Error     string   `json:"error,omitempty"`
}

func usageCommand() *cobra.Command {
	var s servers
	var limit, plan, export string
	var asJSON bool
	c := &cobra.Command{
		Use:   "usage KEY | --export csv|jsonl",
		Short: "Show what a key has used of its limits, and when it comes back",
		Long: `Usage prints, for each limit with a key of as many parts, what a key has used, what is left, and when all of it is back.
Limits in a store are those of all servers together; limits in memory are those of this server.

With --export, it prints what every key has used of the quotas, which are limits with a window of an hour or more, in
memory and in Redis: as CSV, or as lines of JSON. What cannot be listed has a line with an error.

KEY is the parts of the limit's key, separated by commas, or a JSON array of them.`,
		Example: "  weir usage acme\n  weir usage acme --limit monthly --json\n  weir usage --export csv > usage.csv",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (export == "") == (len(args) == 0) {
				return &usageError{errors.New("name a KEY, or use --export csv or --export jsonl")}
			}
			if export != "" {
				return s.each(cmd, func(address string) error {
					return s.copy(cmd, address+"/v1/usage/export?format="+url.QueryEscape(export))
				})
			}
			parts, err := keyParts(args[0])
			if err != nil {
				return err
			}
			q := url.Values{"key": parts}
			if limit != "" {
				q.Set("limit", limit)
			}
			if plan != "" {
				q.Set("plan", plan)
			}
			return s.each(cmd, func(address string) error {
				var list struct {
					Usage []used `json:"usage"`
				}
				if err := s.ask(cmd.Context(), "GET", address+"/v1/usage?"+q.Encode(), nil, "", &list); err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), list)
				}
				return printUsage(cmd, list.Usage)
			})
		},
	}
	c.Flags().StringVar(&limit, "limit", "", "this limit alone (default: all)")
	c.Flags().StringVar(&plan, "plan", "", "the customer's plan (default: as the server knows it)")
	c.Flags().StringVar(&export, "export", "", "print the usage of all keys: csv or jsonl")
	c.Flags().BoolVar(&asJSON, "json", false, "print the usage as JSON")
	s.flags(c)
	return c
}

// printUsage prints a table, and then what is wrong with limits that have no figures to stderr.
func printUsage(cmd *cobra.Command, all []used) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "LIMIT\tUSED\tALLOWED\tLEFT\tALL BACK AT")
	for _, u := range all {
		name := u.Limit
		if u.Shadow {
			name += " (shadow)"
		}
		allowed, left := strconv.FormatInt(u.Allowed, 10), strconv.FormatInt(u.Remaining, 10)
		if u.Unlimited {
			allowed, left = "unlimited", "-"
		}
		if u.Error != "" {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\n", name)
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", name, u.Used, allowed, left, u.ResetAt)
	}
	err := w.Flush()
	for _, u := range all {
		if u.Error != "" {
			cmd.PrintErrf("weir: %s: %s\n", u.Limit, u.Error)
		}
	}
	return err
}

// copy prints a response, which may be long.
func (s *servers) copy(cmd *cobra.Command, address string) error {
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	client := *s.client
	client.Timeout = 0 // all keys may take long
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return s.failure(req, resp, err)
	}
	defer resp.Body.Close()
	_, err = io.Copy(cmd.OutOrStdout(), resp.Body)
	return err
}
