package weircluster

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// warnings tells what is amiss between this node and others: once for each of them and minute, to whoever listens.
type warnings struct {
	mu   sync.Mutex
	tell func(text string)
	told map[string]time.Time // by what is amiss and with whom
}

// warnAgain is the time after which the same is told again, and mostWarned how much is told in that time:
// strangers may come from many addresses.
const (
	warnAgain  = time.Minute
	mostWarned = 64
)

// OnWarning sets what is called with what is amiss between this node and others, such as another secret. It
// must not wait, or call the node. The text never has a part of the secret.
func (n *Node) OnWarning(tell func(text string)) {
	n.warnings.mu.Lock()
	defer n.warnings.mu.Unlock()
	n.warnings.tell = tell
}

// warn tells a text, unless the same was told a short time ago.
func (w *warnings) warn(about, text string) {
	w.mu.Lock()
	tell, now := w.tell, time.Now()
	for old, at := range w.told {
		if now.Sub(at) >= warnAgain {
			delete(w.told, old)
		}
	}
	_, again := w.told[about]
	if tell == nil || again || len(w.told) >= mostWarned {
		w.mu.Unlock()
		return
	}
	if w.told == nil {
		w.told = map[string]time.Time{}
	}
	w.told[about] = now
	w.mu.Unlock()
	tell(text)
}

// refused warns if a line of the server's log is about a node with another secret: this node refused it, or it
// refused this one. The line begins with the address of the other end.
func (n *Node) refused(line string) {
	if !strings.Contains(line, errStranger.Error()) && !strings.Contains(line, "remote error: tls: bad certificate") {
		return
	}
	peer, _, _ := strings.Cut(line, " ")
	if !slices.Contains(n.o.Nodes, peer) && !slices.Contains(n.o.Leaf, peer) { // it has connected, from any port
		host, _, err := net.SplitHostPort(peer)
		if err != nil {
			return
		}
		peer = "a node at " + host
	}
	n.warnings.warn("secret "+peer, peer+" has another secret than this node, so that they do not connect: copy the same secret to all nodes")
}

// A list is what a node tells the others: which nodes it was told that there are.
type list struct {
	Node  string   `json:"node"`
	Nodes []string `json:"nodes"`
}

// lists is the subject of lists, and announceEvery how often each node sends its own: those that are not
// connected yet do not get it.
const (
	lists         = "weir.nodes"
	announceEvery = 5 * time.Second
	mostList      = 8 << 10 // bytes
)

// announce tells the other nodes the list of this one.
func (n *Node) announce(conn *nats.Conn) {
	text, err := json.Marshal(list{n.o.Node, n.o.Nodes})
	if err == nil {
		_ = conn.Publish(lists, text) // it comes again
	}
}

// compare warns if another node has another list than this one.
func (n *Node) compare(text []byte) {
	var theirs list
	if len(text) > mostList || json.Unmarshal(text, &theirs) != nil || len(theirs.Nodes) > mostNodes || theirs.Node == n.o.Node {
		return
	}
	for _, address := range append(theirs.Nodes, theirs.Node) {
		if checkAddress(address) != nil {
			return
		}
	}
	if differ := differences(n.o.Nodes, theirs.Nodes); differ != "" {
		n.warnings.warn("list "+theirs.Node, fmt.Sprintf("%s has another list of nodes than this one: %s. Each node counts the majority of its own list: write the same nodes in the URL of all", theirs.Node, differ))
	}
}

// differences says which nodes are in one of two lists alone, "" for none.
func differences(ours, theirs []string) string {
	without := func(a, b []string) string {
		rest := slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
		slices.Sort(rest)
		return strings.Join(rest, ", ")
	}
	var all []string
	if more := without(theirs, ours); more != "" {
		all = append(all, "it lists "+more+", this one does not")
	}
	if less := without(ours, theirs); less != "" {
		all = append(all, "it does not list "+less)
	}
	return strings.Join(all, "; ")
}
