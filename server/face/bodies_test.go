package face

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// TestBodiesShareABound: bodies that do not come take at most allBodies together, whether their length is
// known or not; small ones pass meanwhile, and the room is back when their requests have ended.
func TestBodiesShareABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewHTTP(&pipes{closed: make(chan struct{})}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); errors.Is(err, ErrNoRoom) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}), slog.New(slog.DiscardHandler))
		send := func(body io.Reader, length int64) int {
			r := httptest.NewRequest(http.MethodPost, "/", body)
			r.ContentLength = length
			w := httptest.NewRecorder()
			f.ServeHTTP(w, r)
			return w.Code
		}
		var stalled []*io.PipeWriter
		for i := range allBodies / mostBody {
			body, w := io.Pipe()
			stalled = append(stalled, w)
			go send(body, []int64{mostBody, -1, mostBody * 100}[i%3])
		}
		synctest.Wait()
		for text, want := range map[string]int{strings.Repeat("x", smallBody): 200, strings.Repeat("x", smallBody+1): 503} {
			if got := send(strings.NewReader(text), int64(len(text))); got != want {
				t.Errorf("%d bytes: %d, want %d", len(text), got, want)
			}
		}
		if got := send(strings.NewReader("x"), -1); got != 503 {
			t.Errorf("a body without a length: %d", got)
		}
		for _, w := range stalled {
			w.Close()
		}
		synctest.Wait()
		if n := f.bodies.Load(); n != 0 {
			t.Errorf("%d bytes are taken when all requests have ended", n)
		}
		if got := send(strings.NewReader("x"), -1); got != 200 {
			t.Errorf("afterwards: %d", got)
		}
	})
}
