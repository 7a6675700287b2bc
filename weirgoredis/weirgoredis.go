// Package weirgoredis connects weirredis to the client go-redis, for programs that have one already. Who has none takes weirrueidis, which
// sends what many callers ask in fewer packets.
package weirgoredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirflow/weir/weirredis"
)

// New returns a Store over a client, which stays the caller's: a *redis.Client, standalone or with Sentinel, or a *redis.ClusterClient, for which
// Options.Cluster is set. A client without ContextTimeoutEnabled is refused, and so is a *redis.Ring: see Evaler.
func New(client redis.UniversalClient, o weirredis.Options) (*weirredis.Store, error) {
	e, err := Evaler(client)
	if err != nil {
		return nil, err
	}
	_, cluster := client.(*redis.ClusterClient)
	o.Cluster = o.Cluster || cluster
	return weirredis.New(e, o)
}

// Evaler is how scripts are run by a client. By itself go-redis sends a command up to three times more after a lost connection or a timeout,
// when it may have been carried out already. These commands it sends once, whatever MaxRetries says: again only where the server has told that
// it did not run them, as a node of a cluster does by MOVED and ASK, or where there was no connection to send them on. What comes after is up to
// the Store, whose calls can be repeated without harm. A hook of the client's that calls next twice is beyond this.
//
// It refuses a client that would not end a call with its context, as without ContextTimeoutEnabled, and one that spreads keys over servers that
// do not know of each other.
func Evaler(client redis.UniversalClient) (weirredis.Evaler, error) {
	bounded := false
	switch c := client.(type) {
	case *redis.Client:
		bounded = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		bounded = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return nil, errors.New("weirgoredis: a redis.Ring spreads keys over servers that do not know of each other: use a redis.Client or a redis.ClusterClient")
	default:
		return nil, fmt.Errorf("weirgoredis: a %T is not known to send a command once: use a *redis.Client or a *redis.ClusterClient", client)
	}
	if !bounded {
		return nil, errors.New("weirgoredis: the client would read on for its ReadTimeout when a call's context has ended: set ContextTimeoutEnabled in its options")
	}
	return evaler{client}, nil
}

type evaler struct{ client redis.UniversalClient }

// once is a command that go-redis does not send again where it may have been carried out.
type once struct{ *redis.Cmd }

// NoRetry is what go-redis asks before it sends a command again.
func (once) NoRetry() bool { return true }

// command is a call as go-redis sends it.
func command(ctx context.Context, c weirredis.Call) once {
	args := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	if c.Send {
		args = append(args, "eval", c.Script.Source, len(c.Keys))
	} else {
		args = append(args, "evalsha", c.Script.SHA, len(c.Keys))
	}
	for _, key := range c.Keys {
		args = append(args, key)
	}
	for _, arg := range c.Args {
		args = append(args, arg)
	}
	return once{redis.NewCmd(ctx, args...)}
}

// Eval runs a script.
func (e evaler) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	cmd := command(ctx, c)
	if err := e.client.Process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}

// EvalAll runs several, in one round trip for each node.
func (e evaler) EvalAll(ctx context.Context, calls []weirredis.Call, replies []weirredis.Reply) {
	pipe := e.client.Pipeline()
	commands := make([]once, len(calls))
	for i, c := range calls {
		commands[i] = command(ctx, c)
		_ = pipe.Process(ctx, commands[i]) // it is only put down
	}
	_, err := pipe.Exec(ctx)
	for i, cmd := range commands {
		replies[i].Text, replies[i].Err = cmd.Text()
		if err != nil && replies[i].Err == nil && cmd.Val() == nil {
			replies[i].Err = err
		}
	}
}
