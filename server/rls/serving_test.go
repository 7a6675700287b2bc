package rls

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// TestHealthAndReflection: what grpcurl and Kubernetes ask.
func TestHealthAndReflection(t *testing.T) {
	s := serve(t, shop, "")
	for _, name := range []string{"", "ratelimit"} {
		h, err := healthpb.NewHealthClient(s.conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, h, err)
		}
	}
	stream, err := reflectionpb.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil || !strings.Contains(answer.String(), "envoy.service.ratelimit.v3.RateLimitService") {
		t.Errorf("%v, %v", answer, err)
	}
}

// TestDrain: a shutdown sends GOAWAY, says so in health checks, and lets a request in flight end.
func TestDrain(t *testing.T) {
	s := serve(t, shop, "")
	s.expect("OK: OK 2/3", requestOf("shop", "path=/cart"))
	watch, err := healthpb.NewHealthClient(s.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := watch.Recv(); err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", h, err)
	}
	s.Leave(true)
	if h, err := watch.Recv(); err != nil || h.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", h, err)
	}
	if s.conn.GetState() == connectivity.Ready { // the watch is a request in flight, and GOAWAY comes beside it
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !s.conn.WaitForStateChange(ctx, connectivity.Ready) {
			t.Error("the client got no GOAWAY")
		}
	}
	if s.Draining() == 0 {
		t.Error("the connection of the request in flight is closed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); err == nil {
		t.Error("the shutdown did not wait for the request in flight")
	}
}

// TestReload: no call fails while rules are replaced, by a reload and by files that change, counts stay,
// and rules that are not valid change nothing.
func TestReload(t *testing.T) {
	text := func(requests int) string {
		return fmt.Sprintf("domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: year, requests_per_unit: %d } }\n", requests)
	}
	s := serve(t, text(1000000), "")
	stop := make(chan struct{})
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := s.ask(requestOf("d", "k=busy")); !strings.HasPrefix(got, "OK: OK ") {
					t.Errorf("during reloads: %s", got)
					return
				}
			}
		})
	}
	s.expect("OK: OK 999999/1000000", requestOf("d", "k=1"))
	for i := range 20 {
		s.write(text(1000000 + i))
		if i%2 == 0 {
			s.Tick()
		} else if err := s.policy.Update(t.Context(), s.parse("listen: { rls: { address: \"127.0.0.1:0\", envoy: rules.yaml } }\n")); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	calls.Wait()
	s.expect("OK: OK 1000017/1000019", requestOf("d", "k=1"))
	for _, bad := range []string{"domain: d\ndescriptors: [{ kex: k }]\n", "domain: [", ""} {
		s.write(bad)
		s.Tick()
		s.Tick()
		s.expect("OK: OK 1000018/1000019", requestOf("d", "k=2"+bad))
	}
	if n := s.metrics.badLoads.Load(); n != 3 {
		t.Errorf("%d failed loads are counted", n)
	}
	s.write(text(7))
	s.Tick()
	s.expect("OK: OK 6/7", requestOf("d", "k=4"))
}

// TestPages: the HTTP pages of envoyproxy/ratelimit. A client's mistake is 400.
func TestPages(t *testing.T) {
	s := serve(t, "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: year, requests_per_unit: 1 } }\n", `, http: "127.0.0.1:0"`)
	send := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addresses()[1]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var b strings.Builder
		if err := response.Write(&b); err != nil {
			t.Fatal(err)
		}
		_, body, _ = strings.Cut(b.String(), "\r\n\r\n")
		return fmt.Sprintf("%d %s", response.StatusCode, body)
	}
	ask := `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"1"}]}]}`
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/json", ask, `200 {"overallCode":"OK"`},
		{"POST", "/json", ask, `429 {"overallCode":"OVER_LIMIT"`},
		{"POST", "/json", `{"domain":"","descriptors":[]}`, "400 rate limit domain must not be empty"},
		{"POST", "/json", "{", "400 "},
		{"POST", "/json", strings.Repeat(" ", maxMessage+1), "400 "},
		{"GET", "/json", "", "405 "},
		{"GET", "/rlconfig", "", "200 d.k: unit=YEAR requests_per_unit=1, shadow_mode: false, quota_mode: false\n"},
		{"GET", "/healthcheck", "", "200 OK"},
	} {
		got := strings.ReplaceAll(send(c.method, c.path, c.body), `": "`, `":"`)
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s: %q, not %q", c.method, c.path, got, c.want)
		}
	}
	s.health.Shutdown()
	if got := send("GET", "/healthcheck", ""); !strings.HasPrefix(got, "500") {
		t.Error(got)
	}
}

// TestMetricsAreBounded: rules with values in their metrics do not grow without end.
func TestMetricsAreBounded(t *testing.T) {
	s := serve(t, "domain: d\ndescriptors:\n  - { key: k, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 2 } }\n  - { key: v, value_to_metric: true, descriptors: [{ key: w, rate_limit: { unit: year, requests_per_unit: 2 } }] }\n", "")
	for range 3 {
		s.ask(requestOf("d", "k=one", "v=x,w=y"))
	}
	for i := range maxSeries + 100 {
		s.metrics.counted(&descriptor{metric: fmt.Sprint("d.k_", i), hits: 1}, false)
	}
	all, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range all {
		if m.GetName() == "weir_rls_rule_hits_total" {
			for _, one := range m.Metric {
				got[one.Label[1].GetValue()+" "+one.Label[0].GetValue()] = one.Counter.GetValue()
			}
		}
	}
	if len(got) > 3*(maxSeries+2) || got["d.k_one all"] != 3 || got["d.k_one over_limit"] != 1 || got["d.v_x.w all"] != 3 || got["(other) all"] < 100 {
		t.Errorf("%d series: %v, %v, %v, %v", len(got), got["d.k_one all"], got["d.k_one over_limit"], got["d.v_x.w all"], got["(other) all"])
	}
}

// TestSlowJSON: a body that came too slowly is not one that was malformed. Its response was 400.
func TestSlowJSON(t *testing.T) {
	s := serve(t, shop, "")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/json", iotest.ErrReader(os.ErrDeadlineExceeded))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.json(w, r)
	if w.Code != http.StatusRequestTimeout || w.Body.String() != "the body did not come in time\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
