package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/failover"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirhttp"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// measured is how long each case of several processes runs. What they reach is asserted only if it is
// given: the machine may be busy.
var measured = flag.Duration("measured", 0, "how long several processes are measured, in real time; asserts what they reach")

// workerTask is the environment variable that makes this program a process with a client.
const workerTask = "WEIR_TRANSPORT_TASK"

// A task is what a process has to do.
type task struct {
	URL        string // of the upstream
	Redis      string
	Client     string
	Pace       weir.TokenBucket // the limit that the processes share
	Goroutines int
}

// processes is how many there are.
const processes = 4

func TestMain(m *testing.M) {
	if text := os.Getenv(workerTask); text != "" {
		var w task
		err := json.Unmarshal([]byte(text), &w)
		if err == nil {
			err = w.run()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// run sends requests from a line on standard input to its end.
func (w task) run() error {
	store, err := weirrueidis.Open(w.Redis, weirredis.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Ready(context.Background()); err != nil {
		return err
	}
	rt, err := w.client(store)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil // the test has ended
	}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range w.Goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				send(ctx, rt, w.URL)
			}
		})
	}
	_, _ = io.Copy(io.Discard, in)
	stop()
	all.Wait()
	return nil
}

// send sends a request, and reads its response.
func send(ctx context.Context, rt http.RoundTripper, url string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// client is the RoundTripper of a process.
func (w task) client(store weir.Store) (http.RoundTripper, error) {
	base := &http.Transport{MaxIdleConnsPerHost: w.Goroutines}
	switch w.Client {
	case "Transport with Pace":
		shared, err := weir.NewShared(w.Pace, store, weir.Named("upstream"))
		if err != nil {
			return nil, err
		}
		// the store may take its time on a busy machine: its outages are not what is measured
		fallback := weirhttp.Fallback(failover.Options{OnFailure: failover.Local, Nodes: processes, Deadline: 2 * time.Second})
		return weirhttp.NewTransport(base, weirhttp.Pace(shared, weirhttp.Global(), fallback), weirhttp.SharePauses(store, "pauses")), nil
	case "Transport":
		return weirhttp.NewTransport(base, weirhttp.Processes(processes), weirhttp.SharePauses(store, "pauses")), nil
	case "go-retryablehttp":
		return retryable(base), nil
	}
	return nil, fmt.Errorf("no client %q", w.Client)
}

// TestProcesses: four processes over a real redis-server, before a real HTTP server with a hidden
// limit. With a limit in the store they use at least 95 % of it together, and fewer than 1 request of
// 1000 is refused.
func TestProcesses(t *testing.T) {
	redis := servers.StartRedis(t, servers.RedisOptions{})
	const limit = 400
	run := *measured
	if run == 0 {
		run = 500 * time.Millisecond
	}
	var table strings.Builder
	for _, l := range []struct {
		name  string
		limit func() hidden
		pace  weir.TokenBucket
	}{
		{"token bucket 400/s, burst 400", func() hidden { return &bucket{perSecond: limit, burst: limit} }, weir.TokenBucket{Rate: weir.PerSecond(392), Burst: 200}},
		{"fixed window 400 per 1s", func() hidden { return &window{limit: limit, length: time.Second} }, weir.TokenBucket{Rate: weir.PerSecond(384), Burst: 12}},
	} {
		for _, c := range []struct {
			client string
			tells  fields
			holds  bool
		}{
			{"Transport with Pace", noFields, true},
			{"Transport with Pace", allFields, true},
			{"Transport", allFields, false},
			{"Transport", retryAfter, false},
			{"go-retryablehttp", retryAfter, false},
		} {
			if !c.holds && !*compare || *measured == 0 && c.tells != noFields {
				continue
			}
			u := &upstream{limit: l.limit(), tells: c.tells}
			r := together(t, u, task{Redis: "redis://" + redis.Addr + "/0", Client: c.client, Pace: l.pace, Goroutines: 12}, run)
			name := fmt.Sprintf("%-29s  %d processes  %-19s  %-11s", l.name, processes, c.client, c.tells)
			fmt.Fprintf(&table, "%s  %v\n", name, r)
			switch {
			case r.sent == 0:
				t.Errorf("%s: no request was sent", name)
			case *measured > 0 && c.holds && (r.goodput < 0.95 || r.refused > 0.001):
				t.Errorf("%s  %v", name, r)
			}
			if _, err := redis.Do(t.Context(), "FLUSHALL"); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("\n%s", table.String())
}

// together runs the processes for a time.
func together(t *testing.T, u *upstream, w task, d time.Duration) result {
	t.Helper()
	server := httptest.NewServer(u)
	defer server.Close()
	w.URL = server.URL
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	ins := make([]io.WriteCloser, processes)
	outs := make([]io.Reader, processes)
	all := make([]*exec.Cmd, processes)
	for i := range ins {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), workerTask+"="+string(text), "GORACE=atexit_sleep_ms=0")
		cmd.Stderr = os.Stderr
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ins[i], outs[i], all[i] = in, out, cmd
	}
	for _, out := range outs {
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	u.mu.Lock()
	u.start = time.Now()
	u.mu.Unlock()
	for _, in := range ins {
		if _, err := io.WriteString(in, "begin\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := pause.For(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r := u.result(time.Since(u.start))
	for _, in := range ins {
		in.Close()
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	return r
}
