package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server/nginx"
)

func importCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "import",
		Short: "Convert the configuration of another rate limiter to a policy file",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(importNginxCommand())
	return c
}

func importNginxCommand() *cobra.Command {
	var o nginx.Options
	c := &cobra.Command{
		Use:   "nginx FILE",
		Short: "Convert an nginx configuration to a policy file",
		Long: `Nginx reads an nginx configuration, with the files that it includes, and prints a policy file that says what it says of limits: limit_req and
limit_conn with their zones, by server and location, in front of what proxy_pass names. What a policy cannot say is listed on the standard
error, each thing with its line and with why.

The limits are exact, where nginx cuts rates to thousandths of a request a second and counts in milliseconds. With --nginx-arithmetic they
decide as nginx does, request by request.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := nginx.Import(nginx.Disk(), args[0], o)
			var wrong *nginx.Error
			switch {
			case errors.As(err, &wrong):
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return errReported
			case err != nil:
				return fileError(err)
			}
			for _, n := range result.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), n)
			}
			_, err = cmd.OutOrStdout().Write(result.Policy)
			return err
		},
	}
	c.Flags().StringVar(&o.Gateway, "gateway", "", "where the gateway is to listen, as HOST:PORT; unless said, where nginx does")
	c.Flags().StringVar(&o.Admin, "admin", "", "where the admin pages are to be, as HOST:PORT; unless said, nowhere")
	c.Flags().BoolVar(&o.Arithmetic, "nginx-arithmetic", false, "decide as nginx does, in thousandths of a request and milliseconds, and not exactly")
	return c
}
