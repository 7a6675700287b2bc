// Package weiretcd keeps limits in etcd, by transactions that compare a key's revision. See package weirkv
// for what such a store guarantees.
//
// etcd writes each decision to the disks of a majority, so a decision takes as long as that, and nothing is
// lost while a majority has its disks. It tells no time, so the clock is that of the nodes: with clocks that
// differ by at most s, a bucket admits at most Burst + Rate*(D+s) in a time D.
//
// etcd keeps old revisions until they are compacted. Start it with --auto-compaction-mode=revision and
// --auto-compaction-retention=1000, or its disk fills with the past states of busy keys.
package weiretcd

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/weirflow/weir/weirkv"
)

// KV is the driver for weirkv over a client.
type KV struct {
	client *clientv3.Client

	mu     sync.Mutex
	leases map[time.Duration]lease
}

// A lease ends the keys that were written with it. Keys share leases: one for each write would be a round
// trip and an object of etcd more.
type lease struct {
	id    clientv3.LeaseID
	until time.Time // new keys get another one from then on
}

// NewKV returns the driver over a client.
func NewKV(client *clientv3.Client) *KV {
	return &KV{client: client, leases: map[time.Duration]lease{}}
}

// Get implements weirkv.KV. It reads what a majority has.
func (k *KV) Get(ctx context.Context, key string) (weirkv.Item, error) {
	found, err := k.client.Get(ctx, key)
	if err != nil || len(found.Kvs) == 0 {
		return weirkv.Item{}, err
	}
	return weirkv.Item{Value: found.Kvs[0].Value, Revision: uint64(found.Kvs[0].ModRevision)}, nil
}

// CompareAndSwap implements weirkv.KV.
func (k *KV) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (next uint64, swapped bool, err error) {
	class, id, err := k.lease(ctx, ttl)
	if err != nil {
		return 0, false, err
	}
	done, err := k.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", int64(revision))).
		Then(clientv3.OpPut(key, string(value), clientv3.WithLease(id))).
		Commit()
	if err != nil {
		k.drop(class, id) // it may have ended
		return 0, false, err
	}
	return uint64(done.Header.Revision), done.Succeeded, nil
}

// shortest is the shortest time for which keys of a lease live.
const shortest = time.Minute

// lease returns a lease under which a key lives for at least ttl, and at most four times that or four times the
// shortest time. There is one for each power of 2.
func (k *KV) lease(ctx context.Context, ttl time.Duration) (class time.Duration, id clientv3.LeaseID, err error) {
	for class = shortest; class < ttl && class < 1<<61; class *= 2 {
	}
	k.mu.Lock()
	l := k.leases[class]
	k.mu.Unlock()
	if time.Now().Before(l.until) {
		return class, l.id, nil
	}
	began := time.Now()
	granted, err := k.client.Grant(ctx, 2*int64(class/time.Second)+2)
	if err != nil {
		return class, 0, err
	}
	k.mu.Lock()
	k.leases[class] = lease{granted.ID, began.Add(class)}
	k.mu.Unlock()
	return class, granted.ID, nil
}

// drop forgets a lease.
func (k *KV) drop(class time.Duration, id clientv3.LeaseID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leases[class].id == id {
		delete(k.leases, class)
	}
}

// Close closes the client. The leases stay, and with them the keys.
func (k *KV) Close() error { return k.client.Close() }

// A Store is a weir.Store in etcd.
type Store struct {
	*weirkv.Store
	kv *KV
}

// Close ends the Store and closes its client.
func (s *Store) Close() error {
	err := s.Store.Close()
	return errors.Join(err, s.kv.Close())
}

// Open opens a Store at a URL such as etcd://user:password@10.0.0.1:2379,10.0.0.2:2379, or etcds:// for TLS. It
// connects in the background, and logs in with the first call.
func Open(address string, o weirkv.Options) (*Store, error) {
	config, err := ParseURL(address)
	if err != nil {
		return nil, err
	}
	var login lateLogin
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(login.intercept))
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	login.begun.Store(true)
	kv := NewKV(client)
	s, err := weirkv.New(kv, o)
	if err != nil {
		return nil, errors.Join(err, kv.Close())
	}
	return &Store{s, kv}, nil
}

// A lateLogin makes a client log in with its first call. clientv3.New logs in itself, and waits for that: while
// etcd is unavailable it would fail after 5 s, with the deadline alone as the reason, and the program that has a
// fallback for outages could not start. A client without a token gets one when a call is refused for that.
type lateLogin struct{ begun atomic.Bool }

func (l *lateLogin) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == authenticate && !l.begun.Load() {
		return rpctypes.ErrGRPCAuthNotEnabled // it goes on without a token
	}
	return call(ctx, method, req, reply, conn, opts...)
}

const authenticate = "/etcdserverpb.Auth/Authenticate"

// errURL says how a URL is written. It holds no part of it, which may be a password.
var errURL = errors.New("weiretcd: write the URL like etcd://user:password@10.0.0.1:2379,10.0.0.2:2379, or etcds:// for TLS, without path and parameters")

// failFast makes calls fail while there is no connection, with the reason. By default they wait, and then fail with
// the deadline alone. weirkv repeats them, but not the login, which clientv3.New waits for.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == authenticate {
		return call(ctx, method, req, reply, conn, opts...)
	}
	return call(ctx, method, req, reply, conn, append(opts[:len(opts):len(opts)], grpc.WaitForReady(false))...)
}

// ParseURL returns the configuration of a client for a URL.
func ParseURL(address string) (c clientv3.Config, err error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme != "etcd" && scheme != "etcds" {
		return c, errURL
	}
	user, hosts := "", strings.TrimSuffix(rest, "/")
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	c = clientv3.Config{DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second, Logger: zap.NewNop(),
		MaxUnaryRetries: 2, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}}
	plain := "http"
	if scheme == "etcds" {
		plain, c.TLS = "https", &tls.Config{MinVersion: tls.VersionTLS12}
	}
	for _, host := range strings.Split(hosts, ",") {
		u, err := url.Parse(plain + "://" + user + host)
		if err != nil || u.Hostname() == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			return c, errURL
		}
		if u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), "2379")
		}
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
		c.Endpoints = append(c.Endpoints, plain+"://"+u.Host)
	}
	return c, nil
}
