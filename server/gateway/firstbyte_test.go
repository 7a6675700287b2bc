package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// flushed is a client that calls sent at each flush.
type flushed struct {
	*httptest.ResponseRecorder
	sent func()
}

func (f *flushed) FlushError() error {
	f.sent()
	return nil
}

// TestCostsAreReadBehindTheClient: a part of a stream is with the client before its cost is read, so the
// client gets its first byte as early as without.
func TestCostsAreReadBehindTheClient(t *testing.T) {
	e, err := policy.New(policy.Policy{
		Limits: []policy.Limit{{Name: "tokens", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1000},
			Costs: policy.Costs{Default: 100, After: []policy.CostTerm{{Of: "openai"}}}}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"tokens"}}},
	}, policy.Options{Keys: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const event = "data: {\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\n"
	v := e.DecideContext(t.Context(), policy.Request{Method: "GET", Path: "/", Header: http.Header{}})
	meter := v.Meter()
	flushes := 0
	client := &flushed{ResponseRecorder: httptest.NewRecorder(), sent: func() {
		if flushes++; flushes == 1 {
			meter.End(policy.Ending{}) // with what was read by now
		}
	}}
	w := &responseWriter{ResponseWriter: client, gateway: new(Gateway), verdict: &v, meter: meter}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if n, err := w.Write([]byte(event)); n != len(event) || err != nil {
		t.Fatal(n, err)
	}
	if flushes != 1 || client.Body.String() != event {
		t.Errorf("%d flushes, %q", flushes, client.Body)
	}
	v = e.DecideContext(t.Context(), policy.Request{Method: "GET", Path: "/", Header: http.Header{}})
	if got := v.Evaluated()[0].Decision.Remaining; got != 1000-100-100 { // nothing was seen, so the estimate stays
		t.Errorf("%d remain: the response was read before it was sent", got)
	}
}
