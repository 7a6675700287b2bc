package listen

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir/policy"
)

// TestInvalidPipelinedRequest: an invalid pipelined request does not end the request before it.
func TestInvalidPipelinedRequest(t *testing.T) {
	s := serve(t, policy.Bounds{}, nil, Options{H2C: true}, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			io.WriteString(w, "given up")
		case <-time.After(20 * time.Millisecond): // the guard reads the following bytes meanwhile
			io.WriteString(w, "answered")
		}
	})
	for _, raw := range []string{"GET /\r\n", "GET /\r\nHost: h\r\n\r\n", "GET /\n\r\n", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, x\r\n\r\n"} {
		c := s.dial(t)
		io.WriteString(c, "GET /first HTTP/1.1\r\nHost: h\r\n\r\n"+raw+get)
		answers, _ := io.ReadAll(c)
		if !strings.Contains(string(answers), "answered") || !strings.Contains(string(answers), "HTTP/1.1 400 ") {
			t.Errorf("%q: %q", raw, answers)
		}
	}
}
