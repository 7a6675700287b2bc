package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	lib "github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirredis"
)

func limitInitCommand(f *redisFlags) *cobra.Command {
	var perClient bool
	c := &cobra.Command{
		Use:   "init NAME KIND FIELD=VALUE...",
		Short: "Make a limit, or change its numbers and keep what was used",
		Long: `Init makes a limit, or changes one: what was used of it stays used. Kinds and fields are those of policy files and scripts, as in

    weir limit init api token_bucket rate=100/s burst=200

A limit is one for all clients together, or, with --per-client, one for each. That does not change: one that is there keeps it without the flag.`,
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
	c.Flags().BoolVar(&perClient, "per-client", false, "each client for itself, and not all together")
	return c
}

// initAnswer is what init says in JSON.
type initAnswer struct {
	Name    string          `json:"name"`
	Type    weirredis.Scope `json:"type"`
	Created bool            `json:"created"`
}

// limitOf reads a kind and its fields.
func limitOf(kind string, words []string) (lib.Limit, error) {
	fields := map[string]any{}
	for _, w := range words {
		name, value, ok := strings.Cut(w, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form FIELD=VALUE", w)
		}
		if fields[name] != nil {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		fields[name] = value
	}
	l, err := policy.ParseLimit(kind, fields)
	if err != nil {
		return nil, err
	}
	if _, ok := l.(lib.Concurrency); ok {
		return nil, errors.New("a concurrency is entered and left, and no command can hold a place: programs do, as docs/redis.md shows")
	}
	return l, outside(weirredis.CheckNamed(l))
}

// scopeOf is whom a limit is for: what was said, or else what it is, or else all.
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
		return scope, fmt.Errorf("the limit is %s, and that does not change: leave --per-client out, or delete it first, with all that was used", there.Scope)
	}
	return there.Scope, nil
}
