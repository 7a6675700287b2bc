package main

import "github.com/spf13/cobra"

func grantCommand() *cobra.Command {
	var s servers
	var d string
	var set map[string]string
	c := &cobra.Command{
		Use:   "grant LIMIT [KEY] --for DURATION [--set NAME=VALUE...]",
		Short: "Exempt a key from a limit for a while, or give it other parameters",
		Long: `Grant makes a running server admit all requests of a key at a limit without charging them, until the grant expires or is
lifted. With --set, the key is limited by other parameters instead, named as in the policy file; this works for limits
kept in memory.

KEY is the parts of the limit's key, separated by commas, or a JSON array of them. For client.ip it may be an address
prefix.`,
		Example: "  weir grant per-client 192.0.2.7 --for 1h\n  weir grant per-client 192.0.2.7 --for 7d --set rate=1000/s --set burst=2000",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.sendOverride(cmd, "grant", args, override{For: d, Set: set})
		},
	}
	c.Flags().StringVar(&d, "for", "", "how long the grant lasts, like 1h or 7d (required)")
	c.Flags().StringToStringVar(&set, "set", nil, "a parameter of the limit for this key, like rate=100/s; may be repeated")
	s.flags(c)
	return c
}
