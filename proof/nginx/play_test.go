package nginx

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// outcome is the result of a request at one server.
type outcome struct {
	status     int
	sent, came time.Duration // since the sequence began
	err        error
}

// player sends sequences to both servers.
type player struct {
	servers [2]string // nginx and the gateway, as URLs
	client  *http.Client
}

// names of the servers.
var names = [2]string{"nginx", "weir"}

func newPlayer(nginx, gateway string) *player {
	return &player{[2]string{"http://" + nginx, "http://" + gateway}, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}}
}

// play sends each request to both servers at its time, and waits for all responses.
func (p *player) play(ctx context.Context, s *sequence, id string) (all [2][]outcome) {
	for i := range all {
		all[i] = make([]outcome, len(s.requests))
	}
	began := time.Now()
	var wg sync.WaitGroup
	for i, r := range s.requests {
		timer := time.NewTimer(r.at - time.Since(began))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return all
		}
		a := r.ask(id)
		for server := range all {
			o := &all[server][i]
			wg.Go(func() { p.send(ctx, p.servers[server]+location(s.class, s.variant), a, began, o) })
		}
	}
	wg.Wait()
	return all
}

func (p *player) send(ctx context.Context, url string, a ask, began time.Time, o *outcome) {
	if a.query != "" {
		url += "?" + a.query
	}
	r, err := http.NewRequestWithContext(ctx, a.method, url, nil)
	if err != nil {
		o.err = err
		return
	}
	for name, value := range a.fields {
		r.Header[http.CanonicalHeaderKey(name)] = []string{value}
	}
	if a.hold > 0 {
		r.Header.Set("Hold", a.hold.String())
	}
	o.sent = time.Since(began)
	resp, err := p.client.Do(r)
	if err == nil {
		o.status = resp.StatusCode
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	o.came, o.err = time.Since(began), err
}

// verdict is the result of playing a sequence.
type verdict uint8

const (
	same verdict = iota
	late         // requests or answers took too long for it to be compared
	different
)

// within is the largest difference between the delays of the two servers.
const within = 20 * time.Millisecond

// judge compares the outcomes with the plan, and the two servers with each other.
func judge(s *sequence, all [2][]outcome) (v verdict, apart []time.Duration) {
	for i, r := range s.requests {
		for _, server := range all {
			o := server[i]
			if o.err != nil || o.sent > r.at+s.margin || r.delay == 0 && o.status == r.status && o.came > r.at+s.margin {
				return late, nil
			}
			if o.status != r.status && o.came > r.at+s.margin {
				v = max(v, late) // it may have come when another answer was right
			}
			if o.status == r.status && r.delay > 0 && o.came > r.at+r.delay+s.margin {
				return late, nil
			}
		}
	}
	for i, r := range s.requests {
		a, b := all[0][i], all[1][i]
		if a.status != b.status || a.status != r.status {
			return max(v, different), nil
		}
		if r.delay > 0 {
			d := max(a.came-b.came, b.came-a.came)
			if apart = append(apart, d); d > within {
				return different, apart
			}
		}
	}
	return v, apart
}

// tell describes what came.
func tell(s *sequence, all [2][]outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  (%d %v)\n", location(s.class, s.variant), s.of.status, s.of.location)
	for i, r := range s.requests {
		a := r.ask("ID")
		fmt.Fprintf(&b, "  at %-8v %s %s %v hold=%v -> planned %d after %v", r.at, a.method, a.query, a.fields, a.hold, r.status, r.delay)
		for server, o := range all {
			o := o[i]
			fmt.Fprintf(&b, ", %s %d after %v", names[server], o.status, (o.came - o.sent).Round(time.Millisecond))
			if o.err != nil {
				fmt.Fprintf(&b, " (%v)", o.err)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
