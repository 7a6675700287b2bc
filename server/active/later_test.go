package active

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// silent is a store that takes connections, and never says a word.
func silent(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// TestConnectLater: a request that comes while a program starts does not wait for a store that hangs, and the
// fallback decides about it: the policy is in force before the store has said anything. It waited with the
// start, for up to a second.
func TestConnectLater(t *testing.T) {
	const text = `
stores: { shared: { url: "redis://ADDRESS", deadline: 20ms, on_failure: deny } }
limits: { l: { key: client.ip, token_bucket: { rate: 1/h, burst: 5 }, store: shared } }
routes: [{ match: /, limits: [l] }]
`
	file := parse(t, strings.Replace(text, "ADDRESS", silent(t), 1))
	p, err := New(t.Context(), file, Options{Log: slog.New(slog.DiscardHandler), ConnectLater: true, settling: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ask := func() {
		t.Helper()
		a, err := p.Engine().Take(t.Context(), []policy.Ask{{Limit: "l", Key: []string{"10.0.0.1"}, Cost: 1}})
		if err != nil || a.Allowed || a.Decision.Source != weir.SourceDeny {
			t.Errorf("%+v, %v", a, err)
		}
	}
	ask()
	if err := p.Update(t.Context(), parse(t, strings.Replace(text, "ADDRESS", silent(t), 1))); err != nil { // another store that hangs
		t.Fatal(err)
	}
	ask()
	ctx, cancel := context.WithCancel(t.Context())
	settled := make(chan struct{})
	go func() { p.Settle(ctx); close(settled) }()
	ask() // nor does it wait for others that do
	select {
	case <-settled:
		t.Error("the store was connected")
	default:
	}
	cancel()
	<-settled
	if s := p.StoreStats(); len(s) != 1 || s[0].Connected || s[0].Cause == nil {
		t.Errorf("%+v", s)
	}
}
