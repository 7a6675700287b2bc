// Package weirmemcached keeps limits in memcached, by gets and cas through the client gomemcache. See
// package weirkv for what such a store guarantees.
//
// memcached loses everything when it restarts, and evicts keys when its memory is full: each lost key may
// admit its capacity once more. Start it with -M, so that it refuses new keys instead, and give it a memory of
// its own. It tells its time in whole seconds only, so the clock is that of the nodes: with clocks that differ
// by at most s, a bucket admits at most Burst + Rate*(D+s) in a time D.
//
// With several servers, each key is on one of them, by a hash. A server that does not respond is not replaced
// by another: that would start its keys over.
package weirmemcached

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/weirflow/weir/weirkv"
)

// KV is the driver for weirkv over a client. The client has no contexts: its Timeout, by default 500 ms, ends
// its calls.
type KV struct{ client *memcache.Client }

// NewKV returns the driver over a client.
func NewKV(client *memcache.Client) *KV { return &KV{client} }

// Get implements weirkv.KV.
func (k *KV) Get(ctx context.Context, key string) (weirkv.Item, error) {
	if err := ctx.Err(); err != nil {
		return weirkv.Item{}, err
	}
	item, err := k.client.Get(key)
	switch {
	case errors.Is(err, memcache.ErrCacheMiss):
		return weirkv.Item{}, nil
	case err != nil:
		return weirkv.Item{}, err
	}
	return weirkv.Item{Value: item.Value, Revision: item.CasID}, nil
}

// CompareAndSwap implements weirkv.KV. memcached does not tell the new revision.
func (k *KV) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (next uint64, swapped bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	item := &memcache.Item{Key: key, Value: value, CasID: revision, Expiration: expiration(ttl, time.Now())}
	write := k.client.CompareAndSwap
	if revision == 0 {
		write = k.client.Add
	}
	err = write(item)
	if errors.Is(err, memcache.ErrCASConflict) || errors.Is(err, memcache.ErrNotStored) || errors.Is(err, memcache.ErrCacheMiss) {
		return 0, false, nil
	}
	return 0, err == nil, err
}

// Close closes the idle connections of the client.
func (k *KV) Close() error { return k.client.Close() }

// expiration is a time to live as memcached reads it: seconds up to 30 days, a time for longer, and 0 for
// never. A server counts seconds by a coarse clock, so there is one more.
func expiration(ttl time.Duration, now time.Time) int32 {
	const longest = 30 * 24 * time.Hour
	seconds := int64(ttl/time.Second) + 2
	if ttl > longest-2*time.Second {
		if seconds += now.Unix(); seconds > math.MaxInt32 {
			return 0
		}
	}
	return int32(seconds)
}

// A Store is a weir.Store in memcached.
type Store struct {
	*weirkv.Store
	kv *KV
}

// Close ends the Store and closes its connections.
func (s *Store) Close() error {
	err := s.Store.Close()
	return errors.Join(err, s.kv.Close())
}

// Open opens a Store at a URL such as memcached://10.0.0.1:11211,10.0.0.2:11211, or memcached:///run/memcached.sock
// for a socket. It connects with the first call. The order of servers does not matter; all nodes need the same.
func Open(address string, o weirkv.Options) (*Store, error) {
	servers, err := ParseURL(address)
	if err != nil {
		return nil, err
	}
	list := new(memcache.ServerList)
	if err := list.SetServers(servers...); err != nil {
		return nil, fmt.Errorf("weirmemcached: %w", err)
	}
	client := memcache.NewFromSelector(list)
	client.MaxIdleConns = 64
	kv := NewKV(client)
	s, err := weirkv.New(kv, o)
	if err != nil {
		return nil, err
	}
	return &Store{s, kv}, nil
}

// errURL says how a URL is written.
var errURL = errors.New("weirmemcached: write the URL like memcached://10.0.0.1:11211,10.0.0.2:11211, without user, path and parameters")

// ParseURL returns the servers of a URL.
func ParseURL(address string) (servers []string, err error) {
	rest, ok := strings.CutPrefix(address, "memcached://")
	if !ok {
		return nil, errURL
	}
	if strings.HasPrefix(rest, "/") {
		return []string{rest}, nil
	}
	rest = strings.TrimSuffix(rest, "/")
	for _, server := range strings.Split(rest, ",") {
		if u, err := url.Parse("memcached://" + server); err != nil || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Hostname() == "" {
			return nil, errURL
		}
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(strings.Trim(server, "[]"), "11211")
		}
		servers = append(servers, server)
	}
	slices.Sort(servers) // which server has a key depends on their order
	return slices.Compact(servers), nil
}
