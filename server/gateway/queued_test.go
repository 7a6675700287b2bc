package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const line = `
trusted_proxies: [127.0.0.1]
limits: { door: { leaky_bucket: { rate: 1/h, queue: 1000 } } }
upstreams: { up: { url: "URL" } }
routes: [{ match: /, upstream: up, limits: [door], waiting: { max: 8, per_client: 3 } }]
`

// crowd is a number of clients that wait.
type crowd struct {
	t  *testing.T
	wg sync.WaitGroup
}

// joins has a client send a request, and stay until the returned function is called. The response's
// status goes to the channel.
func (c *crowd) joins(url, client string) (got chan int, leave context.CancelFunc) {
	ctx, leave := context.WithCancel(c.t.Context())
	got = make(chan int, 1)
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", client)
	c.wg.Go(func() {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			got <- 0
			return
		}
		resp.Body.Close()
		got <- resp.StatusCode
	})
	return got, leave
}

// TestOneClientDoesNotFillTheQueue: there is a bound for each client, and one for all together.
func TestOneClientDoesNotFillTheQueue(t *testing.T) {
	for name, limit := range map[string]string{
		"leaky_bucket": "door: { leaky_bucket: { rate: 1/h, queue: 1000 } }",
		"concurrency":  "door: { concurrency: { limit: 1, queue: 1000 } }",
		"nginx_bucket": "door: { nginx_bucket: { rate: 1/m, queue: 1000 } }",
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan struct{})
			g, front, _ := start(t, strings.Replace(line, "door: { leaky_bucket: { rate: 1/h, queue: 1000 } }", limit, 1), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name == "concurrency" {
					<-end
				}
			}))
			defer close(end)
			c := &crowd{t: t}
			first := func() {}
			if name == "concurrency" {
				_, first = c.joins(front.URL, "192.0.2.1")
				until(t, func() bool { return g.Upstreams()[0].Targets[0].InFlight == 1 })
			} else {
				get(t, front.URL, "X-Forwarded-For", "192.0.2.1")
			}
			var leaves []context.CancelFunc
			defer func() {
				first()
				for _, leave := range leaves {
					leave()
				}
				c.wg.Wait()
			}()
			ask := func(client string, n int) (refused int) {
				for range n {
					before := g.Queued()
					got, leave := c.joins(front.URL, client)
					leaves = append(leaves, leave)
					until(t, func() bool { return g.Queued() == before+1 || len(got) > 0 })
					if len(got) > 0 && <-got == 429 {
						refused++
					}
				}
				return refused
			}
			if n := ask("192.0.2.1", 20); n != 17 {
				t.Errorf("of one client, %d of 20 were refused", n)
			}
			if n := ask("192.0.2.2", 5); n != 2 {
				t.Errorf("of the second, %d of 5 were refused", n)
			}
			if n := ask("192.0.2.3", 5); n != 3 { // there are 8 places
				t.Errorf("of the third, %d of 5 were refused", n)
			}
			if got := g.Counts(); got.QueueFull != 17+2+3 || got.Limited != got.QueueFull {
				t.Errorf("%+v", got)
			}
			// A client that leaves makes room at once, for itself and for others.
			leaves[0]()
			until(t, func() bool { return g.Queued() == 7 })
			if n := ask("192.0.2.1", 1); n != 0 {
				t.Error("the place of one who left is not free")
			}
			// After a change of the policy, the waiting requests still count.
			next := strings.Replace(strings.Replace(line, "door: { leaky_bucket: { rate: 1/h, queue: 1000 } }", limit, 1), "max: 8", "max: 9", 1)
			if err := g.Update(parse(t, next, g.File().Policy.Upstreams[0].URL)); err != nil {
				t.Fatal(err)
			}
			if n := ask("192.0.2.4", 5); n != 4 {
				t.Errorf("after a change, %d of 5 were refused", n)
			}
		})
	}
}

// TestLeavingAQueueWithUnreadBytes: a client that disconnects while it waits leaves the queue: with an
// unread body, with a pipelined request, and over HTTP/2.
func TestLeavingAQueueWithUnreadBytes(t *testing.T) {
	up := httptest.NewServer(echo)
	t.Cleanup(up.Close)
	text := strings.ReplaceAll(line, "per_client: 3", "per_client: 8")
	for name, sent := range map[string][2]string{ // at first, and while it waits
		"nothing more":        {"GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		"a request ahead":     {"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		"a byte ahead":        {"GET / HTTP/1.1\r\nHost: h\r\n\r\nG"},
		"a byte later":        {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "G"},
		"a request later":     {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		"a body":              {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"},
		"a body later":        {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", "hello"},
		"a part of a body":    {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5000\r\n\r\nhello"},
		"a body to be asked":  {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"},
		"a body and a second": {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: h\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s := front(t, text, up.URL)
			get(t, s.URL)
			for _, linger := range []int{-1, 0} { // 0: a reset
				conn, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				io.WriteString(conn, sent[0])
				until(t, func() bool { return g.Queued() == 1 })
				io.WriteString(conn, sent[1])
				conn.(*net.TCPConn).SetLinger(linger)
				conn.Close()
				until(t, func() bool { return g.Queued() == 0 && g.Engine().Counts()[0].Waiting == 0 })
			}
			if got := g.Counts(); got.QueueFull != 0 || got.Canceled != 2 {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("over HTTP/2", func(t *testing.T) {
		t.Parallel()
		g, s := front(t, text, up.URL)
		get(t, s.URL)
		client := h2c(t)
		for _, body := range []io.Reader{nil, strings.NewReader("hello")} {
			ctx, cancel := context.WithCancel(t.Context())
			r, err := http.NewRequestWithContext(ctx, "POST", s.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := client.Do(r)
				done <- err
			}()
			until(t, func() bool { return g.Queued() == 1 })
			cancel()
			<-done
			until(t, func() bool { return g.Queued() == 0 })
		}
	})
}

// TestQueueKeepsOrder: requests go in the order in which they came. If the machine stands still, the
// turns of several come at the same moment, and they may overtake each other on the way to the
// upstream: of several attempts one has to be in order.
func TestQueueKeepsOrder(t *testing.T) {
	const want = "/first /0 /1 /2 /3 /4 /5 /6 /7 /8 /9"
	got := ""
	for try := 0; got != want; try++ {
		if try == 5 {
			t.Fatal(got)
		}
		got = strings.Join(queuedInOrder(t, 10), " ")
	}
}

// queuedInOrder sends a request that is served at once, and n that are queued one after another. It
// returns their paths in the order in which they reach the upstream.
func queuedInOrder(t *testing.T, n int) (order []string) {
	t.Helper()
	var mu sync.Mutex
	g, front, _ := start(t, strings.ReplaceAll(strings.ReplaceAll(line, "rate: 1/h", "rate: 20/s"), "max: 8, per_client: 3", "max: 100"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, r.URL.Path)
	}))
	get(t, front.URL+"/first")
	came := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(order)
	}
	c := &crowd{t: t}
	for i := range n {
		_, leave := c.joins(fmt.Sprintf("%s/%d", front.URL, i), "192.0.2.1")
		defer leave()
		until(t, func() bool { return g.Counts().Delayed == uint64(i+1) || came()+g.Queued() >= i+2 })
	}
	c.wg.Wait()
	return order
}

// TestWaitForAPlaceEnds: a request that waits for a place is refused after `waiting.timeout`, as by the
// limit, and leaves the queue. A request that gets its place in time is not.
func TestWaitForAPlaceEnds(t *testing.T) {
	end := make(chan struct{})
	policy := strings.Replace(line, "door: { leaky_bucket: { rate: 1/h, queue: 1000 } }", "door: { concurrency: { limit: 1, queue: 1000 } }", 1)
	policy = strings.Replace(policy, "max: 8", "max: 8, timeout: 20ms", 1)
	g, front, _ := start(t, policy, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	c := &crowd{t: t}
	defer c.wg.Wait()
	_, leave := c.joins(front.URL, "192.0.2.1")
	defer leave()
	defer close(end)
	until(t, func() bool { return g.Upstreams()[0].Targets[0].InFlight == 1 })
	resp, _ := get(t, front.URL, "X-Forwarded-For", "192.0.2.2")
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("%d, Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if got := g.Counts(); g.Queued() != 0 || got.Limited != 1 || got.Canceled != 0 {
		t.Errorf("%d queued, %+v", g.Queued(), got)
	}
}
