package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	lib "github.com/weirflow/weir"
	"github.com/weirflow/weir/weirredis"
)

func limitTakeCommand(f *redisFlags) *cobra.Command {
	var client string
	c := &cobra.Command{
		Use:   "take NAME [COST]",
		Short: "Take from a limit, if it allows the cost",
		Long: `Take charges COST units to a limit if it allows them. It exits with 0 if they were allowed, with 1 if they were refused, with 2 for
wrong usage, and with 3 if there is no decision: Redis is unavailable, or there is no such limit. A cost of 0 charges nothing and shows what remains. default COST: 1.`,
		Args: nameFirst(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			cost := int64(1)
			if len(args) > 1 {
				var err error
				if cost, err = strconv.ParseInt(args[1], 10, 64); err != nil || cost < 0 {
					return &usageError{fmt.Errorf("%q is not a cost: write a whole number of at least 0", args[1])}
				}
			}
			err := f.with(cmd.Context(), func(ctx context.Context, limits *weirredis.Named) error {
				if client != "" {
					switch l, err := limits.Inspect(ctx, args[0], ""); {
					case err != nil:
						return noSuchLimit(err, args[0])
					case l.Scope == weirredis.Overall:
						return &usageError{errors.New("all clients share this limit: leave out --client, or create the limit with --per-client")}
					}
				}
				d, err := limits.Take(ctx, args[0], client, cost)
				if err != nil {
					return needsClient(noSuchLimit(err, args[0]))
				}
				if err := f.decision(cmd, takeAnswer{
					Name: args[0], Client: client, Cost: cost, Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
					RetryMicros: micros(d.RetryAfter), ResetMicros: micros(d.ResetAfter),
				}, d); err != nil {
					return err
				}
				if !d.Allowed {
					return errReported
				}
				return nil
			})
			if err == nil || errors.Is(err, errReported) || errors.Is(err, context.Canceled) || errors.As(err, new(*usageError)) {
				return err
			}
			return &undecidedError{err}
		},
	}
	c.Flags().StringVar(&client, "client", "", "the client, for a limit per client")
	return c
}

// takeAnswer is the JSON output of take. Times are in microseconds; a retry of -1 is never.
type takeAnswer struct {
	Name        string `json:"name"`
	Client      string `json:"client,omitempty"`
	Cost        int64  `json:"cost"`
	Allowed     bool   `json:"allowed"`
	Limit       int64  `json:"limit"`
	Remaining   int64  `json:"remaining"`
	RetryMicros int64  `json:"retry_us"`
	ResetMicros int64  `json:"reset_us"`
}

// decision writes a decision: as text in the format of scripts, or as JSON.
func (f *redisFlags) decision(cmd *cobra.Command, a takeAnswer, d lib.Decision) error {
	out := cmd.OutOrStdout()
	if f.json {
		return answer(out, a)
	}
	words := fmt.Sprintf("allow remaining=%d", d.Remaining)
	if !d.Allowed {
		words = fmt.Sprintf("deny retry=%s remaining=%d", retryText(d.RetryAfter), d.Remaining)
	}
	_, err := fmt.Fprintf(out, "%s limit=%d reset=%v\n", words, d.Limit, d.ResetAfter)
	return err
}

func retryText(d time.Duration) string {
	if d == lib.Never {
		return "never"
	}
	return d.String()
}

// micros converts a duration to the microseconds of stores.
func micros(d time.Duration) int64 {
	if d == lib.Never {
		return -1
	}
	return d.Microseconds()
}

// needsClient explains the error of a limit per client that was called without a client.
func needsClient(err error) error {
	if err != nil && strings.Contains(err.Error(), "WEIRKEY") {
		return &usageError{errors.New("this limit is per client: name the client with --client")}
	}
	return err
}
