// Package weirnats keeps limits in NATS JetStream, in a stream that has the last value of each key, by writes
// that expect a revision. See package weirkv for what such a store guarantees.
//
// A node's clock is corrected by that of the server, to half a round trip.
//
// A write is acknowledged once a majority of the stream's replicas has it. With one replica it is lost with the
// server, and all keys start over. Servers need NATS 2.11 or later: keys expire by themselves.
package weirnats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weirflow/weir/weirkv"
)

// Bucket describes the stream that keeps the states. It is made with the first call if it does not exist.
type Bucket struct {
	Name     string // letters, digits, "_" and "-"; default: "weir"
	Replicas int    // how many servers have each state: 1, 3 or 5; default: 1
	Memory   bool   // keep it in memory; default: in files
}

// KV is the driver for weirkv over a connection. It is a weirkv.Clocked.
type KV struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	bucket  Bucket
	stream  atomic.Pointer[jetstream.Stream]
	refused *atomic.Pointer[error] // why the latest attempt to connect failed
}

// NewKV returns the driver over a connection.
func NewKV(conn *nats.Conn, b Bucket) (*KV, error) {
	if b.Name == "" {
		b.Name = "weir"
	}
	if b.Replicas == 0 {
		b.Replicas = 1
	}
	if strings.ContainsFunc(b.Name, func(c rune) bool { return !isPlain(c) }) || b.Replicas < 0 || b.Replicas > 5 {
		return nil, fmt.Errorf("weirnats: %q with %d replicas is no bucket: its name has letters, digits, _ and -, and it has 1 to 5 replicas", b.Name, b.Replicas)
	}
	js, err := jetstream.New(conn)
	return &KV{conn: conn, js: js, bucket: b, refused: new(atomic.Pointer[error])}, err
}

func isPlain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func (k *KV) subject(key string) string { return "$KV." + k.bucket.Name + "." + key }

// open returns the stream, and makes it if it does not exist.
func (k *KV) open(ctx context.Context) (jetstream.Stream, error) {
	if s := k.stream.Load(); s != nil {
		return *s, nil
	}
	name := "KV_" + k.bucket.Name
	s, err := k.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		storage := jetstream.FileStorage
		if k.bucket.Memory {
			storage = jetstream.MemoryStorage
		}
		s, err = k.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{k.subject(">")}, MaxMsgsPerSubject: 1, MaxConsumers: -1, MaxMsgSize: -1, MaxBytes: -1,
			Discard: jetstream.DiscardNew, Storage: storage, Replicas: k.bucket.Replicas, AllowMsgTTL: true, AllowRollup: true, DenyDelete: true,
			// AllowDirect is off: a replica may not have the latest value yet
		})
	}
	if err != nil {
		return nil, k.lost(err)
	}
	if c := s.CachedInfo().Config; !c.AllowMsgTTL || c.MaxMsgsPerSubject != 1 {
		return nil, fmt.Errorf("weirnats: the bucket %s was made for something else: set another one", k.bucket.Name)
	}
	k.stream.Store(&s)
	return s, nil
}

// Replicate has as many servers keep each state as the Bucket says, if the bucket was made with fewer replicas. It
// makes no bucket. The error says why that cannot be done yet, such as that there are too few servers.
func (k *KV) Replicate(ctx context.Context) error {
	s, err := k.js.Stream(ctx, "KV_"+k.bucket.Name)
	if err != nil {
		return fmt.Errorf("weirnats: %w", err)
	}
	c := s.CachedInfo().Config
	if c.Replicas >= k.bucket.Replicas {
		return nil
	}
	c.Replicas = k.bucket.Replicas
	if _, err := k.js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("weirnats: %w", err)
	}
	return nil
}

// lost forgets the stream after an error: it may have been removed. Without a connection, the error says why
// there is none.
func (k *KV) lost(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		k.stream.Store(nil)
	}
	if k.conn.IsConnected() {
		return err
	}
	if why := k.refused.Load(); why != nil {
		return fmt.Errorf("weirnats: no connection: %w; %w", *why, err)
	}
	return fmt.Errorf("weirnats: no connection: %w", err)
}

// Get implements weirkv.KV.
func (k *KV) Get(ctx context.Context, key string) (weirkv.Item, error) {
	s, err := k.open(ctx)
	if err != nil {
		return weirkv.Item{}, err
	}
	m, err := s.GetLastMsgForSubject(ctx, k.subject(key))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return weirkv.Item{}, nil
	case err != nil:
		return weirkv.Item{}, k.lost(err)
	}
	return weirkv.Item{Value: m.Data, Revision: m.Sequence}, nil
}

// CompareAndSwap implements weirkv.KV.
func (k *KV) CompareAndSwap(ctx context.Context, key string, revision uint64, value []byte, ttl time.Duration) (next uint64, swapped bool, err error) {
	if _, err := k.open(ctx); err != nil {
		return 0, false, err
	}
	ttl = (ttl + time.Second - 1).Truncate(time.Second)
	ack, err := k.js.PublishMsg(ctx, &nats.Msg{Subject: k.subject(key), Data: value},
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(ttl), jetstream.WithRetryAttempts(0))
	var of *jetstream.APIError
	switch {
	case errors.As(err, &of) && (of.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		of.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant): // of a stream with replicas, while another write of the key is in flight
		return 0, false, nil
	case err != nil:
		return 0, false, k.lost(err)
	}
	return ack.Sequence, true, nil
}

// Now implements weirkv.Clocked.
func (k *KV) Now(ctx context.Context) (time.Time, error) {
	s, err := k.open(ctx)
	if err != nil {
		return time.Time{}, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return time.Time{}, k.lost(err)
	}
	return info.TimeStamp, nil
}

// Close has nothing to release: the connection is the caller's.
func (k *KV) Close() error { return nil }

// A Store is a weir.Store in NATS JetStream.
type Store struct {
	*weirkv.Store
	conn *nats.Conn
}

// Close ends the Store and closes its connection.
func (s *Store) Close() error {
	err := s.Store.Close()
	s.conn.Close()
	return err
}

// Open opens a Store at a URL such as nats://user:password@10.0.0.1:4222,10.0.0.2:4222/BUCKET?replicas=3, or
// nats+tls:// for TLS. storage=memory keeps the states in memory. It connects in the background.
func Open(address string, o weirkv.Options) (*Store, error) {
	servers, b, err := ParseURL(address)
	if err != nil {
		return nil, err
	}
	refused := new(atomic.Pointer[error])
	conn, err := nats.Connect(strings.Join(servers, ","), nats.Name("weir"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond), nats.ReconnectBufSize(-1), nats.Timeout(2*time.Second), nats.PingInterval(5*time.Second),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { refused.Store(&err) }))
	if err != nil {
		return nil, fmt.Errorf("weirnats: %w", err)
	}
	kv, err := NewKV(conn, b)
	if err != nil {
		conn.Close()
		return nil, err
	}
	kv.refused = refused
	s, err := weirkv.New(kv, o)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Store{s, conn}, nil
}

// errURL says how a URL is written. It holds no part of it, which may be a password.
var errURL = errors.New("weirnats: write the URL like nats://user:password@10.0.0.1:4222,10.0.0.2:4222/weir?replicas=3&storage=memory, or nats+tls:// for TLS")

// ParseURL returns the servers and the bucket of a URL. Errors hold no part of it, which may be a password.
func ParseURL(address string) (servers []string, b Bucket, err error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme != "nats" && scheme != "nats+tls" {
		return nil, b, errURL
	}
	rest, query, _ := strings.Cut(rest, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, b, errURL
	}
	user := ""
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, rest = rest[:i+1], rest[i+1:]
	}
	hosts, name, _ := strings.Cut(rest, "/")
	if name == "" {
		name = "weir"
	}
	b = Bucket{Name: name, Replicas: 1}
	for key, value := range values {
		switch {
		case key == "replicas":
			if b.Replicas, err = strconv.Atoi(value[0]); err != nil || b.Replicas < 1 || b.Replicas > 5 {
				return nil, b, errors.New("weirnats: replicas: write 1 to 5")
			}
		case key == "storage" && (value[0] == "memory" || value[0] == "file"):
			b.Memory = value[0] == "memory"
		case key == "storage":
			return nil, b, errors.New("weirnats: storage: write memory or file")
		default:
			return nil, b, errors.New("weirnats: the URL has an unknown parameter: there are replicas and storage")
		}
	}
	if strings.ContainsFunc(name, func(c rune) bool { return !isPlain(c) }) {
		return nil, b, errors.New("weirnats: the name of the bucket is made of letters, digits, - and _")
	}
	plain := map[string]string{"nats": "nats", "nats+tls": "tls"}[scheme]
	for _, host := range strings.Split(hosts, ",") {
		u, err := url.Parse(plain + "://" + user + host)
		if err != nil || u.Hostname() == "" || u.Path != "" {
			return nil, b, errURL
		}
		servers = append(servers, u.String())
	}
	return servers, b, nil
}
