package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/weirredis"
)

func limitInspectCommand(f *redisFlags) *cobra.Command {
	var client string
	var clients bool
	c := &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show a limit and its current state",
		Long: `Inspect shows the parameters of a limit and how much of it is used. For a limit per client, --client names the client.
--clients lists only the names of the clients that are not back at full capacity.`,
		Args: nameFirst(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if clients && client != "" {
				return &usageError{fmt.Errorf("--client and --clients exclude each other: see %s --help", cmd.CommandPath())}
			}
			return f.with(cmd.Context(), func(ctx context.Context, limits *weirredis.Named) error {
				l, err := limits.Inspect(ctx, args[0], client)
				switch {
				case err != nil:
					return noSuchLimit(err, args[0])
				case clients:
					return f.clients(ctx, cmd.OutOrStdout(), limits, args[0])
				case f.json:
					return answer(cmd.OutOrStdout(), inspected(l, client))
				}
				return showLimit(cmd.OutOrStdout(), inspected(l, client), l)
			})
		},
	}
	c.Flags().StringVar(&client, "client", "", "the client, for a limit per client")
	c.Flags().BoolVar(&clients, "clients", false, "list the clients of a limit per client that are not at full capacity")
	return c
}

// inspectAnswer is the JSON output of inspect, and of list for each limit.
type inspectAnswer struct {
	Name        string            `json:"name"`
	Scope       weirredis.Scope   `json:"scope"`
	Algorithm   string            `json:"algorithm"`
	Parameters  map[string]string `json:"parameters"`
	Limit       int64             `json:"limit"`
	Clients     *int64            `json:"clients,omitempty"`
	Client      string            `json:"client,omitempty"`
	Used        *int64            `json:"used,omitempty"`
	Remaining   *int64            `json:"remaining,omitempty"`
	ResetMicros *int64            `json:"reset_us,omitempty"`
}

// inspected fills an inspectAnswer. Without a client, a limit per client has no single state to
// show.
func inspected(l weirredis.NamedLimit, client string) inspectAnswer {
	a := inspectAnswer{Name: l.Name, Scope: l.Scope, Algorithm: l.Algorithm, Parameters: l.Parameters, Limit: l.Limit}
	if l.Scope == weirredis.PerClient {
		a.Clients, a.Client = &l.Clients, client
		if client == "" {
			return a
		}
	}
	reset := l.ResetAfter.Microseconds()
	a.Used, a.Remaining, a.ResetMicros = &l.Used, &l.Remaining, &reset
	return a
}

// showLimit writes a limit as text, one line per field.
func showLimit(w io.Writer, a inspectAnswer, l weirredis.NamedLimit) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	line("name", a.Name)
	line("scope", printable(string(a.Scope)))
	line("algorithm", printable(a.Algorithm))
	for _, field := range fieldsInOrder(l) {
		line("", printable(field))
	}
	line("limit", a.Limit)
	if a.Clients != nil {
		line("clients", *a.Clients)
	}
	if a.Client != "" {
		line("client", printable(a.Client))
	}
	if a.Used != nil {
		line("used", *a.Used)
		line("remaining", *a.Remaining)
		line("reset", l.ResetAfter)
	}
	return t.Flush()
}

// pageSize is how many names one call asks for.
const pageSize = 1000

// clients writes the names of clients, one per line. A client that comes or goes meanwhile may be
// listed twice, or not at all.
func (f *redisFlags) clients(ctx context.Context, w io.Writer, limits *weirredis.Named, name string) error {
	all := []string{}
	for offset := 0; ; offset += pageSize {
		some, err := limits.Clients(ctx, name, offset, pageSize)
		if err != nil {
			return err
		}
		if f.json {
			all = append(all, some...)
		} else {
			for _, c := range some {
				fmt.Fprintln(w, printable(c))
			}
		}
		if len(some) < pageSize {
			break
		}
	}
	if f.json {
		return answer(w, all)
	}
	return nil
}
