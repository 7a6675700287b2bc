package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	lib "github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/nearest"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirredis"
)

func limitInitCommand(f *redisFlags) *cobra.Command {
	var perClient bool
	c := &cobra.Command{
		Use:   "init NAME ALGORITHM FIELD=VALUE...",
		Short: "Create a limit, or change its parameters and keep what was used",
		Long: `Init creates a limit, or changes the parameters of an existing one: used tokens stay used. Algorithms and fields are those of
policy files and scripts, as in

    weir limit init api token_bucket rate=100/s burst=200

All clients share the limit; with --per-client, each client has its own. This cannot be changed later.`,
		Example: "  weir limit init mail sliding_log limit=3 window=1d --per-client",
		Args:    nameFirst(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := limitOf(args[1], args[2:])
			if err != nil {
				return &usageError{err}
			}
			return f.with(cmd.Context(), func(ctx context.Context, limits *weirredis.Named) error {
				scope, err := scopeOf(ctx, limits, args[0], cmd.Flags().Changed("per-client"), perClient)
				if err != nil {
					return err
				}
				created, err := limits.Init(ctx, args[0], l, scope)
				if err != nil {
					return err
				}
				if f.json {
					return answer(cmd.OutOrStdout(), initAnswer{args[0], scope, created})
				}
				word := "changed"
				if created {
					word = "created"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", args[0], word)
				return err
			})
		},
	}
	c.Flags().BoolVar(&perClient, "per-client", false, "one limit for each client; default: all clients share it")
	return c
}

// initAnswer is the JSON output of init.
type initAnswer struct {
	Name    string          `json:"name"`
	Scope   weirredis.Scope `json:"scope"`
	Created bool            `json:"created"`
}

// limitOf parses an algorithm and its fields.
func limitOf(algorithm string, words []string) (lib.Limit, error) {
	fields := map[string]any{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form FIELD=VALUE", w)
		}
		if fields[name] != nil {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		fields[name] = value
	}
	l, err := policy.ParseLimit(algorithm, fields)
	var wrong *policy.FieldError
	if errors.As(err, &wrong) && wrong.Field == "rate" {
		if text, ok := fields[wrong.Field].(string); ok && nearest.Rate(text) != "" && !strings.Contains(text, "/") {
			return nil, fmt.Errorf("%s=%s is a rate without its duration: write %[1]s=%[3]s", wrong.Field, text, nearest.Rate(text))
		}
	}
	if err != nil {
		return nil, err
	}
	if _, ok := l.(lib.Concurrency); ok {
		return nil, errors.New("concurrency is entered and left by a running program, and a command cannot hold a place: docs/redis.md shows how")
	}
	return l, withoutPackageNames(weirredis.CheckNamed(l))
}

// scopeOf returns the scope of a limit: the flag's, else that of the existing limit, else all
// clients.
func scopeOf(ctx context.Context, limits *weirredis.Named, name string, said, perClient bool) (weirredis.Scope, error) {
	scope := weirredis.Overall
	if perClient {
		scope = weirredis.PerClient
	}
	there, err := limits.Inspect(ctx, name, "")
	switch {
	case errors.Is(err, weirredis.ErrNoLimit):
		return scope, nil
	case err != nil:
		return scope, err
	case said && scope != there.Scope:
		return scope, fmt.Errorf("the limit is %s, and that cannot change: leave out --per-client, or delete the limit first, with its state", there.Scope)
	}
	return there.Scope, nil
}
