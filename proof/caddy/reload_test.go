package caddy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir/proof/servers"
)

// Requests under load are counted exactly, over HTTP/1 and HTTP/2, also while the configuration is
// replaced again and again: no request fails, and no count is lost or taken twice. (While it replaces
// its configuration, Caddy itself resets some connections of HTTP/1, so those requests come first.)
func TestReloadsUnderLoad(t *testing.T) {
	const limit, before, requests = 3000, 2000, 10_000
	const options = "servers {\nprotocols h1 h2c\n}"
	sites := func(i int) string {
		return "http://SITE {\nweir {\n" + hourly("all", limit, "key {client_ip}") + fmt.Sprintf("}\nrespond \"version %d\"\n}", i)
	}
	s := start(t, options, sites(0))
	first := s.many(&http.Transport{MaxIdleConnsPerHost: callers}, before, func() { <-time.After(time.Millisecond) })
	if first[200] != before {
		t.Fatalf("%v without a reload, want %d times 200", first, before)
	}
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	reloads := 0
	then := s.many(&http.Transport{Protocols: &h2}, requests-before, func() {
		reloads++
		s.mustLoad(options, sites(reloads))
	})
	if then[200] != limit-before || then[429] != requests-limit || reloads < 2 {
		t.Errorf("%v with %d reloads, want %d times 200 and %d times 429", then, reloads, limit-before, requests-limit)
	}
}

const callers = 16

// many sends requests to the site, several at a time, and calls meanwhile until all are sent. It returns
// how many got which status.
func (s *server) many(transport *http.Transport, n int64, meanwhile func()) map[int]int64 {
	s.t.Helper()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var byStatus [600]atomic.Int64
	var left atomic.Int64
	left.Store(n)
	var done sync.WaitGroup
	for range callers {
		done.Go(func() {
			for left.Add(-1) >= 0 {
				response, err := client.Get("http://" + s.site + "/")
				if err != nil {
					s.t.Errorf("a request failed: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				byStatus[response.StatusCode].Add(1)
			}
		})
	}
	for left.Load() > 0 {
		meanwhile()
	}
	done.Wait()
	all := map[int]int64{}
	for status := range byStatus {
		if n := byStatus[status].Load(); n > 0 {
			all[status] = n
		}
	}
	return all
}

// A limit that changes keeps what was used. A configuration that cannot start changes nothing, even if
// its limits were in force for a moment.
func TestReloadKeeps(t *testing.T) {
	site := func(n int, more string) string {
		return "http://SITE {\nweir {\n" + hourly("mine", n, "key {client_ip}") + "}\nrespond ok\n}\n" + more
	}
	s := start(t, "", site(3, ""))
	s.want("/", nil, 200, 200)
	s.mustLoad("", site(4, ""))
	s.want("/", nil, 200, 200, 429)

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for range 3 { // apps start in any order
		if status, body := s.load("", site(100, "http://"+taken.Addr().String()+" {\nrespond no\n}")); status == 200 {
			t.Fatal(body)
		}
		s.want("/", nil, 429)
	}
	if status, body := s.load("", strings.Replace(site(5, ""), "window=9000h", "window=often", 1)); status != 400 || !strings.Contains(body, "often") {
		t.Fatalf("%d %s", status, body)
	}
	s.want("/", nil, 429)
	s.mustLoad("", site(5, ""))
	s.want("/", nil, 200, 429)
	s.mustLoad("", "http://SITE {\nrespond ok\n}")
	s.want("/", nil, 200, 200)
	s.mustLoad("", site(1, "")) // nothing was kept meanwhile
	s.want("/", nil, 200, 429)
}

// A configuration without limits ends all that they had started, also if a request of the old one is
// still in flight.
func TestNothingIsLeft(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	upstream := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		fmt.Fprint(w, "slow")
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); upstream.Serve(l) }()
	defer func() { upstream.Close(); <-served }()

	s := start(t, "", "http://SITE {\nweir {\n"+hourly("mine", 5, "key {client_ip}")+"}\nreverse_proxy "+l.Addr().String()+"\n}")
	goroutines := func() int {
		_, text := s.send("GET", s.admin, "/debug/pprof/goroutine?debug=2", "")
		return strings.Count(text, "weircaddy.(*process).tick") + strings.Count(text, "weir/keyed") + strings.Count(text, "server/active")
	}
	if goroutines() == 0 {
		t.Fatal("nothing is found, so nothing could be left")
	}
	slow := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.site+"/", nil)
		if err == nil {
			var response *http.Response
			if response, err = http.DefaultClient.Do(r); err == nil {
				response.Body.Close()
				if response.StatusCode != 200 {
					err = fmt.Errorf("status %d", response.StatusCode)
				}
			}
		}
		slow <- err
	}()
	<-entered
	s.mustLoad("", "http://SITE {\nrespond ok\n}")
	close(leave)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	servers.Poll(t, "no goroutine of the module is left", func() bool { return goroutines() == 0 })
}
