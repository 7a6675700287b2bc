package plain

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirflow/weir/internal/seeds"
)

// TestReuse: requests that use the memory of others, of other connections too, have nothing of them: not a header
// field, not a query, not a response field. Some are not reused, some have more fields than are kept, some panic, and
// some are watched.
func TestReuse(t *testing.T) {
	for _, in := range []bool{false, true} {
		inLoops = in
		var reused atomic.Int32
		_, addr := serveBodies(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := r.URL.Query().Get("id")
			for name, values := range r.Header {
				if name != "Content-Length" && (len(values) != 1 || values[0] != id) {
					t.Errorf("%s: %s: %v", id, name, values)
				}
			}
			if len(w.Header()) > 0 {
				t.Errorf("%s: a header of another response: %v", id, w.Header())
			}
			text, err := io.ReadAll(r.Body)
			if err != nil || r.Method == http.MethodPost && string(text) != id || r.Method != http.MethodPost && len(text) > 0 {
				t.Errorf("%s: body %q, %v", id, text, err)
			}
			switch r.URL.Path {
			case "/watched":
				r.Context().Done()
			case "/kept":
			default:
				reused.Add(1)
				Reuse(r.Context())
			}
			if r.URL.Path == "/panic" {
				panic(http.ErrAbortHandler)
			}
			for name := range r.Header {
				w.Header().Set("Echo-"+name, id)
			}
			if r.URL.Path == "/chunked" {
				w.(http.Flusher).Flush()
			}
			io.WriteString(w, id)
		}), true)
		var all sync.WaitGroup
		for client := range 8 {
			draw := seeds.Of(fmt.Sprint(t.Name(), client, in))
			all.Go(func() {
				c := dial(t, addr)
				read := bufio.NewReader(c)
				for n := range 300 {
					id := fmt.Sprintf("%d-%d", client, n)
					path := []string{"/kept", "/reused", "/reused", "/watched", "/chunked", "/panic"}[draw.IntN(6)]
					text := fmt.Sprintf("%s?id=%s HTTP/1.1\r\nHost: h\r\n", path, id)
					fields := draw.IntN(12)
					for i := range fields {
						text += fmt.Sprintf("X-%d: %s\r\n", i, id)
					}
					if draw.IntN(3) == 0 {
						text = "POST " + text + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(id), id)
						fields++
					} else {
						text = "GET " + text + "\r\n"
					}
					io.WriteString(c, text)
					if path == "/panic" {
						c.Close()
						c = dial(t, addr)
						read = bufio.NewReader(c)
						continue
					}
					resp, err := http.ReadResponse(read, nil)
					if err != nil {
						t.Error(err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					echoed := 0
					for name, values := range resp.Header {
						if len(name) > 5 && name[:5] == "Echo-" {
							if echoed++; len(values) != 1 || values[0] != id {
								t.Errorf("%s: %s: %v", id, name, values)
							}
						}
					}
					if err != nil || string(body) != id || echoed != fields {
						t.Errorf("%s: %q with %d of %d fields, %v", id, body, echoed, fields, err)
					}
				}
			})
		}
		all.Wait()
		inLoops = false
		if reused.Load() == 0 {
			t.Error("none was reused")
		}
	}
}
