// Package weirrueidis connects weirredis to the client rueidis. Prefer it: it sends the calls of
// many callers in few packets.
package weirrueidis

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/weirredis"
)

// New returns a Store over a client of any kind: standalone, Sentinel or Cluster. New sets
// Options.Cluster for a cluster client. Close does not close the client. Prefer Open with Sentinel:
// rueidis's own client for Sentinel (1.0.79) floods the sentinels while they name a master that is
// dead.
func New(client rueidis.Client, o weirredis.Options) (*weirredis.Store, error) {
	o.Cluster = o.Cluster || client.Mode() == rueidis.ClientModeCluster
	return weirredis.New(Evaler(client), o)
}

// Evaler runs scripts by a client. rueidis repeats by itself only commands that read, and EVALSHA
// is none of them.
func Evaler(client rueidis.Client) weirredis.Evaler { return evaler{client} }

type evaler struct{ client rueidis.Client }

// command returns a call as a command of rueidis.
func (e evaler) command(c weirredis.Call) rueidis.Completed {
	if c.Send {
		return e.client.B().Eval().Script(c.Script.Source).Numkeys(int64(len(c.Keys))).Key(c.Keys...).Arg(c.Args...).Build()
	}
	return e.client.B().Evalsha().Sha1(c.Script.SHA).Numkeys(int64(len(c.Keys))).Key(c.Keys...).Arg(c.Args...).Build()
}

// Eval runs a script.
func (e evaler) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	text, err := e.client.Do(ctx, e.command(c)).ToString()
	return text, said(err)
}

// EvalAll runs several, in one round trip for each node.
func (e evaler) EvalAll(ctx context.Context, calls []weirredis.Call, replies []weirredis.Reply) {
	commands := make([]rueidis.Completed, 0, len(calls))
	for _, c := range calls {
		commands = append(commands, e.command(c))
	}
	for i, r := range e.client.DoMulti(ctx, commands...) {
		replies[i].Text, replies[i].Err = r.ToString()
		replies[i].Err = said(replies[i].Err)
	}
}

// said restores the first word of a server's error, which rueidis removes. Without it the Store
// could not tell that the error is the server's, and that a retry is of no use.
func said(err error) error {
	e, ok := rueidis.IsRedisErr(err)
	if !ok {
		return err
	}
	if code, _, _ := strings.Cut(e.Error(), " "); code != strings.ToUpper(code) {
		return fmt.Errorf("ERR %w", err)
	}
	return err
}
