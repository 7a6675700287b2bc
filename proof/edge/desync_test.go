package edge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

var (
	desyncStreams = flag.Int("desync.streams", 15, "streams of each round for each upstream and engine of the search for desyncs")
	desyncRound   = flag.Int("desync.round", 0, "the first round of the search for desyncs")
)

// plans are the ways through the gateway: each upstream with bodies buffered, and not.
func plans(t *testing.T) (all []plan) {
	t.Helper()
	for name, addr := range observers(t) {
		p := plan{upstream: name, addr: addr, noChunks: name == "uwsgi" || name == "apache"}
		if all = append(all, p); !p.noChunks {
			p.settings = "buffer_request: off,"
			all = append(all, p)
		}
	}
	return append(all, plan{upstream: "h2c", settings: "protocol: h2c,", http2: true})
}

func (p plan) name() string {
	if p.unbuffered() && !p.http2 {
		return p.upstream + "-unbuffered"
	}
	return p.upstream
}

// TestDesync: whatever bytes a client sends, over HTTP/1 and HTTP/2, in clear and over TLS, an
// upstream reads the requests that the gateway has counted and logged, each with the same method,
// target, host and body, and no other; each response reaches the client and the request that it is for.
func TestDesync(t *testing.T) {
	all := plans(t)
	end := time.Now().Add(*guard)
	for round := *desyncRound; round == *desyncRound || time.Now().Before(end); round++ {
		for _, p := range all {
			t.Run(p.name(), func(t *testing.T) { desyncs(t, p, round) })
		}
		if t.Failed() {
			t.Fatalf("this round again: WEIR_SEED=%d GOWORK=off go test ./edge -run %s -desync.round=%d -desync.streams=%d", seeds.Seed(), t.Name(), round, *desyncStreams)
		}
	}
}

// volley is what one connection of a client sends.
type volley struct {
	http1   *stream
	http2   []draft2
	cut     int
	overTLS bool
}

// volleys draws what is sent in a round.
func volleys(rng *rand.Rand, host string, n int) (all []volley) {
	g := drawer{rng, host}
	for i := range n {
		for kind := range 4 { // the engines: HTTP/1 and HTTP/2, in clear and over TLS
			v, id := volley{overTLS: kind >= 2}, fmt.Sprintf("s%d%c", i, 'a'+kind)
			if kind%2 == 0 {
				s := g.stream(id)
				v.http1 = &s
			} else {
				for k := range 1 + g.IntN(4) {
					v.http2 = append(v.http2, g.draft2(fmt.Sprintf("%s-%d", id, k)))
				}
				v.cut = g.IntN(3) * g.IntN(60)
			}
			all = append(all, v)
		}
	}
	return all
}

// fire plays volleys, some side by side: their requests share connections to the upstream.
func (a *arena) fire(all []volley) {
	next := make(chan volley)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for v := range next {
				if v.http1 != nil {
					a.play1(*v.http1, v.overTLS)
				} else {
					a.play2(v.http2, v.cut, v.overTLS)
				}
			}
		})
	}
	for _, v := range all {
		next <- v
	}
	close(next)
	wg.Wait()
}

func desyncs(t *testing.T, p plan, round int) {
	rng := seeds.Of(fmt.Sprintf("desync of %s, round %d", p.name(), round))
	all := volleys(rng, p.upstream+".test", *desyncStreams)
	a := newArena(t, p)
	a.fire(all)
	passed := a.finish(t)
	t.Logf("%s: %d connections, %d requests reached the upstream", p.name(), len(all), passed)
	if passed < len(all)/2 {
		t.Error("the search has become blind: hardly anything reaches the upstream")
	}
	for i, f := range a.failures {
		if i == 5 {
			t.Errorf("and %d more", len(a.failures)-i)
			break
		}
		t.Error(f)
	}
	if len(a.failures) > 0 {
		smallest(t, p, all, strings.Join(a.failures, "\n"))
	}
}

// smallest looks for one stream that fails by itself, and leaves out what it fails without.
func smallest(t *testing.T, p plan, all []volley, failures string) {
	t.Helper()
	tries := 0
	fails := func(s stream, overTLS bool) bool {
		tries++
		a := newArena(t, p)
		a.play1(s, overTLS)
		a.finish(t)
		return len(a.failures) > 0
	}
	for _, v := range all {
		if v.http1 == nil || !strings.Contains(failures, v.http1.id) || tries > 10 || !fails(*v.http1, v.overTLS) {
			continue
		}
		s := *v.http1
		for i := len(s.messages) - 1; i >= 0 && tries < 60; i-- {
			less := s
			if less.messages = slices.Delete(slices.Clone(s.messages), i, i+1); fails(less, v.overTLS) {
				s = less
			}
		}
		for i := range s.messages {
			for k := len(s.messages[i].fields) - 1; k >= 0 && tries < 60; k-- {
				if strings.HasPrefix(s.messages[i].fields[k], "User-Agent:") {
					continue // by it a request is found
				}
				less := s
				less.messages = slices.Clone(s.messages)
				less.messages[i].fields = slices.Delete(slices.Clone(s.messages[i].fields), k, k+1)
				if fails(less, v.overTLS) {
					s = less
				}
			}
		}
		t.Errorf("the smallest stream that fails, in %d parts, over TLS %v: %q", s.cuts, v.overTLS, s)
		return
	}
	t.Log("no stream fails by itself: run the round again")
}
