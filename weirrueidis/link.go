package weirrueidis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/weirredis"
)

// A link is an Evaler whose client may not exist yet: rueidis makes one only when the server
// answers. With Sentinel, each new master has a client of its own (sentinel.go).
type link struct {
	addr     weirredis.Address
	option   rueidis.ClientOption
	sentinel rueidis.ClientOption // for sentinels, where there are some
	dialer   *dialer

	ctx    context.Context
	cancel context.CancelFunc
	task   sync.WaitGroup

	ready  chan struct{}                  // closed once there is a client
	client atomic.Pointer[rueidis.Client] // nil until then

	mu  sync.Mutex
	err error // of the latest attempt
}

func newLink(addr weirredis.Address, o rueidis.ClientOption) *link {
	network := "tcp"
	if addr.Socket != "" {
		network = "unix"
	}
	l := &link{addr: addr, option: o, dialer: newDialer(network, o.Dialer.Timeout), ready: make(chan struct{}), err: errors.New("no connection yet")}
	l.option.DialCtxFn = l.dialer.dial
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *link) start() {
	if l.addr.Mode == weirredis.Sentinel {
		l.task.Go(l.watch)
	} else {
		l.task.Go(l.connect)
	}
}

// The pause between attempts to make a client doubles from the first to the last.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// connect makes the client, which then reconnects by itself.
func (l *link) connect() {
	for n := 0; ; n++ {
		client, err := rueidis.NewClient(l.option)
		if err == nil && l.addr.Mode == weirredis.Cluster && client.Mode() != rueidis.ClientModeCluster {
			client.Close()
			err = errors.New("the server is no node of a Redis Cluster: write redis:// or redis+sentinel:// in place of redis+cluster://")
		}
		if err == nil {
			l.use(client)
			return
		}
		l.failed(err)
		if pause.For(l.ctx, delay(firstPause, lastPause, n)) != nil {
			return
		}
	}
}

// use makes a client the one that carries out calls, and closes the one before it. Only one
// goroutine calls it.
func (l *link) use(client rueidis.Client) {
	if old := l.client.Swap(&client); old != nil {
		(*old).Close()
	} else {
		close(l.ready)
	}
}

// failed keeps the error of an attempt to connect, for calls that find no client.
func (l *link) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// get returns the client once there is one.
func (l *link) get(ctx context.Context) (rueidis.Client, error) {
	if client := l.client.Load(); client != nil {
		return *client, nil
	}
	select {
	case <-l.ready:
		return *l.client.Load(), nil
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
	if client := l.client.Load(); client != nil {
		(*client).Close()
	}
	l.dialer.close()
}
