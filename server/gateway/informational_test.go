package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const informed = `
limits: { calls: { token_bucket: { rate: 1/h, burst: 1000 } } }
headers: [ratelimit, x-ratelimit]
upstreams:
  up: { url: "URL", timeouts: { response: 30s } }
  spare: { url: "SPARE" }
routes:
  - { match: /failed, upstream: up, limits: [calls], failed: { upstream: spare } }
  - { match: /, upstream: up, limits: [calls] }
`

// TestFieldsAfterInformational: the final response has each field about limits once, however many 1xx
// responses of the upstream precede it, whichever way the request takes through the gateway.
func TestFieldsAfterInformational(t *testing.T) {
	const (
		hints   = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
		proceed = "HTTP/1.1 100 Continue\r\n\r\n"
		ok      = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
		chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n"
	)
	spare := says(t, ok)
	for name, c := range map[string]struct {
		said, path string
		status     int
	}{
		"none":               {ok, "/x", 200},
		"103":                {hints + ok, "/x", 200},
		"103, chunks":        {hints + chunked, "/x", 200},
		"100":                {proceed + ok, "/x", 200},
		"several":            {hints + proceed + hints + ok, "/x", 200},
		"103, no final one":  {hints, "/x", 502},
		"103, then fallback": {hints, "/failed", 200},
	} {
		_, s := front(t, strings.Replace(informed, "SPARE", spare, 1), says(t, c.said))
		for _, version := range []int{1, 2} {
			tr := &http.Transport{Protocols: new(http.Protocols), DisableKeepAlives: version == 1}
			tr.Protocols.SetHTTP1(version == 1)
			tr.Protocols.SetUnencryptedHTTP2(version == 2)
			for _, sent := range []string{"", "body", "upgrade"} {
				if sent == "upgrade" && version == 2 || sent == "body" && c.path == "/failed" {
					continue // HTTP/2 has none; a request whose body was read has no fallback
				}
				r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				switch sent {
				case "body":
					r.Method, r.Body = "POST", io.NopCloser(strings.NewReader("a body without a length"))
				case "upgrade": // an upgrade never takes the direct way
					r.Header.Set("Connection", "Upgrade")
					r.Header.Set("Upgrade", "echo")
				}
				resp, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				h := resp.Header
				if fields := fmt.Sprint(len(h["Ratelimit"]), len(h["Ratelimit-Policy"]), len(h["X-Ratelimit-Limit"]), len(h["Link"])); resp.StatusCode != c.status || fields != "1 1 1 0" {
					t.Errorf("%s, HTTP/%d, %q: %d %v", name, version, sent, resp.StatusCode, h)
				}
			}
			tr.CloseIdleConnections()
		}
	}
}
