package main

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/didip/tollbooth/v7"
	tollboothlimiter "github.com/didip/tollbooth/v7/limiter"
	"github.com/go-chi/httprate"
	ulule "github.com/ulule/limiter/v3"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirflow/weir"
	weirkeyed "github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirhttp"
)

// The references of middleware.
const (
	emptyHandler = "empty handler"
	byHand       = "x/time by hand"
	peerHTTPRate = "httprate"
)

// onTop is how many ns a keyed limit in memory that admits may cost on top of an empty handler.
const onTop = 150

// middleware measures a limit by client address around a handler that does nothing, admitted.
func middleware(r *report) error {
	for _, procs := range crews() {
		c := middlewareContest(procs)
		outcomes, err := c.run(r.rounds, r.round)
		if err != nil {
			return err
		}
		r.add(middlewareTable(c, outcomes))
	}
	return nil
}

// middlewareTable adds a column with what each line costs on top of the empty handler.
func middlewareTable(c contest, outcomes []outcome) table {
	more := map[string]float64{}
	for i, s := range c.subjects {
		if s.name == emptyHandler {
			continue
		}
		over := make([]float64, len(outcomes[i].perOp))
		for round, ns := range outcomes[i].perOp {
			over[round] = ns - outcomes[0].perOp[round]
		}
		more[s.name] = median(over)
	}
	c.facts = []fact{{column{"ns on top", 1}, more}}
	t := c.table(outcomes)
	for i, s := range c.subjects {
		if row := &t.Rows[i]; row.Target != "" {
			text, missed := atMost(more[s.name], onTop, "ns on top")
			row.Target, row.Missed = row.Target+", "+text, row.Missed || missed
		}
	}
	return t
}

// addresses is how many clients there are: every middleware knows all of them.
const addresses = 1000

func middlewareContest(procs int) contest {
	lean, few := []target{{"", 0}}, []target{{"", 0.1}} // the fields of about thirty responses share an allocation
	with := func(key weirhttp.KeyFunc, options ...weirhttp.Option) func() loop {
		return func() loop {
			l, err := weirkeyed.New[string](weir.TokenBucket{Rate: weir.PerSecond(1000), Burst: many}, weirkeyed.Options{Name: "per-client"})
			if err != nil {
				panic(err) // these are constants
			}
			return handlerLoop(weirhttp.Limit(weirhttp.Keyed(l), key, options...)(http.HandlerFunc(empty)))
		}
	}
	return contest{
		title:   "admitted, " + where(procs),
		procs:   procs,
		against: []string{byHand, peerHTTPRate},
		notes: []string{
			fmt.Sprintf("a limit for each of %d client addresses, around a handler that does nothing; every request is admitted,\n  and no client is idle: a bucket that is full again would be the state of a new client", addresses),
			"ns on top: the line's time less that of the empty handler in the same round",
		},
		subjects: []subject{
			{emptyHandler, func() loop { return handlerLoop(http.HandlerFunc(empty)) }, allYes, nil},
			{"weirhttp ByIP", with(weirhttp.ByIP(), weirhttp.Headers()), allYes, lean},
			{"weirhttp ByHeader", with(weirhttp.ByHeader("X-Api-Key"), weirhttp.Headers()), allYes, lean},
			{"weirhttp ByIP, RateLimit", with(weirhttp.ByIP()), allYes, few},
			{"weirhttp ByIP, X-RateLimit", with(weirhttp.ByIP(), weirhttp.Headers(policy.HeaderXRateLimit)), allYes, few},
			{byHand, func() loop { return handlerLoop(limitedByHand(http.HandlerFunc(empty))) }, allYes, nil},
			{peerHTTPRate + ", X-RateLimit", httprateLoop, allYes, nil},
			{peerHTTPRate, httprateBareLoop, allYes, nil},
			{"tollbooth v7, X-Rate-Limit", tollboothLoop, allYes, nil},
			{"ulule/limiter v3, X-RateLimit", ululeLoop, allYes, nil},
		},
	}
}

func empty(http.ResponseWriter, *http.Request) {}

// A sink is a ResponseWriter that keeps the header and the status alone.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(status int)      { s.status = status }

// handlerLoop sends requests from all addresses in turn. The handler has seen each of them before.
//
//go:noinline
func handlerLoop(h http.Handler) loop {
	requests := make([]*http.Request, addresses)
	for i := range requests {
		r, err := http.NewRequest(http.MethodGet, "http://shop.example/", http.NoBody)
		if err != nil {
			panic(err) // the request is a constant
		}
		addr := net.IPv4(10, 0, byte(i>>8), byte(i)).String()
		r.RemoteAddr = addr + ":4321"
		r.Header.Set("X-Api-Key", addr)
		requests[i] = r
		h.ServeHTTP(&sink{header: http.Header{}}, r)
	}
	return func(n int) (yes int) {
		w := &sink{header: http.Header{}}
		for i := range n {
			w.status = http.StatusOK
			h.ServeHTTP(w, requests[i%addresses])
			clear(w.header)
			if w.status == http.StatusOK {
				yes++
			}
		}
		return yes
	}
}

// limitedByHand is what people write over x/time: a map of limiters by address. It never forgets one.
func limitedByHand(next http.Handler) http.Handler {
	var mu sync.Mutex
	all := map[string]*rate.Limiter{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		mu.Lock()
		l := all[host]
		if l == nil {
			l = rate.NewLimiter(1000, many)
			all[host] = l
		}
		mu.Unlock()
		if !l.Allow() {
			http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// peerAddress is httprate's own key of this kind, which is deprecated because of proxies.
func peerAddress(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

func httprateLoop() loop {
	return handlerLoop(httprate.LimitBy(many, time.Minute, peerAddress)(http.HandlerFunc(empty)))
}

// httprateBareLoop is httprate without header fields.
func httprateBareLoop() loop {
	return handlerLoop(httprate.LimitBy(many, time.Minute, peerAddress, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))(http.HandlerFunc(empty)))
}

func tollboothLoop() loop {
	l := tollbooth.NewLimiter(1000, &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
	l.SetBurst(math.MaxInt32).SetIPLookups([]string{"RemoteAddr"})
	return handlerLoop(tollbooth.LimitHandler(l, http.HandlerFunc(empty)))
}

func ululeLoop() loop {
	l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: time.Hour, Limit: math.MaxInt64})
	return handlerLoop(ululehttp.NewMiddleware(l).Handler(http.HandlerFunc(empty)))
}
