package gateway_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirflow/weir/adaptive/signals"
)

// TestSignalsOfAPolicy: bbr in a policy limits when a signal of this machine reaches its threshold: more than a
// thousandth of its memory is in use. What it has learnt outlives an update, and nothing is read while no policy
// needs it.
func TestSignalsOfAPolicy(t *testing.T) {
	const guarded = `
upstreams: { app: { url: "URL", adaptive: { bbr: { window: 100ms, buckets: 10, thresholds: { cpu: off, memory: 0.001 } } } } }
routes: [{ match: /, upstream: app }]
`
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer up.Close()
	g := openGateway(t, parse(t, guarded, up.URL), slog.New(slog.DiscardHandler))
	front := httptest.NewServer(g)
	t.Cleanup(func() { front.Close(); g.Close() })
	reads := func() bool { _, known := g.policy.Signals().Reading().Level(signals.Memory); return known }
	until(t, func() bool { _ = told(t, front.URL); return targetsOf(g)[0].Adaptive.Overload != "" })
	if a := targetsOf(g)[0].Adaptive; !a.Signals || a.LeastLatency <= 0 || !strings.HasPrefix(a.Overload, "memory ") || a.Limit > 1e6 || !reads() {
		t.Errorf("%+v", a)
	}
	update := func(text string) {
		t.Helper()
		if err := g.Update(parse(t, text, up.URL)); err != nil {
			t.Fatal(err)
		}
	}
	update(strings.Replace(guarded, "match: /", "match: /other/", 1))
	if a := targetsOf(g)[0].Adaptive; a.Overload == "" || !reads() {
		t.Errorf("after an update: %+v", a)
	}
	update(strings.Replace(guarded, "bbr: {", "knee: {}, queue: { length: 5 } } } }\n#", 1))
	if a := targetsOf(g)[0].Adaptive; a.Signals || reads() {
		t.Errorf("without bbr: %+v, signals are read: %v", a, reads())
	}
	update(guarded)
	if !reads() {
		t.Error("with bbr again, no signals are read")
	}
}
