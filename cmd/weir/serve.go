package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server"
	"github.com/weirflow/weir/server/handover"
	"github.com/weirflow/weir/server/policyfile"
)

// ballastSize is memory that is asked for and never touched, so it takes none. The collector lets the heap grow by as much as is in use
// before it collects: a gateway has little in use and much garbage, and would collect dozens of times a second. So it does when there are
// some 64 MiB of garbage, at the earliest.
const ballastSize = 64 << 20

func serveCommand() *cobra.Command {
	var config string
	var grace time.Duration
	c := &cobra.Command{
		Use:   "serve [--config FILE]",
		Short: "Run what a policy file describes: a reverse proxy with limits",
		Long: `Serve runs the gateway and the admin pages that a policy file describes, until it is asked to stop (SIGINT, SIGTERM); requests that
are under way then end first. It reads the file again when it changes and on SIGHUP, all or nothing: a file with a mistake is told in
the log, and the old policy goes on. On SIGUSR1 it opens the access log again. On SIGUSR2 it starts the program anew, which may be another
version by then, hands it the sockets, and ends when that one serves: no request is lost.

Without a file it runs a demo: an upstream of its own with one limit for each client in front of it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sockets, err := handover.Inherit()
			if err != nil {
				return err
			}
			defer sockets.Close()
			program, err := handover.ThisProgram()
			if err != nil {
				return err
			}
			reload, reopen, restart := asked(cmd.Context(), syscall.SIGHUP), asked(cmd.Context(), syscall.SIGUSR1), asked(cmd.Context(), syscall.SIGUSR2)
			ballast := make([]byte, ballastSize)
			defer runtime.KeepAlive(ballast)
			log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			slog.SetLogLoggerLevel(slog.LevelDebug) // net/http writes what upstreams send unasked to the log that is no one's
			slog.SetDefault(log)
			err = server.Serve(cmd.Context(), server.Options{
				Path:    config,
				Log:     log,
				Out:     cmd.OutOrStdout(),
				Grace:   grace,
				Reload:  reload,
				Reopen:  reopen,
				Restart: restart,
				Program: program,
				Sockets: sockets,
			})
			var invalid *policyfile.InvalidError
			if errors.As(err, &invalid) {
				cmd.PrintErrln(err)
				return errAnswered
			}
			return readable(err)
		},
	}
	c.Flags().StringVar(&config, "config", "", "the policy file; without one, a demo is served")
	c.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long requests that are under way may take to end after a signal to stop")
	return c
}

// asked tells of a signal. One that comes while another is waiting to be seen is the same. It ends with the context.
func asked(ctx context.Context, by os.Signal) <-chan struct{} {
	told := make(chan struct{}, 1)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, by)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
				select {
				case told <- struct{}{}:
				default:
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return told
}
