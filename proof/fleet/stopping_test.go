package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weirflow/weir/proof/servers"
)

// TestStoppedInMidStream: a gateway that gets SIGTERM while a response streams has the reservation
// settled, once, if the response ends within the grace; otherwise the estimate stays charged.
func TestStoppedInMidStream(t *testing.T) {
	t.Parallel()
	s := servers.StartRedis(t, servers.RedisOptions{})
	finish := make(chan struct{}, 1)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.URL.Path == "/look" {
			return
		}
		io.WriteString(w, "data: {\"choices\":[]}\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-finish:
			io.WriteString(w, "data: {\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10}}\n\ndata: [DONE]\n\n")
		case <-r.Context().Done():
		}
	}))
	defer up.Close()
	policy := strings.NewReplacer("STORE", s.URL(), "UP", up.URL).Replace(`
stores: { shared: { url: "STORE", on_failure: deny, deadline: 10s } }
limits:
  tokens: { key: query.user, store: shared, token_bucket: { rate: 1/d, burst: 1000 }, cost: { before: 100, after: openai } }
upstreams: { up: { url: "UP", retries: 0 } }
routes: [{ match: /, upstream: up, limits: [tokens] }]
`)
	other := startWeir(t, policy)
	left := func(user string) int {
		t.Helper()
		_, h := other.get(t, "/look?user="+user)
		_, after, _ := strings.Cut(h.Get("RateLimit"), "r=")
		number, _, _ := strings.Cut(after, ";")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%v: %v", h, err)
		}
		return n + 100 // the estimate of this request
	}
	for i, c := range []struct {
		signal syscall.Signal
		grace  string
		ends   bool
		want   int
	}{
		{syscall.SIGTERM, "1m", true, 1000 - 29},
		{syscall.SIGTERM, "100ms", false, 1000 - 100},
		{syscall.SIGUSR2, "1m", true, 1000 - 29},
		{syscall.SIGUSR2, "100ms", false, 1000 - 100},
	} {
		user := fmt.Sprint(i)
		file := servers.PolicyIn(t, t.TempDir(), servers.FreePorts+policy)
		ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
		g, err := servers.StartWeir(ctx, binary, file.File, "--grace", c.grace)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Get("http://" + g.Gateway + "/stream?user=" + user)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, len("data:"))); err != nil {
			t.Fatal(err)
		}
		if err := g.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if c.signal == syscall.SIGUSR2 {
			successor := regexp.MustCompile(`"pid":(\d+)`)
			servers.Poll(t, "the new process", func() bool { return strings.Contains(g.Output(), "restarted: ") })
			if m := successor.FindStringSubmatch(g.Output()[strings.Index(g.Output(), "restarted: "):]); m != nil {
				pid, _ := strconv.Atoi(m[1])
				defer func() { _ = syscall.Kill(pid, syscall.SIGTERM) }()
			} else {
				t.Errorf("no process ID in the log:\n%s", g.Output())
			}
		} else {
			servers.Poll(t, "the shutdown", func() bool { return strings.Contains(g.Output(), "shutting down") })
		}
		if c.ends {
			finish <- struct{}{}
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if (err == nil) != c.ends {
			t.Errorf("%d: the response ends with %v", i, err)
		}
		<-g.Ended()
		if got := left(user); got != c.want {
			t.Errorf("%d: %v, grace %s: %d left, want %d\n%s", i, c.signal, c.grace, got, c.want, g.Output())
		}
	}
}
