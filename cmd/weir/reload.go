package main

import "github.com/spf13/cobra"

func reloadCommand() *cobra.Command {
	var s servers
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make a running server read its policy file again",
		Long: `Reload makes a running server read its policy file again, as SIGHUP does, and prints what changed. An invalid file changes
nothing: reload prints the problems and exits with 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.each(cmd, func(address string) error {
				var p planned
				if err := s.ask(cmd.Context(), "POST", address+"/v1/reload", nil, "policy file", &p); err != nil {
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
