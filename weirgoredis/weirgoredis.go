// Package weirgoredis connects weirredis to the client go-redis, for programs that have one
// already. All others use weirrueidis, which sends the calls of many callers in fewer packets.
package weirgoredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirflow/weir/weirredis"
)

// New returns a Store over a *redis.Client, standalone or with Sentinel, or a *redis.ClusterClient,
// for which New sets Options.Cluster. Close does not close the client. New refuses a client without
// ContextTimeoutEnabled, and a *redis.Ring: see Evaler.
func New(client redis.UniversalClient, o weirredis.Options) (*weirredis.Store, error) {
	e, err := Evaler(client)
	if err != nil {
		return nil, err
	}
	_, cluster := client.(*redis.ClusterClient)
	o.Cluster = o.Cluster || cluster
	return weirredis.New(e, o)
}

// Evaler runs scripts by a client. By default go-redis repeats a command up to three times after a
// lost connection or a timeout, when it may have been carried out already. It sends the commands of
// an Evaler once, whatever MaxRetries says, and again only if the server answered that it did not
// run them (MOVED and ASK of a cluster node), or if there was no connection to send them on. All
// other retries are the Store's, whose calls can be repeated without harm. A hook of the client
// that calls next twice defeats this.
//
// Evaler refuses a client that does not end a call with its context (without
// ContextTimeoutEnabled), and one that spreads keys over servers that do not know each other (a
// *redis.Ring).
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
		return nil, errors.New("weirgoredis: the client would read on for its ReadTimeout when a call's context has ended: write redis.NewClient(&redis.Options{Addr: ..., ContextTimeoutEnabled: true})")
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		return clusterEvaler{evaler{client}, cluster}, nil
	}
	return evaler{client}, nil
}

// A clusterEvaler is a weirredis.Mapper too.
type clusterEvaler struct {
	evaler
	cluster *redis.ClusterClient
}

// Slots asks a node which node serves which slots, and has the client ask too: it does not by itself
// while a master does not answer, and would not find the replica that has replaced it.
func (e clusterEvaler) Slots(ctx context.Context) ([]weirredis.SlotRange, error) {
	e.cluster.ReloadState(ctx)
	cmd := redis.NewClusterSlotsCmd(ctx, "cluster", "slots") // CLUSTER SHARDS needs Redis 7
	if err := e.cluster.Process(ctx, cmd); err != nil {
		return nil, err
	}
	all := cmd.Val()
	var ranges []weirredis.SlotRange
	for _, s := range all {
		if len(s.Nodes) > 0 && s.Start >= 0 && s.End < 1<<14 { // the first node is the master
			ranges = append(ranges, weirredis.SlotRange{First: uint16(s.Start), Last: uint16(s.End), Node: s.Nodes[0].Addr})
		}
	}
	return ranges, nil
}

type evaler struct{ client redis.UniversalClient }

// once is a command that go-redis does not repeat when it may have been carried out.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis not to repeat the command.
func (once) NoRetry() bool { return true }

// command returns a call as a command of go-redis.
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
		_ = pipe.Process(ctx, commands[i]) // it only queues the command
	}
	_, err := pipe.Exec(ctx)
	for i, cmd := range commands {
		replies[i].Text, replies[i].Err = cmd.Text()
		if err != nil && replies[i].Err == nil && cmd.Val() == nil {
			replies[i].Err = err
		}
	}
}
