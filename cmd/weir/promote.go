package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func promoteCommand() *cobra.Command {
	var s servers
	var save, dry bool
	c := &cobra.Command{
		Use:   "promote",
		Short: "Make the candidate policy of a running server the active one",
		Long: `Promote makes the candidate policy of weir serve --candidate FILE the active one, prints what changed, and ends its trial.
With --save it is also written to the server's policy file; otherwise it is active until that file changes or the server
restarts. With --dry-run nothing changes: promote shows how the candidate has decided so far, and what it would change.`,
		Example: "  weir promote --dry-run\n  weir promote --save",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if save && dry {
				return &usageError{errors.New("--save and --dry-run: write one of them")}
			}
			return s.each(cmd, func(address string) error {
				if dry {
					return showCandidate(cmd, &s, address)
				}
				path := "/v1/promote"
				if save {
					path += "?save=1"
				}
				var p planned
				if err := s.ask(cmd.Context(), "POST", address+path, nil, "candidate", &p); err != nil {
					return err
				}
				p.tell(cmd, &s, address)
				return nil
			})
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only show how the candidate has decided, and what it would change")
	c.Flags().BoolVar(&save, "save", false, "write it to the server's policy file, too")
	s.flags(c)
	return c
}

// onTrial is how a candidate policy has decided.
type onTrial struct {
	planned
	Since     string `json:"since"`
	Requests  uint64 `json:"requests"`
	Disagreed uint64 `json:"disagreed"`
	Counts    []struct {
		Live, Candidate string
		Requests        uint64
	} `json:"counts"`
}

// showCandidate prints how the candidate of a server has decided, and what it changes.
func showCandidate(cmd *cobra.Command, s *servers, address string) error {
	var t onTrial
	if err := s.ask(cmd.Context(), "GET", address+"/v1/candidate", nil, "candidate", &t); err != nil {
		return err
	}
	cmd.PrintErrf("on trial since %s: %d requests, decided otherwise about %d\n", t.Since, t.Requests, t.Disagreed)
	for _, c := range t.Counts {
		if c.Live != c.Candidate {
			cmd.PrintErrf("  %s now, %s by the candidate: %d\n", c.Live, c.Candidate, c.Requests)
		}
	}
	t.tell(cmd, s, address)
	return nil
}
