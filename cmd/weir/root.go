package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/server/policyfile"
)

// Exit codes. Users' scripts rely on them.
const (
	exitDone  = 0
	exitNo    = 1 // the result is negative: invalid, refused, failed
	exitUsage = 2 // wrong usage: flags, arguments, files that are not there

	exitUnavailable = 3 // weir limit take: no decision, as Redis or the limit is not there
)

// usageError is a wrong use of the command: bad flags, bad arguments, a missing file.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// undecidedError is why a command has no decision, which is not a refusal.
type undecidedError struct{ err error }

func (e *undecidedError) Error() string { return e.err.Error() }
func (e *undecidedError) Unwrap() error { return e.err }

// errReported ends a command with exit code 1 after the command itself has printed why.
var errReported = errors.New("")

// run is the whole program. Results go to stdout, messages about them to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A rate limiter: a gateway with limits, and tools to choose and test them",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.AddCommand(serveCommand(), checkCommand(), replayCommand(), testCommand(), importCommand(), limitCommand(),
		diffCommand(), reloadCommand(), promoteCommand(), roomCommand(), banCommand(), grantCommand(), liftCommand(), bansCommand(), keyCommand(), usageCommand(), takeCommand(), explainCommand(), watchCommand(), topCommand(), storeCommand(), benchCommand())
	root.InitDefaultCompletionCmd(args...)
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = func(c *cobra.Command, args []string) error { // cobra shows the help for a shell that it does not know
				if len(args) == 0 {
					return nil
				}
				return fmt.Errorf("there is no completion for %s, only for bash, fish, powershell and zsh", args[0])
			}
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	markUsageErrors(root)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errReported):
		return exitNo
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "weir:", withoutCredentials(err))
		return exitUsage
	case errors.As(err, new(*undecidedError)):
		fmt.Fprintln(stderr, "weir:", withoutCredentials(err))
		return exitUnavailable
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "weir: interrupted")
		return exitNo
	}
	fmt.Fprintln(stderr, "weir:", withoutCredentials(err))
	return exitNo
}

// credentials matches the user and the password of a URL.
var credentials = regexp.MustCompile(`://\S*@`)

// withoutCredentials is the text of an error without the credentials of URLs: a user may have put a
// URL where none belongs.
func withoutCredentials(err error) string {
	return credentials.ReplaceAllString(err.Error(), "://...@")
}

// markUsageErrors makes wrong flags and wrong counts of arguments usage errors, for a command and
// its subcommands.
func markUsageErrors(c *cobra.Command) {
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		fix := "see " + c.CommandPath() + " --help"
		if strings.Contains(err.Error(), "unknown shorthand flag") { // a key or a cost, and no flag
			fix = `write -- before arguments if one of them begins with "-", or ` + fix
		}
		return &usageError{fmt.Errorf("%w: %s", err, fix)}
	})
	c.Args = usageArgs(c.Args)
	for _, below := range c.Commands() {
		markUsageErrors(below)
	}
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if err := args(c, given); err != nil {
			return &usageError{fmt.Errorf("%w: see %s --help", inOurWords(c, given, err), c.CommandPath())}
		}
		return nil
	}
}

// argumentCount matches cobra's messages about a wrong number of arguments.
var argumentCount = regexp.MustCompile(`^(?:accepts|requires) .*\d arg\(s\)|^unknown command`)

// inOurWords replaces cobra's messages about a wrong number of arguments: what is missing, or what is
// too much, by the command's own usage line.
func inOurWords(c *cobra.Command, given []string, err error) error {
	if !argumentCount.MatchString(err.Error()) || c.HasSubCommands() {
		return err
	}
	wanted := strings.Fields(c.Use)[1:]
	for i, name := range wanted {
		if name == "|" || strings.HasPrefix(name, "-") { // a flag is no argument
			break
		}
		if i >= len(given) && !strings.HasPrefix(name, "[") {
			return fmt.Errorf("%s is missing: write %s %s", strings.TrimSuffix(name, "..."), c.CommandPath(), strings.Join(wanted, " "))
		}
	}
	if len(wanted) == 0 {
		return fmt.Errorf("%q is one argument too many: write %s alone", given[0], c.CommandPath())
	}
	return fmt.Errorf("%q is one argument too many: write %s %s", given[len(given)-1], c.CommandPath(), strings.Join(wanted, " "))
}

// noCommand is for the arguments of a command that only has subcommands: none of them is one.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() {
			known = append(known, below.Name())
		}
	}
	if near := nearest.To(args[0], known); near != "" {
		return fmt.Errorf("unknown command %q (did you mean %q?)", args[0], c.CommandPath()+" "+near)
	}
	if c.Flags().Lookup(args[0]) != nil {
		return fmt.Errorf("unknown command %q (did you mean %q?)", args[0], c.CommandPath()+" --"+args[0])
	}
	return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
}

// version is what the binary was built from: the version of a release, or the commit, and with
// which Go for which machine.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of an unknown build"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	text := cmp.Or(info.Main.Version, "(devel)")
	if revision := settings["vcs.revision"]; revision != "" && !strings.Contains(text, revision[:min(len(revision), 12)]) {
		text += " " + revision[:min(len(revision), 12)]
		if date, _, ok := strings.Cut(settings["vcs.time"], "T"); ok {
			text += " of " + date
		}
		if settings["vcs.modified"] == "true" {
			text += ", with changes"
		}
	}
	return fmt.Sprintf("%s, %s %s/%s", text, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}

// fileError makes an error about a missing or unreadable file a usage error.
func fileError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return &usageError{fmt.Errorf("%s: %w", path.Path, path.Err)}
	}
	return err
}

// opened returns what open returns, unless the context ends before: to open a named pipe waits for somebody who
// writes into it. Then open goes on, and what it opens is left to the end of the process.
func opened[T any](ctx context.Context, open func() (T, error)) (T, error) {
	type result struct {
		of  T
		err error
	}
	done := make(chan result, 1)
	go func() {
		of, err := open()
		done <- result{of, err}
	}()
	select {
	case r := <-done:
		return r.of, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// loadPolicy loads a policy for a command that needs a valid one. It prints the problems to stderr.
func loadPolicy(ctx context.Context, path string, stderr io.Writer) (*policyfile.File, error) {
	file, err := opened(ctx, func() (*policyfile.File, error) { return policyfile.Load(path) })
	var invalid *policyfile.InvalidError
	switch {
	case errors.As(err, &invalid):
		fmt.Fprintln(stderr, err)
		return nil, errReported
	case err != nil:
		return nil, fileError(err)
	}
	for _, p := range file.Problems {
		fmt.Fprintln(stderr, p)
	}
	return file, nil
}
