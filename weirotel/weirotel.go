// Package weirotel records the decisions of limits with OpenTelemetry: as metrics, with exemplars where the
// program's SDK collects them, and as events of the span of the request.
//
//	m, err := weirotel.New(weirotel.Options{})
//	...
//	// with exemplars and events of spans:
//	limit := weirhttp.Limit(weirhttp.Keyed(perClient), weirhttp.ByIP(), weirhttp.InContext(), weirhttp.Refused(m.Refused(refusal)))
//	handler = limit(m.Handler(handler))
//	// metrics alone, and nothing else in the context:
//	handler = weirhttp.Limit(weirhttp.Keyed(perClient), weirhttp.ByIP(), weirhttp.Observe(m.HTTP))(handler)
//
// Metrics, in the names of OpenTelemetry:
//
//	weir.decisions             counter    limit, outcome, shadow; error.type where a store did not decide
//	weir.wait.duration         histogram  limit; seconds that admitted and refused work waited, where it waited
//	weir.store.call.duration   histogram  store; seconds; see StoreCall
//
// No attribute is a key: with any number of clients, there are as many series as limits and outcomes.
package weirotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirgrpc"
	"github.com/weirflow/weir/weirhttp"
)

// scope is the name of the instrumentation.
const scope = "github.com/weirflow/weir/weirotel"

// mostLimits is how many names of limits have attributes of their own; further ones are counted as "other".
const mostLimits = 1000

// Options say where metrics go.
type Options struct {
	MeterProvider metric.MeterProvider // default: the program's (otel.GetMeterProvider)
}

// Metrics records decisions. It is safe for concurrent use.
type Metrics struct {
	decisions metric.Int64Counter
	waits     metric.Float64Histogram
	calls     metric.Float64Histogram

	mu   sync.RWMutex
	sets map[series]recorded
	seen map[string]bool // names of limits
}

// series is what the attributes of a measurement say.
type series struct {
	limit, outcome string
	shadow, failed bool
}

// recorded has what a measurement needs, made once for each series.
type recorded struct {
	decision []metric.AddOption // a slice, so that a measurement allocates none
	wait     []metric.RecordOption
	event    trace.EventOption
}

// New returns Metrics. The error is that of the MeterProvider.
func New(o Options) (*Metrics, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	meter := o.MeterProvider.Meter(scope)
	m := &Metrics{sets: map[series]recorded{}, seen: map[string]bool{}}
	seconds := metric.WithExplicitBucketBoundaries(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
	var e1, e2, e3 error
	m.decisions, e1 = meter.Int64Counter("weir.decisions", metric.WithUnit("{decision}"), metric.WithDescription("Decisions of limits."))
	m.waits, e2 = meter.Float64Histogram("weir.wait.duration", metric.WithUnit("s"), metric.WithDescription("How long work waited for a limit, where it waited."), seconds)
	m.calls, e3 = meter.Float64Histogram("weir.store.call.duration", metric.WithUnit("s"), metric.WithDescription("How long calls of a store took."), seconds)
	return m, errors.Join(e1, e2, e3)
}

// Decision records a decision: for limiters that a program calls itself. The span in the context, if it is
// recorded, gets an event for work that is refused or has waited, and exemplars lead from the metrics to it.
// err is that of a store that did not decide, or nil.
func (m *Metrics) Decision(ctx context.Context, limit string, d weir.Decision, waited time.Duration, err error) {
	if limit == "" {
		limit = d.By
	}
	m.record(ctx, series{limit: limit, outcome: outcome(d.Allowed), failed: err != nil}, d, waited)
}

// HTTP records the response of a middleware: for weirhttp.Observe, which has no context. See Handler for
// exemplars and events.
func (m *Metrics) HTTP(r weirhttp.Response) { m.http(context.Background(), r) }

func (m *Metrics) http(ctx context.Context, r weirhttp.Response) {
	limit := r.Limit
	if limit == "" {
		limit = r.Decision.By
	}
	m.record(ctx, series{limit, outcome(r.Decision.Allowed), r.Shadow, r.Err != nil}, r.Decision, r.Waited)
}

// RPC records the response of an interceptor: for weirgrpc.Observe.
func (m *Metrics) RPC(r weirgrpc.Response) {
	m.record(context.Background(), series{r.Decision.By, outcome(r.Decision.Allowed), r.Shadow, r.Err != nil}, r.Decision, r.Waited)
}

// StoreCall returns what records the calls of a store: for failover.Options.OnCall.
func (m *Metrics) StoreCall(store string) func(took time.Duration) {
	set := metric.WithAttributeSet(attribute.NewSet(attribute.String("weir.store", store)))
	return func(took time.Duration) { m.calls.Record(context.Background(), took.Seconds(), set) }
}

func outcome(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "refused"
}

func (m *Metrics) record(ctx context.Context, s series, d weir.Decision, waited time.Duration) {
	r := m.of(s)
	m.decisions.Add(ctx, 1, r.decision...)
	if waited > 0 {
		m.waits.Record(ctx, waited.Seconds(), r.wait...)
	}
	if d.Allowed && waited <= 0 {
		return
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		more := []attribute.KeyValue{attribute.Int64("weir.remaining", d.Remaining), attribute.Int64("weir.capacity", d.Limit)}
		if !d.Allowed && d.RetryAfter != weir.Never {
			more = append(more, attribute.Float64("weir.retry_after", d.RetryAfter.Seconds()))
		}
		if waited > 0 {
			more = append(more, attribute.Float64("weir.waited", waited.Seconds()))
		}
		span.AddEvent("weir.decision", r.event, trace.WithAttributes(more...))
	}
}

// of returns what a series needs, which is made at its first measurement.
func (m *Metrics) of(s series) recorded {
	m.mu.RLock()
	r, ok := m.sets[s]
	m.mu.RUnlock()
	if ok {
		return r
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.seen[s.limit] && len(m.seen) >= mostLimits {
		s.limit = "other"
	}
	if r, ok = m.sets[s]; ok {
		return r
	}
	m.seen[s.limit] = true
	all := []attribute.KeyValue{attribute.String("weir.limit", s.limit), attribute.String("weir.outcome", s.outcome), attribute.Bool("weir.shadow", s.shadow)}
	if s.failed {
		all = append(all, attribute.String("error.type", "store"))
	}
	r = recorded{
		decision: []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(all...))},
		wait:     []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(all[0]))},
		event:    trace.WithAttributes(all...),
	}
	m.sets[s] = r
	return r
}
