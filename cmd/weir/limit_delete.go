package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/weirredis"
)

func limitDeleteCommand(f *redisFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a limit and its state",
		Long: `Delete removes a limit and its state. Clients that use it afterwards get the error that there is no such limit. It exits
with 1 if there is no such limit.`,
		Args: nameFirst(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), func(ctx context.Context, limits *weirredis.Named) error {
				_, there := limits.Inspect(ctx, args[0], "")
				if there != nil && !errors.Is(there, weirredis.ErrNoLimit) {
					return there
				}
				// also removes a name whose limit is already gone
				if err := limits.Delete(ctx, args[0]); err != nil {
					return err
				}
				if there != nil {
					return fmt.Errorf("there is no limit %q", args[0])
				}
				if f.json {
					return answer(cmd.OutOrStdout(), map[string]any{"name": args[0], "deleted": true})
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s deleted\n", args[0])
				return err
			})
		},
	}
}
