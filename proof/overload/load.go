package main

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// patience is how long a client waits for a response.
const patience = time.Second

// A result is what came of a request.
type result struct {
	due       time.Duration // when it should have been sent, from the beginning of the phase
	took      time.Duration // from then until its response was read
	status    int           // 0: no response
	important bool
}

func (r result) served() bool { return r.status == http.StatusOK }

// A client sends requests to an address.
type client struct {
	http *http.Client
	url  string
}

func newClient(addr string) *client {
	return &client{url: "http://" + addr + "/", http: &http.Client{Transport: &http.Transport{
		MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true,
	}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// send sends a request, and gives up when a client would. The patience counts from when the request was
// due: a generator that is late does not give the service more time.
func (c *client) send(due time.Time, priority string) (status int) {
	ctx, cancel := context.WithDeadline(context.Background(), due.Add(patience))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return 0
	}
	if priority != "" {
		r.Header.Set("X-Priority", priority)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// A load is an open loop: requests at a constant rate, whether or not earlier ones have got their
// responses.
type load struct {
	rate      float64 // per second
	during    time.Duration
	important int // one of so many requests is critical_plus, and the others are sheddable; 0: none has a priority
}

// run sends the requests of a load, and returns when each has its response or has given up.
func (l load) run(c *client) []result {
	all := make([]result, int(l.rate*l.during.Seconds()))
	var pending sync.WaitGroup
	begin := time.Now()
	for i := range all {
		r := &all[i]
		r.due = time.Duration(float64(i) / l.rate * float64(time.Second))
		priority := ""
		if l.important > 0 {
			if priority = "sheddable"; i%l.important == 0 {
				priority, r.important = "critical_plus", true
			}
		}
		due := begin.Add(r.due)
		<-time.After(time.Until(due))
		pending.Go(func() {
			r.status = c.send(due, priority)
			r.took = time.Since(due)
		})
	}
	pending.Wait()
	return all
}

// most measures how many requests a second a service does, with a closed loop of a few clients.
func most(c *client, clients int, during time.Duration) float64 {
	var all sync.WaitGroup
	done := make([]int, clients)
	begin := time.Now()
	for i := range clients {
		all.Go(func() {
			for time.Since(begin) < during {
				if c.send(time.Now(), "") == http.StatusOK {
					done[i]++
				}
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range done {
		sum += n
	}
	return float64(sum) / time.Since(begin).Seconds()
}

// A summary is what the table says of a phase.
type summary struct {
	rate                      float64 // served per second
	p50, p99                  time.Duration
	served, refused, gaveUp   float64 // shares
	important, importantCount float64 // the share of the important ones that were served
}

// summaryOf counts the requests that were due from a time on.
func summaryOf(all []result, from, until time.Duration) (s summary) {
	var took []time.Duration
	n, important := 0.0, 0.0
	for _, r := range all {
		if r.due < from || r.due >= until {
			continue
		}
		n++
		switch {
		case r.served():
			took = append(took, r.took)
		case r.status == 0:
			s.gaveUp++
		default:
			s.refused++
		}
		if r.important {
			s.importantCount++
			if r.served() {
				important++
			}
		}
	}
	s.rate = float64(len(took)) / (until - from).Seconds()
	s.served, s.refused, s.gaveUp = float64(len(took))/max(n, 1), s.refused/max(n, 1), s.gaveUp/max(n, 1)
	s.important = important / max(s.importantCount, 1)
	if slices.Sort(took); len(took) > 0 {
		s.p50, s.p99 = took[len(took)/2], took[len(took)*99/100]
	}
	return s
}

// recovery returns when all was well again: the end of the last quarter of a second in which more than a
// twentieth of the requests was not served, or half took longer than slow.
func recovery(all []result, during, slow time.Duration) (d time.Duration) {
	const step = 250 * time.Millisecond
	for at := time.Duration(0); at < during; at += step {
		if s := summaryOf(all, at, at+step); s.served < 0.95 || s.p50 > slow {
			d = at + step
		}
	}
	return d
}
