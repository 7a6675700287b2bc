package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// override is a ban or a grant as JSON, to and from a server.
type override struct {
	Limit string            `json:"limit"`
	Key   []string          `json:"key,omitempty"`
	Kind  string            `json:"kind,omitempty"`
	Set   map[string]string `json:"set,omitempty"`
	For   string            `json:"for,omitempty"`
	Until string            `json:"until,omitempty"`
}

func banCommand() *cobra.Command {
	var s servers
	var d string
	c := &cobra.Command{
		Use:   "ban LIMIT [KEY] --for DURATION",
		Short: "Refuse all requests of a key for a while",
		Long: `Ban makes a running server refuse all requests of a key at a limit, until the ban expires or is lifted. Refused requests
charge nothing, and Retry-After tells clients when the ban ends.

KEY is the parts of the limit's key, separated by commas, or a JSON array of them. For client.ip it may be an address
prefix.`,
		Example: "  weir ban per-client 192.0.2.7 --for 1h\n  weir ban per-client 198.51.100.0/24 --for 1d",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.sendOverride(cmd, "ban", args, override{For: d})
		},
	}
	c.Flags().StringVar(&d, "for", "", "how long the ban lasts, like 1h or 7d (required)")
	s.flags(c)
	return c
}

// except sends a ban, a grant, or the lifting of one.
func (s *servers) sendOverride(cmd *cobra.Command, what string, args []string, ex override) error {
	if what != "lift" && ex.For == "" {
		return &usageError{fmt.Errorf("--for is missing: add how long it lasts, like --for 1h")}
	}
	ex.Limit = args[0]
	if len(args) > 1 {
		parts, err := keyParts(args[1])
		if err != nil {
			return err
		}
		ex.Key = parts
	}
	return s.each(cmd, func(address string) error {
		var done override
		if err := s.ask(cmd.Context(), "POST", address+"/v1/"+what, ex, "", &done); err != nil {
			return err
		}
		if done.Until == "" {
			fmt.Fprintln(cmd.OutOrStdout(), "lifted")
			return nil
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s until %s\n", strings.TrimSpace(done.Kind), done.Until)
		return nil
	})
}
