package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

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
	c.AddCommand(importNginxCommand(), importEnvoyCommand())
	return c
}

func importNginxCommand() *cobra.Command {
	var o nginx.Options
	c := &cobra.Command{
		Use:   "nginx FILE",
		Short: "Convert an nginx configuration to a policy file",
		Long: `This command reads an nginx configuration, with the files that it includes, and prints a policy file for it: limit_req and limit_conn with their zones,
servers with their addresses and certificates, locations, upstreams and trusted proxies.

Directives that have no exact equivalent are listed on standard error, each with its line and the reason. CRITICAL notes come first. Each of
them means that, with the policy as it is, other clients are limited than before, other clients are admitted, or requests do not reach an
upstream. If there is a CRITICAL note, the exit code is 1, unless --partial is set. The resulting policy is checked as by weir check, and
each error of that check is a CRITICAL note.

The limits are exact. nginx truncates rates to thousandths of a request per second, and counts in milliseconds. With --nginx-arithmetic the
limits decide each request as nginx does.`,
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
			problems := policyProblems(args[0], result.Policy)
			policy := &strings.Builder{}
			for _, p := range problems {
				text := refusal(p, len(problems))
				fmt.Fprintln(cmd.ErrOrStderr(), text)
				fmt.Fprintf(policy, "# %s\n", strings.NewReplacer("\n\t", "; ", "\n", " ").Replace(text))
				critical = true
			}
			for _, n := range result.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), n)
			}
			policy.Write(result.Policy)
			if _, err = fmt.Fprint(cmd.OutOrStdout(), policy); err != nil {
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
func policyProblems(conf string, policy []byte) (all []policyfile.Problem) {
	file, err := policyfile.Parse(filepath.Join(filepath.Dir(conf), "policy.yaml"), policy)
	problems := server.Check(file)
	if err != nil {
		problems = file.Problems
	}
	for _, p := range problems {
		if !p.Warning {
			all = append(all, p)
		}
	}
	return all
}

// refusal returns the note for a problem of the policy. The note names the line that the problem has
// when the policy is printed below that many lines of comments.
func refusal(p policyfile.Problem, above int) string {
	text := fmt.Sprintf("CRITICAL: weir check refuses line %d of the policy: %s", p.Line+above, p.Message)
	if p.Fix != "" {
		text += "\n\tfix: " + p.Fix
	}
	return text
}
