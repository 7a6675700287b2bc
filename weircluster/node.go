package weircluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/weirnats"
)

// A Node is an embedded server, and its connections to the other nodes. It is safe for concurrent use.
type Node struct {
	o     Options
	ctx   context.Context // until Close
	end   context.CancelFunc
	ended chan struct{} // closed when nothing runs any more

	running atomic.Pointer[running]
	alone   atomic.Pointer[errAlone] // nil while a majority is connected
	failed  atomic.Pointer[string]   // why the server does not start, or its latest error

	warnings warnings
}

// running is a server that has started, and this process's connection to it.
type running struct {
	server *server.Server
	conn   *nats.Conn
	kv     *weirnats.KV
}

// startAgain is the pause before the next attempt to start: the address may still be in use by a process that
// is about to end.
const startAgain = 250 * time.Millisecond

// Embed starts a node. It returns at once, with an error only if the options are wrong: the node starts in the
// background, and again if its address is in use. Close it after all stores that it has opened.
func Embed(o Options) (*Node, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	so, err := serverOptions(o)
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, ended: make(chan struct{})}
	n.ctx, n.end = context.WithCancel(context.Background())
	go n.run(so)
	return n, nil
}

// serverOptions are those of the embedded server. This process reaches it in memory. The server connects to no
// other node unless it has a port for clients: that is a loopback port that nobody knows the token of.
func serverOptions(o Options) (*server.Options, error) {
	secured, err := identity(o.Secret)
	if err != nil {
		return nil, err
	}
	so := &server.Options{ServerName: o.Node, Host: "127.0.0.1", Port: server.RANDOM_PORT, Authorization: rand.Text(), NoSigs: true,
		JsAccDefaultDomain: map[string]string{"$G": ""}} // otherwise, calls about JetStream do not pass from leaf nodes
	if len(o.Leaf) > 0 {
		so.LeafNode.ReconnectInterval = time.Second
		remote := &server.RemoteLeafOpts{TLS: secured != nil, TLSConfig: secured, TLSTimeout: handshake.Seconds()}
		for _, address := range o.Leaf {
			remote.URLs = append(remote.URLs, &url.URL{Scheme: "nats-leaf", User: url.UserPassword(leafUser, leafUser), Host: address})
		}
		so.LeafNode.Remotes = []*server.RemoteLeafOpts{remote}
		return so, nil
	}
	so.JetStream = true
	so.StoreDir = o.ownFolder()
	so.JetStreamMaxMemory, so.JetStreamMaxStore = o.MaxBytes, max(o.MaxBytes, 64<<20)
	host, port := split(o.Listen)
	if len(o.Nodes) > 1 {
		so.Cluster = server.ClusterOpts{
			Name: "weir", Host: host, Port: port, Advertise: o.Node, TLSConfig: secured, TLSTimeout: handshake.Seconds(),
			PingInterval: time.Second, MaxPingsOut: 3, WriteDeadline: 4 * time.Second, // a node that is cut off is noticed in a few seconds
		}
		for _, address := range o.Nodes { // with its own: a server counts them to know what a majority is
			so.Routes = append(so.Routes, &url.URL{Scheme: "nats-route", Host: address})
		}
	}
	if o.Leaves > 0 {
		so.LeafNode.Host, so.LeafNode.Port = host, o.Leaves
		so.LeafNode.TLSConfig, so.LeafNode.TLSTimeout = secured, handshake.Seconds()
		so.LeafNode.Username, so.LeafNode.Password = leafUser, leafUser
	}
	return so, nil
}

// leafUser is the user of leaf nodes, and no secret: TLS tells who knows that. Without a user of their own, they
// would need the token of clients.
const leafUser = "leaf"

// handshake is how long a TLS handshake between two nodes may take.
const handshake = 5 * time.Second

// ownFolder is where the server keeps its states: several nodes of one machine may have the same Folder.
func (o Options) ownFolder() string { return filepath.Join(o.Folder, strings.Map(plainRune, o.Node)) }

// plainRune makes the name of a folder of an address.
func plainRune(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' {
		return c
	}
	return '_'
}

func split(address string) (host string, port int) {
	host, text, _ := net.SplitHostPort(address)
	port, _ = strconv.Atoi(text)
	return host, port
}

// run starts the server, and ends it with the node.
func (n *Node) run(so *server.Options) {
	defer close(n.ended)
	for {
		r, err := n.start(so)
		if err == nil {
			n.failed.Store(nil)
			again := n.watch(r)
			n.running.Store(nil)
			r.conn.Close()
			r.server.Shutdown()
			r.server.WaitForShutdown()
			if again {
				continue
			}
			return
		}
		why := err.Error()
		n.failed.Store(&why)
		if pause.For(n.ctx, startAgain) != nil {
			return
		}
	}
}

// watch notes whether the node is connected to a majority, and tells the others its list of nodes, until the node
// ends. It reports true if the server has to start again.
func (n *Node) watch(r *running) (again bool) {
	var announced, looked time.Time
	for {
		if now := time.Now(); now.Sub(looked) >= lookEvery {
			looked = now
			if n.hasGivenUp(r.server) {
				return true
			}
		}
		if now := time.Now(); len(n.o.Nodes) > 1 && now.Sub(announced) >= announceEvery {
			announced = now
			n.announce(r.conn)
			n.replicate(r)
		}
		var alone *errAlone
		if missing := n.missing(r.server); len(missing) > 0 {
			alone = &errAlone{missing: missing}
			if latest := n.failed.Load(); latest != nil {
				alone.latest = *latest
			}
		}
		n.alone.Store(alone)
		n.running.Store(r)
		if pause.For(n.ctx, watchEvery) != nil {
			return false
		}
	}
}

// replicate has all nodes keep each state, if there were fewer when the first ones were made.
func (n *Node) replicate(r *running) {
	if len(n.connected(r.server))+1 < len(n.o.Nodes) {
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, patience)
	defer cancel()
	_ = r.kv.Replicate(ctx) // it is tried again
}

// watchEvery is the time between two looks at which nodes are connected.
const watchEvery = 100 * time.Millisecond

// start starts the server once.
func (n *Node) start(so *server.Options) (*running, error) {
	// the server would log that an address is in use, and go on without
	for _, port := range []int{so.Cluster.Port, so.LeafNode.Port} {
		if port == 0 {
			continue
		}
		host, _ := split(n.o.Listen)
		l, err := (&net.ListenConfig{}).Listen(n.ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return nil, fmt.Errorf("weircluster: the node cannot listen: %w", err)
		}
		_ = l.Close()
	}
	s, err := server.NewServer(so.Clone())
	if err != nil {
		return nil, fmt.Errorf("weircluster: %w", err)
	}
	log := &journal{node: n}
	s.SetLoggerV2(log, false, false, false)
	s.Start()
	end := func(err error) (*running, error) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, err
	}
	if fatal := log.fatal.Load(); fatal != nil {
		return end(fmt.Errorf("weircluster: the node does not start: %s", *fatal))
	}
	conn, err := nats.Connect("", nats.InProcessServer(s), nats.Token(so.Authorization), nats.Name("weir"), nats.MaxReconnects(-1), nats.ReconnectWait(startAgain), nats.ReconnectBufSize(-1), nats.Timeout(handshake))
	if err != nil {
		return end(fmt.Errorf("weircluster: %w", err))
	}
	kv, err := weirnats.NewKV(conn, weirnats.Bucket{Name: n.o.Bucket, Replicas: n.o.replicas(), Memory: !n.o.Files})
	if err != nil {
		conn.Close()
		return end(err)
	}
	if len(n.o.Nodes) > 1 {
		if _, err := conn.Subscribe(lists, func(m *nats.Msg) { n.compare(m.Data) }); err != nil {
			conn.Close()
			return end(fmt.Errorf("weircluster: %w", err))
		}
	}
	return &running{s, conn, kv}, nil
}

// replicas is how many nodes keep each state: all of them, so that any majority of the nodes has a majority of the
// replicas. A leaf node does not know, and finds the states made.
func (o Options) replicas() int { return max(len(o.Nodes), 1) }

// Close leaves the cluster, and waits until nothing runs any more.
func (n *Node) Close() error {
	n.end()
	<-n.ended
	return nil
}

// Options returns those that the node was started with.
func (n *Node) Options() Options { return n.o }

// Connected returns the nodes that this one is connected to, in order.
func (n *Node) Connected() []string {
	r := n.running.Load()
	if r == nil {
		return nil
	}
	return n.connected(r.server)
}

func (n *Node) connected(s *server.Server) (all []string) {
	if len(n.o.Leaf) > 0 {
		if leaves, err := s.Leafz(nil); err == nil {
			for _, l := range leaves.Leafs {
				all = append(all, l.Name)
			}
		}
	} else if routes, err := s.Routez(nil); err == nil {
		for _, route := range routes.Routes {
			if route.RemoteName != n.o.Node {
				all = append(all, route.RemoteName)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// missing returns the nodes without which there is no majority; none if there is one.
func (n *Node) missing(s *server.Server) []string {
	connected := n.connected(s)
	switch {
	case len(n.o.Leaf) > 0 && len(connected) == 0:
		return n.o.Leaf
	case len(n.o.Leaf) > 0, (len(connected)+1)*2 > len(n.o.Nodes):
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.o.Nodes), func(a string) bool { return a == n.o.Node || slices.Contains(connected, a) })
}

// errAlone is the error of calls while the node is not connected to a majority.
type errAlone struct {
	missing []string
	latest  string // why, if it is known
}

// Error implements error.
func (e *errAlone) Error() string {
	why := ""
	if e.latest != "" {
		why = " (" + e.latest + ")"
	}
	return "weircluster: no majority of the nodes is connected: this one misses " + strings.Join(e.missing, ", ") + why
}

// ready returns the server for a call, or why the call would fail.
func (n *Node) ready() (*running, error) {
	if r := n.running.Load(); r != nil {
		if alone := n.alone.Load(); alone != nil {
			return nil, alone
		}
		return r, nil
	}
	if failed := n.failed.Load(); failed != nil {
		return nil, errors.New(*failed)
	}
	return nil, errStarting
}

// errStarting is the error of calls before the node has started, and after it was closed.
var errStarting = errors.New("weircluster: the node is not running yet, or no longer")

// A journal is the log of the embedded server. Its latest error tells why a node is alone.
type journal struct {
	node  *Node
	fatal atomic.Pointer[string]
	once  sync.Once
}

func (j *journal) Noticef(string, ...any) {}
func (j *journal) Warnf(string, ...any)   {}
func (j *journal) Debugf(string, ...any)  {}
func (j *journal) Tracef(string, ...any)  {}

func (j *journal) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	j.node.failed.Store(&text)
	j.node.refused(text)
}

func (j *journal) Fatalf(format string, v ...any) {
	j.once.Do(func() {
		text := fmt.Sprintf(format, v...)
		j.fatal.Store(&text)
	})
}
