package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server"
	"github.com/weirflow/weir/server/nginx"
	"github.com/weirflow/weir/server/policyfile"
)

func importCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "import",
		Short: "Convert the configuration of another rate limiter to a policy file",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(importNginxCommand())
	return c
}

func importNginxCommand() *cobra.Command {
	var o nginx.Options
	c := &cobra.Command{
		Use:   "nginx FILE",
		Short: "Convert an nginx configuration to a policy file",
		Long: `Nginx reads an nginx configuration, with the files that it includes, and prints a policy file for it: limit_req and limit_conn with their zones,
servers with their addresses and certificates, locations, upstreams and trusted proxies.

What a policy cannot say, or says differently, is listed on the standard error, with its line and the reason. CRITICAL notes come first: they
change who is limited, who is let in, or whether requests get anywhere. With one of them the exit code is 1, unless --partial is set. The
policy is checked like weir check does it; what is wrong with it is CRITICAL too.

The limits are exact. nginx cuts rates to thousandths of a request a second and counts in milliseconds; with --nginx-arithmetic the limits
decide as nginx does, request by request.`,
		Example: `  weir import nginx /etc/nginx/nginx.conf >policy.yaml
  weir import nginx --gateway 127.0.0.1:8080 --partial /etc/nginx/nginx.conf >trial.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := nginx.Import(nginx.Disk(), args[0], o)
			var wrong *nginx.Error
			switch {
			case errors.As(err, &wrong):
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return errReported
			case err != nil:
				return fileError(err)
			}
			critical := result.Critical()
			for _, text := range policyProblems(args[0], result.Policy) {
				fmt.Fprintf(cmd.ErrOrStderr(), "CRITICAL: weir check refuses the policy: %s\n", text)
				critical = true
			}
			for _, n := range result.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), n)
			}
			if _, err = cmd.OutOrStdout().Write(result.Policy); err != nil {
				return err
			}
			if critical && !o.Partial {
				return errReported
			}
			return nil
		},
	}
	c.Flags().StringVar(&o.Gateway, "gateway", "", "listen here instead, HOST:PORT, without TLS, for a trial. default: where nginx listens")
	c.Flags().StringVar(&o.Admin, "admin", "", "the address of the admin pages, HOST:PORT. default: none")
	c.Flags().BoolVar(&o.Arithmetic, "nginx-arithmetic", false, "decide as nginx does, in thousandths of a request and milliseconds")
	c.Flags().BoolVar(&o.Partial, "partial", false, "accept CRITICAL notes, and skip included files that cannot be read")
	return c
}

// policyProblems returns what weir check would refuse in a policy. Files that it names are looked
// for beside the configuration.
func policyProblems(conf string, policy []byte) (all []string) {
	file, err := policyfile.Parse(filepath.Join(filepath.Dir(conf), "policy.yaml"), policy)
	problems := server.Check(file)
	if err != nil {
		problems = file.Problems
	}
	for _, p := range problems {
		if !p.Warning {
			p.File = "policy"
			all = append(all, p.String())
		}
	}
	return all
}
