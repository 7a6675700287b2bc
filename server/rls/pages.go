package rls

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirflow/weir/server/face"
	"github.com/weirflow/weir/server/guard"
)

// pagesAt returns the HTTP pages of envoyproxy/ratelimit at an address. Web pages in browsers reach
// the health check alone.
func (f *Face) pagesAt(address string) http.Handler {
	own := http.NewServeMux()
	own.HandleFunc("POST /json", f.json)
	own.HandleFunc("GET /rlconfig", f.config)
	g := guard.New(address)
	guarded := func(w http.ResponseWriter, r *http.Request) {
		if refused := g.Page(r); refused != nil {
			http.Error(w, refused.Error(), http.StatusForbidden)
			return
		}
		own.ServeHTTP(w, r)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", guarded)
	mux.HandleFunc("GET /healthcheck", f.healthcheck)
	return mux
}

// json answers a request in JSON: 200, or 429 for one over its limit. envoyproxy/ratelimit answers 400
// to every failure; here a failure that is not the client's is 503, and a body needs its type.
func (f *Face) json(w http.ResponseWriter, r *http.Request) {
	if !guard.IsTyped(r, "application/json") {
		http.Error(w, "send Content-Type: application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	if errors.Is(err, face.ErrNoRoom) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		http.Error(w, "the body did not come in time", http.StatusRequestTimeout)
		return
	}
	if err != nil {
		http.Error(w, "the body is too large, or could not be read", http.StatusBadRequest)
		return
	}
	var req pb.RateLimitRequest
	if err := protojson.Unmarshal(body, &req); err != nil {
		http.Error(w, "the body is no RateLimitRequest in JSON: "+err.Error(), http.StatusBadRequest)
		return
	}
	response, err := f.ShouldRateLimit(r.Context(), &req)
	if err != nil {
		code := http.StatusServiceUnavailable
		switch status.Code(err) {
		case codes.InvalidArgument:
			code = http.StatusBadRequest
		case codes.Unimplemented:
			code = http.StatusNotImplemented
		}
		http.Error(w, status.Convert(err).Message(), code)
		return
	}
	data, err := protojson.Marshal(response)
	if err != nil {
		http.Error(w, "the response cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if response.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(data) // the client may have left
}

// healthcheck says whether the service takes requests.
func (f *Face) healthcheck(w http.ResponseWriter, r *http.Request) {
	h, err := f.health.Check(r.Context(), &healthpb.HealthCheckRequest{Service: serviceName})
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		http.Error(w, "not serving", http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "OK")
}

// config shows the rules in force, a line for each.
func (f *Face) config(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	r := f.rules.Load()
	if r.config == nil {
		return
	}
	for _, rule := range r.config.Rules() {
		switch {
		case rule.Settles:
			fmt.Fprintf(w, "%s: settle=%s\n", rule.Path, rule.Limit)
		case rule.Limit != "":
			fmt.Fprintf(w, "%s: limit=%s\n", rule.Path, rule.Limit)
		case rule.Unlimited:
			fmt.Fprintf(w, "%s: unlimited\n", rule.Path)
		default:
			fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n", rule.Path, strings.ToUpper(rule.Unit.String()), rule.Requests, rule.Shadow, rule.Quota)
		}
	}
}
