package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzRequests: whatever is sent as the body of an operation, the service answers with a status and a
// type of the OpenAPI document, and what it refuses charges nothing.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{"limit": "per-user", "key": ["a"]}`, `{"limits": [{"limit": "per-user", "key": ["a"], "cost": 2}]}`, `{"limit": "per-user", "key": ["a"], "hold_ms": 5, "max_delay_ms": 5}`,
		`{"reservation": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "costs": [1]}`, `{"calls": [{"op": "take", "call": {"limit": "per-user", "key": ["a"]}}]}`,
		`{"charges": [{"name": "own", "key": "a", "limit": {"all": [{"token_bucket": {"rate": "1/h", "burst": 5}}]}, "cost": 9223372036854775807, "group": 1}]}`,
		`{"charges": [{"op": "settle", "name": "own", "key_base64": "/w", "limit": {"fixed_window": {"limit": 1e99, "window": "1d"}}, "receipt": "bm8"}]}`,
		"", "[", `{"limit": {"limit": null}}`, strings.Repeat("[", 20_000),
	} {
		for op := range len(operationsUnderFuzz()) {
			f.Add(uint8(op), body)
		}
	}
	s := serve(f, limits, ", client_limits: {}", nil)
	f.Fuzz(func(t *testing.T, op uint8, body string) {
		before := s.used(t)
		path := "/v1/" + operationsUnderFuzz()[int(op)%len(operationsUnderFuzz())]
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
		r.Host = "127.0.0.1"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		text := w.Body.String()
		if wrong := s.api.answered(http.MethodPost, path, w.Code, w.Header().Get("Content-Type"), text); wrong != "" {
			t.Error(wrong)
		}
		if len(text) > 1<<16 && w.Code >= 400 && w.Code != http.StatusTooManyRequests {
			t.Errorf("an error of %d bytes", len(text))
		}
		if w.Code >= 400 && w.Code != http.StatusTooManyRequests && path != "/v1/settle" {
			if used := s.used(t); used > before {
				t.Errorf("%d: %q charged %d", w.Code, body, used-before)
			}
		}
	})
}

func operationsUnderFuzz() []string {
	return []string{"take", "peek", "reserve", "settle", "cancel", "batch", "charge"}
}

// used is how much of two limits is used by the keys of the corpus.
func (s *service) used(t *testing.T) (keys int) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/peek", strings.NewReader(`{"limits": [{"limit": "per-user", "key": ["a"]}, {"limit": "monthly", "key": ["a", "api"]}]}`))
	r.Host = "127.0.0.1"
	r.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(w, r)
	var d decision
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	return int(d.Limits[0].Capacity - d.Limits[0].Remaining + d.Limits[1].Capacity - d.Limits[1].Remaining)
}
