// Package weircluster shares limits between nodes without a server: each node embeds a NATS server with
// JetStream, the nodes connect to each other, and each of them keeps all states.
//
//	nodes := []string{"10.0.0.1:6222", "10.0.0.2:6222", "10.0.0.3:6222"}
//	node, err := weircluster.Embed(weircluster.Options{Node: nodes[0], Nodes: nodes, Secret: secret, Folder: "/var/lib/weir"})
//	store, err := node.Open(weirkv.Options{})
//	leased, err := lease.New(store, lease.Options{})
//
// A write counts once a majority of the nodes has it. While a node is not connected to a majority, its calls
// fail: put package failover around the store, which then decides by a share of each limit.
//
// Connections between nodes are encrypted, and both ends prove that they know the secret: the key of their
// certificates is derived from it.
//
// It is a module of its own because the server is large: it adds about 12 MB to a program. Programs that have a NATS server
// use package weirnats.
package weircluster
