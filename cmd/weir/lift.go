package main

import "github.com/spf13/cobra"

func liftCommand() *cobra.Command {
	var s servers
	c := &cobra.Command{
		Use:   "lift LIMIT [KEY]",
		Short: "End a ban or a grant",
		Long:  `Lift ends the ban or the grant of a key at a limit at once. It exits with 1 if the key has none.`,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.sendOverride(cmd, "lift", args, override{})
		},
	}
	s.flags(c)
	return c
}
