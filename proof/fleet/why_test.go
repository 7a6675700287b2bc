package fleet

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// TestWhyTheStoreIsUnavailable: the log and /v1/status say why a store is unavailable, never with
// its password. The log says that a store is connected that was down at the start, also if nobody
// makes a request.
func TestWhyTheStoreIsUnavailable(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{Config: []string{"user weir on >s3cret ~* &* +@all"}})
	s.Kill()
	g := startWeir(t, strings.NewReplacer("STORE", "redis://weir:s3cret@"+s.Addr).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s } }
limits: { many: { token_bucket: { rate: 1000/s, burst: 1000 }, store: shared } }
upstreams: { up: { url: "http://127.0.0.1:1" } }
routes: [{ match: /, upstream: up, limits: [many] }]
`))
	var pages strings.Builder
	status := func() string {
		t.Helper()
		resp, err := http.Get("http://" + g.Admin + "/v1/status")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(text)
		return string(text)
	}
	if text := status(); !strings.Contains(text, `"error"`) || !strings.Contains(text, "connection refused") {
		t.Errorf("the store is down: %s", text)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	servers.Poll(t, "the line about the connection", func() bool { return strings.Contains(g.Output(), "store connected") })
	if text := status(); strings.Contains(text, `"error"`) {
		t.Errorf("the store is connected: %s", text)
	}

	for _, refusal := range []struct {
		code           string
		refuse, repair [][]string
	}{
		{"OOM", [][]string{{"CONFIG", "SET", "maxmemory", "1"}}, [][]string{{"CONFIG", "SET", "maxmemory", "0"}}},
		{
			"WRONGPASS",
			[][]string{{"ACL", "SETUSER", "weir", "resetpass", ">other"}, {"CLIENT", "KILL", "USER", "weir"}},
			[][]string{{"ACL", "SETUSER", "weir", ">s3cret"}},
		},
	} {
		do := func(all [][]string) {
			t.Helper()
			for _, args := range all {
				if _, err := s.Do(t.Context(), args...); err != nil {
					t.Fatal(err)
				}
			}
		}
		do(refusal.refuse)
		servers.Poll(t, refusal.code+" in the status", func() bool {
			g.get(t, "/")
			return strings.Contains(status(), refusal.code)
		})
		do(refusal.repair)
		servers.Poll(t, "the return after "+refusal.code, func() bool { return !strings.Contains(status(), `"error"`) })
	}
	servers.Poll(t, "two outages in the log", func() bool { return strings.Count(g.Output(), "store is back") == 2 })
	for line := range strings.Lines(g.Output()) {
		if strings.Contains(line, "store unavailable") && !strings.Contains(line, "error=") && !strings.Contains(line, `"error":`) {
			t.Errorf("this line does not say why: %s", line)
		}
	}
	if out := g.Output(); !strings.Contains(out, "OOM") || strings.Contains(out+pages.String(), "s3cret") {
		t.Errorf("%s", out)
	}
}
