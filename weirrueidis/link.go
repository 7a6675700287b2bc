package weirrueidis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/weirredis"
)

// A link is an Evaler whose client may not exist yet: rueidis makes one only when the server
// answers.
type link struct {
	addr   weirredis.Address
	option rueidis.ClientOption
	dialer *dialer

	ctx    context.Context
	cancel context.CancelFunc
	task   sync.WaitGroup

	ready  chan struct{} // closed once the client exists
	client rueidis.Client

	mu  sync.Mutex
	err error // of the latest attempt
}

func newLink(addr weirredis.Address, o rueidis.ClientOption) *link {
	network := "tcp"
	if addr.Socket != "" {
		network = "unix"
	}
	l := &link{addr: addr, option: o, dialer: newDialer(network, o.Dialer.Timeout), ready: make(chan struct{}), err: errors.New("no answer yet")}
	l.option.DialCtxFn = l.dialer.dial
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *link) start() { l.task.Go(l.connect) }

// The pause between attempts doubles from the first to the last.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// connect makes the client, which then reconnects by itself.
func (l *link) connect() {
	for next := firstPause; ; next = min(2*next, lastPause) {
		client, err := rueidis.NewClient(l.option)
		if err == nil && l.addr.Mode == weirredis.Cluster && client.Mode() != rueidis.ClientModeCluster {
			client.Close()
			err = errors.New("the server is no node of a Redis Cluster: write redis:// or redis+sentinel:// in place of redis+cluster://")
		}
		if err == nil {
			l.client = client
			close(l.ready)
			return
		}
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		if pause.For(l.ctx, next) != nil {
			return
		}
	}
}

// get returns the client once it exists.
func (l *link) get(ctx context.Context) (rueidis.Client, error) {
	select {
	case <-l.ready:
		return l.client, nil
	default:
	}
	select {
	case <-l.ready:
		return l.client, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return nil, fmt.Errorf("weirrueidis: not connected to %v: %w", l.addr, l.err)
}

// Eval runs a script.
func (l *link) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	client, err := l.get(ctx)
	if err != nil {
		return "", err
	}
	text, err := evaler{client}.Eval(ctx, c)
	if err != nil && l.addr.Mode != weirredis.Cluster && strings.HasPrefix(err.Error(), "MOVED ") {
		err = errors.New("CLUSTER the server is a node of a Redis Cluster: write redis+cluster:// in place of redis://")
	}
	return text, err
}

// EvalAll runs several.
func (l *link) EvalAll(ctx context.Context, calls []weirredis.Call, replies []weirredis.Reply) {
	client, err := l.get(ctx)
	if err != nil {
		for i := range calls {
			replies[i].Err = err
		}
		return
	}
	evaler{client}.EvalAll(ctx, calls, replies)
}

// close ends attempts to connect, or closes the client. No call may be in flight.
func (l *link) close() {
	l.cancel()
	l.dialer.cancel() // an attempt in flight fails
	l.task.Wait()
	select {
	case <-l.ready:
		l.client.Close()
	default:
	}
	l.dialer.close()
}
