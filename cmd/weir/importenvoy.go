package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server/envoy"
	"github.com/weirflow/weir/server/policyfile"
)

func importEnvoyCommand() *cobra.Command {
	var environment, output string
	c := &cobra.Command{
		Use:   "envoy PATH",
		Short: "Write a policy file for the Envoy rate limit service, with the files of envoyproxy/ratelimit",
		Long: `This command checks a file or a folder of envoyproxy/ratelimit's YAML, and writes a policy file whose listen.rls serves it.

The policy names the rules by their absolute path or, with --output, relative to the policy file.

With --env, the policy has the settings of that server's environment variables: a file with lines of NAME=VALUE. Variables that
have no meaning here are listed on standard error, each with the reason. Passwords are not written into the policy, which names
files that hold them. With --output, these files are written beside the policy, readable by their owner alone; otherwise, standard
error says what to write.`,
		Example: `  weir import envoy --output policy.yaml /srv/runtime_data/current/config
  weir import envoy --env ratelimit.env --output policy.yaml ratelimit/`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			env := map[string]string{}
			if environment != "" {
				text, err := os.ReadFile(environment)
				if err != nil {
					return fileError(err)
				}
				env = envoy.ReadEnvironment(string(text))
			}
			rules, folder, err := besidePolicy(args[0], output)
			if err != nil {
				return err
			}
			imported := envoy.Import(env, envoy.Options{Rules: rules, Secrets: folder, Listed: true})
			files, err := envoy.Load(args[0])
			if err != nil {
				return fileError(err)
			}
			config, err := envoy.Parse(files, imported.Merge)
			if err == nil {
				err = checkLimits(config, files, imported)
			}
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return errReported
			}
			for _, n := range imported.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), n)
			}
			if output != "" {
				return writeImported(output, imported)
			}
			for _, path := range slices.Sorted(maps.Keys(imported.Secrets)) {
				fmt.Fprintf(cmd.ErrOrStderr(), "the policy reads a password from %s: put it there, in a file that only weir can read (chmod 600), or use --output, which writes it\n", path)
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), imported.Policy)
			return err
		},
	}
	c.Flags().StringVar(&environment, "env", "", "a file with the environment variables of envoyproxy/ratelimit, as NAME=VALUE lines")
	c.Flags().StringVarP(&output, "output", "o", "", "the policy file to write, which must not exist; default: standard output")
	return c
}

// checkLimits returns what is wrong with limits in the files, beside the policy that was made of them.
func checkLimits(config *envoy.Config, files []envoy.File, imported envoy.Imported) error {
	file, err := policyfile.ParseText("policy.yaml", []byte(imported.Policy))
	if err != nil {
		return err
	}
	o, _ := file.Policy.Listen.Endpoint("rls")
	_, err = config.AddTo(file, files, o.RLS.Store)
	return err
}

// besidePolicy returns the path of rules as a policy names it, and the folder for passwords.
func besidePolicy(rules, output string) (named, folder string, err error) {
	if named, err = filepath.Abs(rules); err != nil {
		return "", "", err
	}
	if folder, err = filepath.Abs(filepath.Dir(output)); err != nil {
		return "", "", err
	}
	if output != "" {
		if relative, err := filepath.Rel(folder, named); err == nil {
			named = relative
		}
	}
	return named, folder, nil
}

// writeImported writes a policy and the passwords that it names. Nothing is overwritten.
func writeImported(output string, imported envoy.Imported) error {
	write := func(path, text string, mode os.FileMode) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return fileError(err)
		}
		if _, err = f.WriteString(text); err != nil {
			_ = f.Close() // the first error says more
			return err
		}
		return f.Close()
	}
	for path, password := range imported.Secrets {
		if err := write(path, password+"\n", 0o600); err != nil {
			return err
		}
	}
	return write(output, imported.Policy, 0o644)
}
