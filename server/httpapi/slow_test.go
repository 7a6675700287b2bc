package httpapi

import (
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// late is a body whose client had no more time after the first bytes.
type late struct{ io.Reader }

func (l late) Read(p []byte) (int, error) {
	if n, err := l.Reader.Read(p); err == nil {
		return n, nil
	}
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

// slowly sends a call whose body stops arriving, and returns the status.
func (s *service) slowly(op string) int {
	s.t.Helper()
	r := httptest.NewRequest("POST", s.url("/v1/"+op), late{strings.NewReader(`{"limit": `)})
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if wrong := s.api.answered("POST", "/v1/"+op, w.Code, w.Header().Get("Content-Type"), w.Body.String()); wrong != "" {
		s.t.Errorf("the document is wrong: %s", wrong)
	}
	if !strings.Contains(w.Body.String(), "did not come in time") {
		s.t.Errorf("%s: %s", op, w.Body)
	}
	return w.Code
}

// TestSlowBody: a body that came too slowly is not one that was malformed. Its response was 400.
func TestSlowBody(t *testing.T) {
	s := serve(t, limits, "", nil)
	if status := s.slowly("take"); status != 408 {
		t.Error(status)
	}
	if left := s.left("a"); left != 5 {
		t.Error(fmt.Sprint(left, " left"))
	}
}

// TestLargeBodyIsNotAwaited: a body that is said to be too large is refused before it is sent.
func TestLargeBodyIsNotAwaited(t *testing.T) {
	s := serve(t, limits, "", nil)
	r := httptest.NewRequest("POST", s.url("/v1/take"), late{strings.NewReader(`{"limit": `)})
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = maxBody + 1
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != 413 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
