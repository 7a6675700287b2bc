package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lib "github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// redisVariable holds the URL of Redis. Arguments can be read by every user of the machine, a
// variable cannot.
const redisVariable = "WEIR_REDIS"

// redisFlags are the flags of all subcommands: where the named limits are, and the format of the
// output.
type redisFlags struct {
	url     string
	prefix  string
	timeout time.Duration
	json    bool
}

func limitCommand() *cobra.Command {
	var f redisFlags
	c := &cobra.Command{
		Use:   "limit",
		Short: "Create, use and change named limits in Redis",
		Long: `A named limit is kept in Redis together with its parameters. Clients in any language share it, and a change applies to
all of them at once. docs/redis.md says how other clients use it.

The URL of Redis comes from --redis or from the variable WEIR_REDIS, and is written as in policy files. Every user of the
machine can read a command's arguments: put a password into the variable, or into a file that the URL names
(?password_file=FILE).`,
		Args: noURLs(noCommand),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.url, "redis", "", "the URL of Redis, like redis://127.0.0.1:6379/0; default: $"+redisVariable)
	flags.StringVar(&f.prefix, "prefix", "weir:", "the prefix of all keys in Redis")
	flags.DurationVar(&f.timeout, "timeout", 3*time.Second, "how long to wait for Redis")
	flags.BoolVar(&f.json, "json", false, "print the result as JSON")
	c.AddCommand(limitInitCommand(&f), limitTakeCommand(&f), limitInspectCommand(&f), limitDeleteCommand(&f), limitListCommand(&f))
	return c
}

// noURLs refuses URLs among the arguments, and never repeats one: it may contain a password.
func noURLs(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if slices.ContainsFunc(given, func(a string) bool { return strings.Contains(a, "://") }) {
			return errors.New("the URL of Redis goes behind --redis, or into $" + redisVariable)
		}
		return args(cmd, given)
	}
}

// nameFirst checks arguments whose first is the name of a limit.
func nameFirst(args cobra.PositionalArgs) cobra.PositionalArgs {
	return noURLs(func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return err
		}
		return withoutPackageNames(weirredis.CheckName(given[0]))
	})
}

// with opens the named limits and calls do with them. Errors name no package of ours, and never
// repeat the URL.
func (f *redisFlags) with(ctx context.Context, do func(ctx context.Context, limits *weirredis.Named) error) error {
	url := f.url
	if url == "" {
		url = os.Getenv(redisVariable)
	}
	if url == "" {
		return &usageError{errors.New("which Redis? Write --redis URL, or put the URL into $" + redisVariable)}
	}
	if f.timeout <= 0 {
		return &usageError{fmt.Errorf("--timeout %v: must be positive, like 3s", f.timeout)}
	}
	store, err := weirrueidis.Open(url, weirredis.Options{Prefix: f.prefix, Timeout: f.timeout})
	if err != nil {
		return &usageError{withoutPackageNames(err)}
	}
	defer store.Close()
	ready, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := store.Ready(ready); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return withoutPackageNames(err)
	}
	if err := do(ctx, weirredis.NewNamed(store.Store)); err != nil {
		return withoutPackageNames(err)
	}
	return nil
}

// withoutPackageNames is an error without the names of our packages.
func withoutPackageNames(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, name := range []string{"weirrueidis: ", "weirredis: ", lib.ErrCharge.Error() + ": ", "weir: "} {
		text = strings.ReplaceAll(text, name, "")
	}
	if text == err.Error() {
		return err
	}
	return &reworded{text, err}
}

// reworded is an error with another text.
type reworded struct {
	text string
	error
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.error }

// noSuchLimit explains ErrNoLimit, and returns any other error unchanged.
func noSuchLimit(err error, name string) error {
	if errors.Is(err, weirredis.ErrNoLimit) {
		return fmt.Errorf("there is no limit %q: create it with weir limit init", name)
	}
	return err
}

// answer writes one line of JSON.
func answer(w io.Writer, v any) error {
	return printJSON(w, v)
}

// printable quotes a string from Redis if it has control characters: others can write to Redis, and
// could send commands to the terminal.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// fieldsInOrder returns the parameters of a limit as name=value, in the order of its algorithm.
func fieldsInOrder(l weirredis.NamedLimit) (all []string) {
	known := policy.Fields(l.Algorithm)
	place := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	for name, value := range l.Parameters {
		all = append(all, name+"="+value)
	}
	slices.SortFunc(all, func(a, b string) int {
		nameA, _, _ := strings.Cut(a, "=")
		nameB, _, _ := strings.Cut(b, "=")
		if d := place(nameA) - place(nameB); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return all
}
