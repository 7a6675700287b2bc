package active

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/weirflow/weir/policy"
)

// TestPreviewEnds: a preview whose client has left goes on no longer.
func TestPreviewEnds(t *testing.T) {
	const kept = "admin: { recent: 1000 }\nlisten: { admin: \"127.0.0.1:0\" }\nlimits: { l: { key: client.ip, token_bucket: { rate: 1/h, burst: 1 } } }\nroutes: [{ match: /, limits: [l] }]\n"
	file := parse(t, kept)
	p, err := New(t.Context(), file, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 500 {
		p.See(&policy.Request{Method: "GET", Path: "/", Client: "192.0.2.1"}, &policy.Verdict{}, "/")
	}
	got, err := p.Preview(t.Context(), []byte(kept), true)
	if err != nil || got.Requests != 500 || len(got.Limits) != 1 || got.Limits[0].Next.Limited != 499 {
		t.Fatalf("%+v %v", got, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := p.Preview(ctx, []byte(kept), true); !errors.Is(err, context.Canceled) {
		t.Errorf("a preview without a client: %v", err)
	}
}
