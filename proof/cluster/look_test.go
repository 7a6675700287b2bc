package cluster

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weirflow/weir/proof/servers"
)

// look connects to a cluster without a secret as a leaf node does, until the test ends. The function that it returns
// tells which node leads the states, and how many others have all that it has; "" and 0 while that is not known.
func look(t *testing.T, leaves []string) func() (leader string, current int) {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JsAccDefaultDomain: map[string]string{"$G": ""}}
	remote := &server.RemoteLeafOpts{}
	for _, l := range leaves {
		remote.URLs = append(remote.URLs, &url.URL{Scheme: "nats-leaf", User: url.UserPassword("leaf", "leaf"), Host: l})
	}
	o.LeafNode.Remotes, o.LeafNode.ReconnectInterval = []*server.RemoteLeafOpts{remote}, 100*time.Millisecond
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(servers.Patience) {
		t.Fatal("the leaf node does not start")
	}
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return func() (leader string, current int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stream, err := js.Stream(ctx, "KV_weir")
		if err != nil || stream.CachedInfo().Cluster == nil {
			return "", 0
		}
		for _, r := range stream.CachedInfo().Cluster.Replicas {
			if r.Current && !r.Offline {
				current++
			}
		}
		return stream.CachedInfo().Cluster.Leader, current
	}
}
