package main

import (
	"os"

	"github.com/spf13/cobra"
)

func diffCommand() *cobra.Command {
	var s servers
	c := &cobra.Command{
		Use:   "diff FILE",
		Short: "Show what a policy file would change on a running server",
		Long: `Diff sends a policy file to a running server, which compares it with the running policy and changes nothing. It prints
which limits, routes, upstreams and stores would be added, removed or changed, and which limits would keep their
counts. It exits with 1 if the server would refuse the policy.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return fileError(err)
			}
			return s.each(cmd, func(address string) error {
				var p planned
				if err := s.ask(cmd.Context(), "PUT", address+"/v1/policy?dry_run=1", data, args[0], &p); err != nil {
					return err
				}
				p.tell(cmd, &s, address)
				return nil
			})
		},
	}
	s.flags(c)
	return c
}
