package rls

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirflow/weir/server/active"
	"github.com/weirflow/weir/server/policyfile"
)

// fuzzed returns faces without connections: one with limits of a policy, and one with Envoy's rules.
func fuzzed(f *testing.F) (faces []*Face) {
	folder := f.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(shop), 0o600); err != nil {
		f.Fatal(err)
	}
	for _, envoy := range []string{"", ", envoy: rules.yaml"} {
		file, err := policyfile.Parse(filepath.Join(folder, "policy.yaml"), []byte("listen: { rls: { address: \"127.0.0.1:0\""+envoy+" } }"+limits))
		if err != nil {
			f.Fatal(err)
		}
		p, err := active.New(f.Context(), file, active.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			f.Fatal(err)
		}
		one := &Face{policy: p, metrics: newMetrics()}
		if err := errors.Join(one.counters.open(1000), p.Join(f.Context(), one)); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = errors.Join(one.counters.close(), p.Close()) })
		faces = append(faces, one)
	}
	return faces
}

// FuzzRequest: no request makes the service fail without an error, and statuses are those of the
// descriptors.
func FuzzRequest(f *testing.F) {
	f.Add("shop", "path", "/cart", "limit", "per-user", uint32(1), uint64(0), int32(0))
	f.Add("shop", "limit", "per-pair", "", "", uint32(0), uint64(1<<63), int32(7))
	f.Add("", "generic_key", "everyone", "a", "*", uint32(1<<31), uint64(1), int32(-1))
	faces := fuzzed(f)
	f.Fuzz(func(t *testing.T, domain, key, value, key2, value2 string, hits uint32, own uint64, unit int32) {
		req := requestOf(domain, "x=y")
		req.HitsAddend = hits
		d := req.Descriptors[0]
		d.Entries = []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}, {Key: key2, Value: value2}}[:1+own%2]
		d.HitsAddend = wrapperspb.UInt64(own)
		if unit != 0 {
			d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: hits, Unit: typev3.RateLimitUnit(unit)}
		}
		req.Descriptors = append(req.Descriptors, nil, d)
		for _, face := range faces {
			r, err := face.ShouldRateLimit(t.Context(), req)
			if err == nil && (len(r.Statuses) != 3 || r.Statuses[1].CurrentLimit != nil || r.OverallCode == pb.RateLimitResponse_UNKNOWN) {
				t.Fatalf("%v: %v", req, r)
			}
		}
	})
}

// FuzzBytes: no bytes of a request make the service fail without an error of the client.
func FuzzBytes(f *testing.F) {
	for _, r := range []*pb.RateLimitRequest{requestOf("shop", "path=/cart,user=ann", "quota=1"), requestOf("any", "limit=per-user,user=ann", "settle=per-user,user=ann")} {
		r.Descriptors[0].HitsAddend, r.Descriptors[1].IsNegativeHits = wrapperspb.UInt64(3), true
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	faces := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		req := new(pb.RateLimitRequest)
		if proto.Unmarshal(data, req) != nil {
			return
		}
		for _, face := range faces {
			r, err := face.ShouldRateLimit(t.Context(), req)
			if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument && code != codes.Unimplemented || err == nil && len(r.Statuses) != len(req.Descriptors) {
				t.Fatalf("%v: %v, %v", req, r, err)
			}
		}
	})
}

// FuzzJSON: a body gets 200, 429 or an error of the client, and what is answered can be read.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"domain":"shop","descriptors":[{"entries":[{"key":"path","value":"/cart"}],"hitsAddend":"7"}]}`,
		`{"domain":"any","descriptors":[{"entries":[{"key":"limit","value":"per-user"},{"key":"user","value":"ann"}],"isNegativeHits":true}]}`,
		`{"domain":"shop","hitsAddend":1e3,"descriptors":[{"limit":{"requestsPerUnit":1,"unit":"DAY"}}]}`, `[]`, `{`, "",
	} {
		f.Add(body)
	}
	faces := fuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		for _, face := range faces {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/json", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			face.json(w, r)
			switch w.Code {
			case http.StatusOK, http.StatusTooManyRequests:
				if err := protojson.Unmarshal(w.Body.Bytes(), new(pb.RateLimitResponse)); err != nil {
					t.Fatalf("%s: %v", w.Body, err)
				}
			case http.StatusBadRequest, http.StatusNotImplemented:
			default:
				t.Fatalf("%q: %d %s", body, w.Code, w.Body)
			}
		}
	})
}
