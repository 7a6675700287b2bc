package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/weirredis"
)

func limitListCommand(f *redisFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List all named limits",
		Long:  `List shows all named limits with their parameters, sorted by name.`,
		Args:  noURLs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd.Context(), func(ctx context.Context, limits *weirredis.Named) error {
				all, err := listed(ctx, limits)
				if err != nil {
					return err
				}
				if f.json {
					answers := []inspectAnswer{}
					for _, l := range all {
						answers = append(answers, inspected(l, ""))
					}
					return answer(cmd.OutOrStdout(), answers)
				}
				t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, l := range all {
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Name, printable(string(l.Scope)), printable(l.Algorithm), printable(strings.Join(fieldsInOrder(l), " ")))
				}
				return t.Flush()
			})
		},
	}
}

// listed returns all limits. It skips names without a limit: a client may have stopped while
// creating it, or deleted it meanwhile.
func listed(ctx context.Context, limits *weirredis.Named) (all []weirredis.NamedLimit, err error) {
	for after := ""; ; {
		names, err := limits.List(ctx, after, pageSize)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			l, err := limits.Inspect(ctx, name, "")
			switch {
			case err == nil:
				all = append(all, l)
			case !errors.Is(err, weirredis.ErrNoLimit):
				return nil, err
			}
		}
		if len(names) < pageSize {
			return all, nil
		}
		after = names[len(names)-1]
	}
}
