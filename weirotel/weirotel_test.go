package weirotel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirgrpc"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirotel"
)

func started(t testing.TB) (*weirotel.Metrics, *metric.ManualReader) {
	reader := metric.NewManualReader()
	m, err := weirotel.New(weirotel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	return m, reader
}

// collected returns the sums of weir.decisions by limit and outcome, how many measurements have an exemplar
// with a span, and how many waits and calls of stores there were.
func collected(t *testing.T, reader *metric.ManualReader) (sums map[string]int64, exemplars int, waits, calls uint64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	sums = map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					text := func(name string) string {
						v, _ := p.Attributes.Value(attribute.Key(name))
						return v.Emit()
					}
					sums[fmt.Sprintf("%s %s shadow=%s %s", text("weir.limit"), text("weir.outcome"), text("weir.shadow"), text("error.type"))] += p.Value
					for _, e := range p.Exemplars {
						if len(e.SpanID) > 0 {
							exemplars++
						}
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					if m.Name == "weir.wait.duration" {
						waits += p.Count
					} else {
						calls += p.Count
					}
				}
			}
		}
	}
	return sums, exemplars, waits, calls
}

// TestHTTP: requests are counted once, and those of sampled spans have exemplars; refusals are events of
// their spans. No key is an attribute.
func TestHTTP(t *testing.T) {
	m, reader := started(t)
	perClient, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 1}, keyed.Options{Name: "per-client"})
	if err != nil {
		t.Fatal(err)
	}
	defer perClient.Close()
	spans := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracerProvider(trace.WithSyncer(spans)).Tracer("test")
	refusal := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
	handler := weirhttp.Limit(weirhttp.Keyed(perClient), weirhttp.ByIP(), weirhttp.InContext(), weirhttp.Refused(m.Refused(refusal)))(
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })))
	for i, want := range []int{204, 429, 429} {
		ctx, span := tracer.Start(t.Context(), "request")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		if span.End(); w.Code != want {
			t.Errorf("%d: %d", i, w.Code)
		}
	}
	sums, exemplars, _, _ := collected(t, reader)
	if len(sums) != 2 || sums["per-client allowed shadow=false "] != 1 || sums["per-client refused shadow=false "] != 2 || exemplars < 2 {
		t.Errorf("%v, %d exemplars", sums, exemplars)
	}
	for i, span := range spans.GetSpans() {
		if want := min(i, 1); len(span.Events) != want {
			t.Errorf("span %d has the events %+v", i, span.Events)
		}
	}
}

// TestOtherSources: RPCs, limiters of the program, waits, stores and shadows are recorded.
func TestOtherSources(t *testing.T) {
	m, reader := started(t)
	m.RPC(weirgrpc.Response{Decision: weir.Decision{Allowed: true, By: "calls"}, Waited: time.Second})
	m.Decision(t.Context(), "own", weir.Decision{}, 0, errors.New("no store"))
	m.HTTP(weirhttp.Response{Limit: "trial", Shadow: true})
	m.StoreCall("redis")(time.Millisecond)
	sums, _, waits, calls := collected(t, reader)
	if len(sums) != 3 || sums["calls allowed shadow=false "] != 1 || sums["own refused shadow=false store"] != 1 || sums["trial refused shadow=true "] != 1 || waits != 1 || calls != 1 {
		t.Errorf("%v, %d waits, %d calls", sums, waits, calls)
	}
}

// TestNamesAreBounded: a program that makes limits up has a bounded number of series.
func TestNamesAreBounded(t *testing.T) {
	m, reader := started(t)
	for i := range 5000 {
		m.Decision(t.Context(), fmt.Sprint("limit", i), weir.Decision{Allowed: true}, 0, nil)
	}
	sums, _, _, _ := collected(t, reader)
	if len(sums) != 1001 || sums["other allowed shadow=false "] != 4000 {
		t.Errorf("%d series, other: %d", len(sums), sums["other allowed shadow=false "])
	}
}

// BenchmarkDecision is what recording a decision costs.
func BenchmarkDecision(b *testing.B) {
	m, _ := started(b)
	ctx, d := context.Background(), weir.Decision{Allowed: true, By: "limit"}
	b.ReportAllocs()
	for b.Loop() {
		m.Decision(ctx, "limit", d, 0, nil)
	}
}
