package cluster

import (
	"errors"
	"sync"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/stores/product"
	"github.com/weirflow/weir/weircluster"
	"github.com/weirflow/weir/weirkv"
)

// A Store is open at a node of this process, which it may share with other stores. It is a product.Adopter.
type Store struct {
	*weirkv.Store
	node *node
}

// node is a node with the stores that use it. The last one to close closes it.
type node struct {
	*weircluster.Node
	url string

	mu     sync.Mutex
	stores int // 0: it is closed, or about to be
}

func open(address string, o weirkv.Options) (*Store, error) {
	wanted, err := options(address)
	if err != nil {
		return nil, err
	}
	n, err := weircluster.Embed(wanted)
	if err != nil {
		return nil, err
	}
	s, err := n.Open(o)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return &Store{s, &node{Node: n, url: address, stores: 1}}, nil
}

// Adopt implements product.Adopter: a store with other settings, but the same URL, uses the same node. It could not
// listen at the node's address otherwise.
func (s *Store) Adopt(def policy.Store) (product.Store, error) {
	if def.URL != s.node.url {
		return nil, nil
	}
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if s.node.stores == 0 {
		return nil, nil
	}
	next, err := s.node.Open(product.KVOptions(def))
	if err != nil {
		return nil, err
	}
	s.node.stores++
	return &Store{next, s.node}, nil
}

// OnWarning implements product.Warner.
func (s *Store) OnWarning(tell func(text string)) { s.node.OnWarning(tell) }

// Close ends the Store, and the node if no other store uses it.
func (s *Store) Close() error {
	err := s.Store.Close()
	s.node.mu.Lock()
	s.node.stores--
	last := s.node.stores == 0
	s.node.mu.Unlock()
	if last {
		err = errors.Join(err, s.node.Close())
	}
	return err
}
