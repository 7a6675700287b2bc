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
		if _, err := io.ReadAll(r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		select {
		case <-r.Context().Done():
			io.WriteString(w, "given up")
		case <-time.After(20 * time.Millisecond): // the guard reads the following bytes meanwhile
			io.WriteString(w, "answered")
		}
	})
	for _, raw := range []string{
		"GET /\r\n", "GET /\r\nHost: h\r\n\r\n", "GET /\n\r\n", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, x\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n",
	} {
		// Of several, net/http has read the later ones before it serves the first.
		for _, first := range []string{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"} {
			for n := range 3 {
				c := s.dial(t)
				io.WriteString(c, strings.Repeat(first, n)+raw+get)
				answers, _ := io.ReadAll(c)
				if strings.Count(string(answers), "answered") != n || !strings.Contains(string(answers), "HTTP/1.1 400 ") {
					t.Errorf("%q after %d of %.4s: %q", raw, n, first, answers)
				}
			}
		}
	}
}
