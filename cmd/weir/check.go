package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server/policyfile"
)

func checkCommand() *cobra.Command {
	var schema bool
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Validate a policy file",
		Long: `Check reads a policy file and says all that is wrong with it: where, what, and what to do about it. Warnings, such as a limit that no
route uses, are told too. It exits with 1 if the file is not a valid policy.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if schema {
				_, err := out.Write(policyfile.Schema())
				return err
			}
			file, err := policyfile.Load(args[0])
			var invalid *policyfile.InvalidError
			if err != nil && !errors.As(err, &invalid) {
				return readable(err)
			}
			for _, p := range file.Problems {
				fmt.Fprintln(out, p)
			}
			if invalid != nil {
				return errAnswered
			}
			fmt.Fprintf(out, "%s: ok: %d limits, %d routes\n", args[0], len(file.Policy.Limits), len(file.Policy.Routes))
			return nil
		},
	}
	c.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of a policy file, for editors, and do nothing else")
	return c
}
