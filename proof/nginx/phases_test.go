package nginx

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// phasesConf has a location for each way in which nginx ends a request by itself. Each request counts
// for the client that its header field names.
const phasesConf = `
	limit_req_zone $http_client zone=z:1m rate=1r/m;
	client_max_body_size 1k;
	server {
		listen {{.Addr}};
		server_name _;
		limit_req zone=z burst=2 nodelay;
		limit_req_status 429;
		location / { proxy_pass http://UP; }
		location = /internal { internal; }
		location = /internal-return { internal; return 200 "secret"; }
		location = /internal-deny { internal; deny all; }
		location /internal-below/ { internal; proxy_pass http://UP; }
		location /internal-files/ { internal; }
		location = /return { return 204; }
		location = /return-deny { deny all; return 204; }
		location = /redirect { return 302 /elsewhere; }
		location = /rewrite { rewrite ^ /elsewhere redirect; }
		location = /deny { deny all; }
		location /deny-below/ { deny all; proxy_pass http://UP; }
		location /proxied/ { proxy_pass http://UP; }
		location /proxied-return/ { return 204; }
		location = /body-return { return 204; }
		location = /body-deny { deny all; }
		location /both/ { proxy_pass http://UP; }
		location /both { proxy_pass http://UP; }
		location /files/ { try_files $uri @up; }
		location @up { proxy_pass http://UP; }
	}`

// TestPhases: the gateway charges a request exactly if nginx does: not if nginx ends the request before
// its limits, and if it ends the request after them. Its limits are in the preaccess phase: after internal, redirects to the final
// slash, bodies that are too large, return and rewrite, and before allow and deny.
func TestPhases(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(up.Close)
	p := startFor(t, strings.ReplaceAll(phasesConf, "UP", up.Listener.Addr().String()), true, nil)
	client := &http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer client.CloseIdleConnections()
	send := func(at, path, key string, body int) int {
		method := "GET"
		if body > 0 {
			method = "POST"
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, bytes.NewReader(make([]byte, body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Client", key)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		path    string
		body    int
		charged bool
	}{
		{"/", 0, true}, {"/", 2000, false},
		{"/internal", 0, false}, {"/internal-return", 0, false}, {"/internal-deny", 0, false},
		{"/internal-below/x", 0, false}, {"/internal-below", 0, false}, {"/internal-files/x", 0, false}, {"/internal-files", 0, true},
		{"/return", 0, false}, {"/return-deny", 0, false}, {"/redirect", 0, false}, {"/rewrite", 0, false},
		{"/deny", 0, true}, {"/deny-below/x", 0, true}, {"/deny-below", 0, false},
		{"/proxied/", 0, true}, {"/proxied", 0, false}, {"/proxied-return", 0, true}, {"/proxied-return/", 0, false},
		{"/body-return", 2000, false}, {"/body-deny", 2000, false}, {"/both", 0, true}, {"/files", 0, true},
	} {
		var got [2][]int
		for i, at := range []string{p.nginx.Addr, p.weir.Gateway} {
			for range 4 {
				got[i] = append(got[i], send(at, c.path, c.path+http.MethodGet[:c.body/2000], c.body))
			}
			got[i] = append(got[i], send(at, "/", c.path+http.MethodGet[:c.body/2000], 0))
		}
		if charged := got[0][4] == 429; charged != c.charged {
			t.Errorf("%s: nginx charges it: %v, want %v: %v", c.path, charged, c.charged, got[0])
		}
		if !slices.Equal(got[0], got[1]) {
			t.Errorf("%s, %d bytes: four requests, then one for /: nginx %v, weir %v", c.path, c.body, got[0], got[1])
		}
	}
}
