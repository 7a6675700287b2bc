package weircluster

import (
	"context"
	"time"

	"github.com/weirflow/weir/weirkv"
)

// Open opens a store that all nodes of the cluster share. Closing it does not end the node.
func (n *Node) Open(o weirkv.Options) (*weirkv.Store, error) { return weirkv.New(driver{n}, o) }

// driver is that of weirkv, over a node that may not have started yet. Without a majority, calls fail at once.
type driver struct{ node *Node }

// patience bounds one call: while the nodes elect who leads, the server drops calls without a reply.
const patience = time.Second

// Get implements weirkv.KV.
func (d driver) Get(ctx context.Context, key string) (weirkv.Item, error) {
	r, err := d.node.ready()
	if err != nil {
		return weirkv.Item{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.kv.Get(ctx, key)
}

// CompareAndSwap implements weirkv.KV.
func (d driver) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (uint64, bool, error) {
	r, err := d.node.ready()
	if err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.kv.CompareAndSwap(ctx, key, revision, value, ttl)
}

// Now implements weirkv.Clocked.
func (d driver) Now(ctx context.Context) (time.Time, error) {
	r, err := d.node.ready()
	if err != nil {
		return time.Time{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.kv.Now(ctx)
}

// Close has nothing to release: the node is closed by itself.
func (driver) Close() error { return nil }
