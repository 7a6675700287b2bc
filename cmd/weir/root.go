package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server/policyfile"
)

// Exit codes. They are part of what scripts rely on.
const (
	exitDone  = 0
	exitNo    = 1 // the answer is no: invalid, refused, failed
	exitUsage = 2 // wrong usage: flags, arguments, files that are not there
)

// usageError is a wrong use of the command.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// errAnswered means that the answer is no and has been given already.
var errAnswered = errors.New("")

// run is the whole program. What it is asked for goes to stdout, words about it to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "A rate limiter: a gateway that keeps limits, and tools for those who choose them",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.AddCommand(serveCommand(), checkCommand(), replayCommand(), testCommand(), importCommand(), limitCommand())
	usages(root)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errAnswered):
		return exitNo
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "weir:", discreet(err))
		return exitUsage
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "weir: interrupted")
		return exitNo
	}
	fmt.Fprintln(stderr, "weir:", discreet(err))
	return exitNo
}

// credentials are what a URL has before its host.
var credentials = regexp.MustCompile(`://\S*@`)

// discreet is what an error says, without the user and the password of a URL that somebody wrote where none belongs.
func discreet(err error) string { return credentials.ReplaceAllString(err.Error(), "://...@") }

// usages makes wrong flags and wrong numbers of arguments of a command, and of those below it, usage errors.
func usages(c *cobra.Command) {
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w: see %s --help", err, c.CommandPath())}
	})
	c.Args = usageArgs(c.Args)
	for _, below := range c.Commands() {
		usages(below)
	}
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if err := args(c, given); err != nil {
			return &usageError{fmt.Errorf("%w: see %s --help", err, c.CommandPath())}
		}
		return nil
	}
}

// version is what the binary was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return info.Main.Version
}

// readable turns an error about a file that is not there into a usage error.
func readable(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return &usageError{fmt.Errorf("%s: %w", path.Path, path.Err)}
	}
	return err
}

// loadPolicy loads a policy for a command that needs a valid one. What is wrong with it is told on stderr.
func loadPolicy(path string, stderr io.Writer) (*policyfile.File, error) {
	file, err := policyfile.Load(path)
	var invalid *policyfile.InvalidError
	switch {
	case errors.As(err, &invalid):
		fmt.Fprintln(stderr, err)
		return nil, errAnswered
	case err != nil:
		return nil, readable(err)
	}
	for _, p := range file.Problems {
		fmt.Fprintln(stderr, p)
	}
	return file, nil
}
