package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server/listen"
	"github.com/weirflow/weir/server/policyfile"
)

func checkCommand() *cobra.Command {
	var schema bool
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Validate a policy file",
		Long: `Check reads a policy file and prints every problem with its line, its cause and a fix. It also prints warnings, such as
a limit that no route uses, and reports certificates that cannot be used or have expired. It exits with 1 if the
policy is invalid.`,
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
				return fileError(err)
			}
			for _, p := range file.Problems {
				fmt.Fprintln(out, p)
			}
			if invalid != nil {
				return errReported
			}
			if wrong := certificateProblems(file); len(wrong) > 0 {
				for _, err := range wrong {
					fmt.Fprintln(out, err)
				}
				return errReported
			}
			fmt.Fprintf(out, "%s: ok: %d limits, %d routes\n", args[0], len(file.Policy.Limits), len(file.Policy.Routes))
			return nil
		},
	}
	c.Flags().BoolVar(&schema, "schema", false, "print the JSON Schema of a policy file, for editors, and do nothing else")
	return c
}

// certificateProblems reports certificates under listen that serve would refuse to start with.
func certificateProblems(file *policyfile.File) (wrong []error) {
	for _, l := range file.Policy.Listen.Gateway {
		if l.TLS == nil {
			continue
		}
		c, err := listen.LoadCertificates(l.TLS, filepath.Dir(file.Path))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: the certificates of %s: %w", file.Path, l.Address, err))
			continue
		}
		for _, e := range c.Expiries() {
			if time.Now().After(e.NotAfter) {
				wrong = append(wrong, fmt.Errorf("%s: the certificates of %s: %s has expired, on %s: put a new one in its place", file.Path, l.Address, e.File, e.NotAfter.Format(time.DateOnly)))
			}
		}
	}
	return wrong
}
