package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
	"github.com/weirflow/weir/weirtest"
)

func testCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE.weir...",
		Short: "Run scripts that test limits and policies, in virtual time",
		Long: `Test runs scripts against limits and policies in virtual time: each line says what should happen at which moment, and a
script of hours runs in milliseconds. A mismatch prints the line, the expected and the actual result. It exits with 1
if there is a mismatch or if a script cannot be run.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			failed := false
			for _, name := range args {
				ok, err := testScript(cmd, name)
				if err != nil {
					return err
				}
				failed = failed || !ok
			}
			if failed {
				return errReported
			}
			return nil
		},
	}
}

// testScript runs one script and prints its result.
func testScript(cmd *cobra.Command, name string) (ok bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, fileError(err)
	}
	defer f.Close()
	var keys *policyfile.APIKeys
	r := weirtest.Runner{Customers: func() policy.Customers { return keys }, Policy: func(file string) (policy.Policy, error) {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(name), file)
		}
		p, err := policyfile.Load(file)
		if err != nil {
			return policy.Policy{}, err
		}
		keys = p.APIKeys
		noteSkippedRooms(cmd.ErrOrStderr(), &p.Policy)
		return p.Policy, nil
	}}
	mismatches, err := r.Run(name, f)
	out := cmd.OutOrStdout()
	for _, m := range mismatches {
		fmt.Fprintln(out, m)
	}
	var syntax *weirtest.SyntaxError
	switch {
	case errors.As(err, &syntax):
		fmt.Fprintln(out, err)
		return false, nil
	case err != nil:
		return false, fileError(err)
	case len(mismatches) > 0:
		fmt.Fprintf(out, "%s: FAILED: %s\n", name, mismatched(len(mismatches)))
		return false, nil
	}
	fmt.Fprintf(out, "%s: ok\n", name)
	return true, nil
}

// mismatched returns a number of mismatches in words.
func mismatched(n int) string {
	if n == 1 {
		return "1 mismatch"
	}
	return fmt.Sprintf("%d mismatches", n)
}
