package gateway_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNoByteIsHeldBack: an upstream that sends a part of a stream only once the client has all parts
// before gets to its end, in parts of any length, whatever reads the cost of the response: nothing waits
// for the next byte.
func TestNoByteIsHeldBack(t *testing.T) {
	var events strings.Builder
	for range 3 {
		events.WriteString("event: delta\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"some tokens\"}}]}\r\n\r\n")
	}
	events.WriteString("data: {\"long\":\"" + strings.Repeat("x", 9000) + "\"}\n\ndata: " + usage29 + "\n\ndata: [DONE]\n\n")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for part := range slices.Chunk([]byte(events.String()), 50) {
		z.Write(part)
		z.Flush()
	}
	z.Close()
	came := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		body := []byte(events.String())
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Header.Get("X-Do") == "gzip" {
			w.Header().Set("Content-Encoding", "gzip")
			body = zipped.Bytes()
		}
		n, _ := strconv.Atoi(r.Header.Get("X-Part"))
		for part := range slices.Chunk(body[:min(len(body), 600*n)], n) {
			w.Write(part)
			w.(http.Flusher).Flush()
			select {
			case <-came:
			case <-r.Context().Done():
				return
			}
		}
	}))
	defer up.Close()
	_, s := front(t, tokens, up.URL)
	for _, call := range []struct{ method, path string }{{"GET", "/plain"}, {"POST", "/chat"}} { // without httputil.ReverseProxy, and with it
		for do, body := range map[string][]byte{"": []byte(events.String()), "gzip": zipped.Bytes()} {
			for _, n := range []int{1, 7, 100, 4096, 5000, len(body)} {
				r, _ := http.NewRequestWithContext(t.Context(), call.method, s.URL+call.path, strings.NewReader(fmt.Sprintf(`{"model":"%s %d"}`, do, n)))
				if call.method == "GET" {
					r.Body, r.ContentLength = nil, 0
				}
				r.Header = http.Header{"X-Do": {do}, "X-Part": {strconv.Itoa(n)}, "Accept-Encoding": {"gzip"}}
				late := time.AfterFunc(time.Minute, up.CloseClientConnections)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				for part := range slices.Chunk(body[:min(len(body), 600*n)], n) {
					got := make([]byte, len(part))
					if _, err := io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, part) {
						t.Fatalf("%s %q in parts of %d: %q, %v, want %q", call.path, do, n, got, err, part)
					}
					came <- struct{}{}
				}
				if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
					t.Fatalf("%s %q in parts of %d: %q, %v behind the end", call.path, do, n, rest, err)
				}
				late.Stop()
				resp.Body.Close()
			}
		}
	}
}
