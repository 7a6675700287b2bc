package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server"
)

func roomCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "room",
		Short: "Plan a waiting room",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(roomPlanCommand())
	return c
}

func roomPlanCommand() *cobra.Command {
	var visitors int64
	var rate string
	c := &cobra.Command{
		Use:   "plan",
		Short: "Compute how long a queue of visitors takes, and how many polls, connections and bytes",
		Long: `Plan computes what a waiting room takes in which all visitors wait at first and are admitted at a rate: how long the last
one waits, how often they poll, and how many connections and bytes that is. The sizes are those of the built-in page and
of the responses to polls as this program sends them, and some 700 bytes for each request.`,
		Example: "  weir room plan --visitors 50000 --rate 20/s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := server.PlanRoom(visitors, rate)
			if err != nil {
				return &usageError{err}
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintf(w, "the last visitor waits\t%v\n", p.Wait.Round(time.Second))
			fmt.Fprintf(w, "polls\t%.0f per second while all wait, %.0f in all\n", p.PeakPolls, p.Polls)
			fmt.Fprintf(w, "connections\tup to %d at once: a browser keeps one open between two polls\n", p.Visitors)
			fmt.Fprintf(w, "bytes of the page\t%d\n", p.PageBytes)
			fmt.Fprintf(w, "bytes of a poll\t%d, with its request\n", p.PollBytes)
			fmt.Fprintf(w, "traffic\t%s per second while all wait, %s in all\n", bytesText(p.Peak), bytesText(p.Bytes))
			return w.Flush()
		},
	}
	c.Flags().Int64Var(&visitors, "visitors", 0, "how many visitors wait at first")
	c.Flags().StringVar(&rate, "rate", "", "the rate at which they are admitted, like 20/s: admit of the waiting room")
	return c
}

// bytesText writes a number of bytes in a unit that is easy to read.
func bytesText(n float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.4g TB", n)
}
