package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirflow/weir/server"
	"github.com/weirflow/weir/server/envoy"
	"github.com/weirflow/weir/server/handover"
	"github.com/weirflow/weir/server/policyfile"
)

func serveCommand() *cobra.Command {
	var config, node, candidate string
	var asEnvoy bool
	var grace time.Duration
	c := &cobra.Command{
		Use:   "serve [FILE]",
		Short: "Run the gateway that a policy file describes: a reverse proxy with limits",
		Long: `Serve runs the gateway and the admin API of a policy file.

Signals:
  SIGINT, SIGTERM   stop: accept no more requests, finish those in flight, exit
  SIGHUP            read the policy file again, as when the file changes
  SIGUSR1           open the access log again
  SIGUSR2           start the program again, possibly a new version, hand it the sockets, and exit once it
                    serves: no request is lost

A policy is applied as a whole. An invalid file is logged, and the running policy stays active.

With --envoy, the policy is made of the environment variables of envoyproxy/ratelimit, in whose place the server then runs. A
warning in the log names each of its variables that has no meaning here. Metrics are at 127.0.0.1, port DEBUG_PORT (default: 6070).

Without a file, serve runs a demo: an upstream of its own, and one limit per client in front of it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if config != "" && config != args[0] {
					return &usageError{fmt.Errorf("two policy files, %s and %s: name one", config, args[0])}
				}
				config = args[0]
			}
			if asEnvoy && config != "" {
				return &usageError{fmt.Errorf("--envoy and the policy file %s: name one", config)}
			}
			sockets, err := handover.Inherit()
			if err != nil {
				return err
			}
			defer sockets.Close()
			program, err := handover.ThisProgram()
			if err != nil {
				return err
			}
			defer endLate(cmd.Context(), grace)()
			reload, reopen, restart := notifyOn(cmd.Context(), syscall.SIGHUP), notifyOn(cmd.Context(), syscall.SIGUSR1), notifyOn(cmd.Context(), syscall.SIGUSR2)
			ballast := newBallast()
			defer runtime.KeepAlive(ballast)
			defer startReturning()()
			log := slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
			// net/http logs unsolicited bytes from upstreams to the default logger
			slog.SetLogLoggerLevel(slog.LevelDebug)
			slog.SetDefault(log)
			text := ""
			if asEnvoy {
				text = policyOfEnvironment(log, os.Environ())
			}
			err = server.Serve(cmd.Context(), server.Options{
				Path:      config,
				Policy:    text,
				Node:      node,
				Candidate: candidate,
				Log:       log,
				Out:       cmd.OutOrStdout(),
				Grace:     grace,
				Reload:    reload,
				Reopen:    reopen,
				Restart:   restart,
				Program:   program,
				Sockets:   sockets,
			})
			var invalid *policyfile.InvalidError
			if errors.As(err, &invalid) {
				cmd.PrintErrln(err)
				return errReported
			}
			return fileError(err)
		},
	}
	c.Flags().StringVar(&config, "config", "", "the policy file, in place of the argument; default: a demo")
	c.Flags().StringVar(&candidate, "candidate", "", "a second policy file on trial: it decides about the gateway's requests in states of its own, without any effect; weir promote makes it active")
	c.Flags().StringVar(&node, "node", "", "which node this is of a store with a URL like cluster://10.0.0.1:6222,10.0.0.2:6222,10.0.0.3:6222")
	c.Flags().BoolVar(&asEnvoy, "envoy", false, "serve as envoyproxy/ratelimit does, by its environment variables")
	c.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long requests in flight may take to finish after a signal to stop")
	return c
}

// policyOfEnvironment makes the policy of the variables of envoyproxy/ratelimit, and logs those that have
// no meaning here.
func policyOfEnvironment(log *slog.Logger, environ []string) string {
	env := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	imported := envoy.Import(env, envoy.Options{})
	for _, n := range imported.Notes {
		log.Warn("environment", "message", n)
	}
	log.Info("environment", "message", "metrics are at /metrics of the admin address, for programs of this machine; DEBUG_PORT sets its port", "admin", imported.Admin)
	return imported.Policy
}

// afterGrace is how long a process may take to end after the grace.
const afterGrace = 2 * time.Second

// endLate ends the process where it still runs after the context's end and the grace: it then waits
// for something that no signal ends, as a disk or the reader of its log that stands still. The
// function that it returns calls that off.
func endLate(ctx context.Context, grace time.Duration) func() {
	off := make(chan struct{})
	context.AfterFunc(ctx, func() {
		select {
		case <-off:
		case <-time.After(grace + afterGrace):
			os.Exit(1)
		}
	})
	return sync.OnceFunc(func() { close(off) })
}

// notifyOn returns a channel that receives each signal of one kind until the context ends. Signals
// that arrive before the receiver is ready count as one.
func notifyOn(ctx context.Context, by os.Signal) <-chan struct{} {
	notify := make(chan struct{}, 1)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, by)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-signals:
				select {
				case notify <- struct{}{}:
				default:
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return notify
}
