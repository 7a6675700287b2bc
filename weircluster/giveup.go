package weircluster

import (
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	lookEvery = time.Second
	leastRoom = 1 << 20 // bytes that can be written where a server is to start again
)

// hasGivenUp reports whether the server has stopped keeping states because it could not write them, as on a full
// disk, and could write them now. It would never begin again by itself: its calls go to the other nodes, and nobody
// notices before one of these is away, too.
func (n *Node) hasGivenUp(s *server.Server) bool {
	if len(n.o.Leaf) > 0 || s.JetStreamEnabled() {
		return false
	}
	if err := tryWriting(n.o.ownFolder()); err != nil {
		n.warnings.warn("folder", "this node keeps no states until it can write to its folder, and does not count for a majority: "+err.Error())
		return false
	}
	n.warnings.warn("again", "this node could not write to its folder and kept no states; it can now, and starts again")
	return true
}

// tryWriting returns why a file cannot be written in a folder; nil if it can.
func tryWriting(folder string) (err error) {
	f, err := os.CreateTemp(folder, "try-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(make([]byte, leastRoom)); err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
