package weircluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Options describe a node. All nodes of a cluster have the same Nodes, Bucket, Files and Secret.
type Options struct {
	// Node is the address of this node, as the other nodes reach it. It is one of Nodes.
	Node string

	// Nodes are the addresses, HOST:PORT, of all nodes that keep states: three, or five. One is for tests:
	// nothing is then kept twice.
	Nodes []string

	// Listen is the address to listen on for the other nodes. Default: Node.
	Listen string

	// Leaves is the port that leaf nodes connect to, on the host of Listen. Default: none.
	Leaves int

	// Leaf makes this node a leaf node: one that keeps no states, and needs no address that others reach. It
	// connects to one of these addresses, which are those of nodes with their port Leaves. Node, Nodes,
	// Listen, Leaves and Folder are then empty.
	Leaf []string

	// Secret is known to all nodes and to nobody else: 32 bytes or more, made at random. It is required
	// unless all addresses are loopback addresses.
	Secret []byte

	// Folder keeps which nodes there are and who has voted for whom. It survives restarts. The node
	// makes a folder in it that is named after its address.
	Folder string

	// Files keeps the states in Folder, too. Default: in memory, so that they are lost when a majority of the
	// nodes restarts at the same time.
	Files bool

	// MaxBytes bounds the memory (with Files: the disk) that states take on a node. Beyond it, new keys
	// are errors. Default: 256 MiB.
	MaxBytes int64

	// Bucket names the states: letters, digits, "_" and "-". Default: "weir".
	Bucket string
}

// The bounds of Options.
const (
	leastSecret     = 32
	mostNodes       = 5 // each of them keeps all states
	defaultMaxBytes = 256 << 20
)

// ErrNoSecret is the error of Check where a secret is missing.
var ErrNoSecret = errors.New("weircluster: without a secret, any program that reaches a node could change all limits: make one with openssl rand -hex 32, and give it to all nodes")

// Check returns what is wrong with the options. It does not tell the secret.
func (o Options) Check() error {
	for _, address := range slices.Concat(o.Nodes, o.Leaf) {
		if err := checkAddress(address); err != nil {
			return err
		}
	}
	switch n := len(o.Nodes); {
	case len(o.Leaf) > 0 && (n > 0 || o.Node != "" || o.Listen != "" || o.Leaves != 0 || o.Folder != ""):
		return errors.New("weircluster: a leaf node keeps nothing and listens nowhere: leave out Node, Nodes, Listen, Leaves and Folder")
	case len(o.Leaf) > 0:
		return o.checkSecret(o.Leaf)
	case n == 0:
		return errors.New("weircluster: no nodes: list three addresses like 10.0.0.1:6222")
	case n == 2:
		return errors.New("weircluster: two nodes have no majority without each other: list three")
	case n > mostNodes:
		return fmt.Errorf("weircluster: %d nodes: list three or five, and let the others be leaf nodes", n)
	case o.Node == "" && n > 1:
		return fmt.Errorf("weircluster: which node is this? name one of %s", strings.Join(o.Nodes, ", "))
	case o.Node != "" && !slices.Contains(o.Nodes, o.Node):
		return fmt.Errorf("weircluster: this node, %s, is none of %s", o.Node, strings.Join(o.Nodes, ", "))
	case o.Folder == "":
		return errors.New("weircluster: no folder: name one that survives restarts, such as /var/lib/weir")
	case o.Leaves < 0 || o.Leaves > 65535:
		return fmt.Errorf("weircluster: %d is no port for leaf nodes", o.Leaves)
	case o.MaxBytes < 0:
		return errors.New("weircluster: MaxBytes is below 0: leave it out for 256 MiB")
	}
	for i, address := range o.Nodes {
		if slices.Contains(o.Nodes[:i], address) {
			return fmt.Errorf("weircluster: %s is listed twice", address)
		}
	}
	listens := slices.Clone(o.Nodes)
	if o.Listen != "" {
		if err := checkAddress(o.Listen); err != nil {
			return err
		}
		listens = append(listens, o.Listen)
	}
	return o.checkSecret(listens)
}

func (o Options) checkSecret(addresses []string) error {
	if len(o.Secret) == 0 && !slices.ContainsFunc(addresses, func(a string) bool { return !isLoopback(a) }) {
		return nil
	}
	if len(o.Secret) == 0 {
		return ErrNoSecret
	}
	if len(o.Secret) < leastSecret {
		return fmt.Errorf("weircluster: the secret has %d bytes, and could be guessed: make one of %d or more, with openssl rand -hex 32", len(o.Secret), leastSecret)
	}
	return nil
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, err2 := strconv.ParseUint(port, 10, 16); err != nil || err2 != nil || n == 0 || host == "" || strings.ContainsFunc(host, notOfHosts) {
		return fmt.Errorf("weircluster: %q is no address of a node: write it like 10.0.0.1:6222", address)
	}
	return nil
}

// notOfHosts reports whether a character is in no name or address of a host. These texts come from other nodes too,
// and go into logs.
func notOfHosts(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/?#@,", r) }

func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() || host == "localhost"
}

// withDefaults are the options of a cluster, of which Check has found nothing wrong.
func (o Options) withDefaults() Options {
	if o.Node == "" && len(o.Nodes) == 1 {
		o.Node = o.Nodes[0]
	}
	if o.Listen == "" {
		o.Listen = o.Node
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.Bucket == "" {
		o.Bucket = "weir"
	}
	return o
}
