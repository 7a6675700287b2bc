package main

import "github.com/spf13/cobra"

func grantCommand() *cobra.Command {
	var s servers
	var d string
	var set map[string]string
	c := &cobra.Command{
		Use:   "grant LIMIT [KEY] --for DURATION [--set NAME=VALUE...]",
		Short: "Let a key pass a limit for a while, or give it other numbers",
		Long: `Grant has a running server let all requests of a key pass a limit without charging it, until the time is over or the grant is lifted. With
--set the key is limited by other numbers instead: those of the policy file, for a limit that is kept in memory. KEY is the parts of the limit's
key, separated by commas, or a JSON array of them; for client.ip it may be a prefix.`,
		Example: "  weir grant per-client 192.0.2.7 --for 1h\n  weir grant per-client 192.0.2.7 --for 7d --set rate=1000/s --set burst=2000",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.except(cmd, "grant", args, exception{For: d, Set: set})
		},
	}
	c.Flags().StringVar(&d, "for", "", "how long it holds, like 1h or 7d (required)")
	c.Flags().StringToStringVar(&set, "set", nil, "a number of the limit that is another one for this key, like rate=100/s; repeat it for more")
	s.flags(c)
	return c
}
