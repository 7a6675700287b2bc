package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server"
	"github.com/weirflow/weir/server/policyfile"
)

func checkCommand() *cobra.Command {
	var schema bool
	var asked probeFlags
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Validate a policy file",
		Long: `Check reads a policy file and prints every problem with its line, its cause and a fix: whatever serve would refuse, and
certificates that have expired. It also prints warnings, such as a limit that no route uses. It exits with 1 if there is
a problem.

A policy without listen is valid: replay and test need no addresses.

With --probe, check also asks a running upstream which paths it serves alike, such as /checkout and /CHECKOUT/, and prints
those that pass a limit, with the line that repairs it. It sends OPTIONS, HEAD and GET without a body, one after another,
and exits with 1 if a limit can be passed or if that cannot be found out.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if schema {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			if err := asked.valid(cmd); err != nil {
				return err
			}
			if schema {
				_, err := out.Write(policyfile.Schema())
				return err
			}
			file, err := policyfile.Load(args[0])
			var invalid *policyfile.InvalidError
			if err != nil && !errors.As(err, &invalid) {
				return fileError(err)
			}
			wrong := append(server.Check(file), server.Expired(file)...)
			if invalid == nil && len(wrong) == 0 {
				if completed, err := server.Complete(file); err == nil { // else a file has changed since
					file = completed
				}
			}
			problems := slices.Concat(file.Problems, wrong, server.Warnings(file))
			slices.SortStableFunc(problems, func(a, b policyfile.Problem) int {
				return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
			})
			for _, p := range problems {
				fmt.Fprintln(out, p)
			}
			if invalid != nil || len(wrong) > 0 {
				return errReported
			}
			if err := asked.probe(cmd.Context(), out, file); err != nil {
				return err
			}
			scope := ""
			if n, ok := server.EnvoyRules(file); ok {
				scope = ", " + counted(n, "rule") + " of Envoy"
			}
			if !server.ForServing(file) {
				scope += " (no listen: not for serve)"
			}
			fmt.Fprintf(out, "%s: ok: %s, %s%s\n", args[0], counted(len(file.Policy.Limits), "limit"), counted(len(file.Policy.Routes), "route"), scope)
			return nil
		},
	}
	asked.add(c)
	c.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of a policy file, for editors, and do nothing else")
	return c
}

// counted returns a number of things in words: 1 limit, 2 limits.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
