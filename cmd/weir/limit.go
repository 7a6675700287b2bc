package main

import (
	"context"
	"encoding/json"
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

// redisVariable is where the URL of the Redis is when it is not among the arguments, which everybody on the machine can read.
const redisVariable = "WEIR_REDIS"

// redisFlags say which named limits are meant, and how to answer.
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
		Short: "Make, use and change limits that are kept in Redis by their names",
		Long: `Named limits are kept in Redis with their numbers: all clients, in any language, obey the same ones, and a change counts at once for all of
them. docs/redis.md says how other clients use them.

The Redis is named by --redis, or by the variable WEIR_REDIS, with a URL as in policy files. Arguments can be read by everybody on the
machine: a password belongs into the variable, or into a file that the URL names (?password_file=FILE).`,
		Args: noURLs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := c.PersistentFlags()
	flags.StringVar(&f.url, "redis", "", "the URL of the Redis, like redis://127.0.0.1:6379/0; $"+redisVariable+", unless said")
	flags.StringVar(&f.prefix, "prefix", "weir:", "what all keys in Redis begin with")
	flags.DurationVar(&f.timeout, "timeout", 3*time.Second, "how long to wait for the Redis")
	flags.BoolVar(&f.json, "json", false, "answer in JSON")
	c.AddCommand(limitInitCommand(&f), limitTakeCommand(&f), limitInspectCommand(&f), limitDeleteCommand(&f), limitListCommand(&f))
	return c
}

// noURLs checks arguments, and repeats none that may have a password.
func noURLs(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if slices.ContainsFunc(given, func(a string) bool { return strings.Contains(a, "://") }) {
			return errors.New("the URL of the Redis goes behind --redis, or into $" + redisVariable)
		}
		return args(cmd, given)
	}
}

// nameFirst checks arguments of which the first is the name of a limit.
func nameFirst(args cobra.PositionalArgs) cobra.PositionalArgs {
	return noURLs(func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return err
		}
		return outside(weirredis.CheckName(given[0]))
	})
}

// with opens the named limits and hands them on. Errors of limits and of the connection are put in the user's terms; none has the URL.
func (f *redisFlags) with(ctx context.Context, do func(ctx context.Context, limits *weirredis.Named) error) error {
	url := f.url
	if url == "" {
		url = os.Getenv(redisVariable)
	}
	if url == "" {
		return &usageError{errors.New("which Redis? Write --redis URL, or put the URL into $" + redisVariable)}
	}
	if f.timeout <= 0 {
		return &usageError{fmt.Errorf("--timeout %v: nothing can be answered in that time", f.timeout)}
	}
	store, err := weirrueidis.Open(url, weirredis.Options{Prefix: f.prefix, Timeout: f.timeout})
	if err != nil {
		return &usageError{outside(err)}
	}
	defer store.Close()
	ready, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := store.Ready(ready); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return outside(err)
	}
	if err := do(ctx, weirredis.NewNamed(store.Store)); err != nil {
		return outside(err)
	}
	return nil
}

// outside is an error without the names of our packages in front.
func outside(err error) error {
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

// reworded is an error that says what it says in other words.
type reworded struct {
	text string
	error
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.error }

// lacking tells that there is no such limit; any other error it returns.
func lacking(err error, name string) error {
	if errors.Is(err, weirredis.ErrNoLimit) {
		return fmt.Errorf("there is no limit %q: weir limit init makes one", name)
	}
	return err
}

// answer writes JSON, in one line.
func answer(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printable is a text from Redis that a terminal may be shown: whoever can write there could otherwise move its cursor.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

// fieldsInOrder are the numbers of a limit as name=value, in the order in which its kind has them.
func fieldsInOrder(l weirredis.NamedLimit) (all []string) {
	known := policy.Fields(l.Kind)
	place := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	for name, value := range l.Numbers {
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
