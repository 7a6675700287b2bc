package main

import "github.com/spf13/cobra"

func reloadCommand() *cobra.Command {
	var s servers
	c := &cobra.Command{
		Use:   "reload",
		Short: "Have a running server read its policy file again",
		Long: `Reload has a running server read its policy file, as SIGHUP does, and says what that changed. A file with a mistake changes nothing: what is
wrong is told, and the exit code is 1.`,
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
