package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/decisions"
)

// observed measures what metrics, the most refused keys and the dashboard add to decisions.
func observed(r *report) error {
	for _, procs := range crews() {
		for _, yes := range []bool{true, false} {
			c := observedContest(yes, procs)
			outcomes, err := c.run(r.rounds, r.round)
			if err != nil {
				return err
			}
			r.add(c.table(outcomes))
		}
	}
	return polling(r)
}

// The subjects of observed.
const (
	unobserved = "neither"
	observing  = "metrics, and a sketch of the keys"
)

// observedKeys is how many keys there are. The first decisions are not measured: each of the first 20,000 of a limit is counted for
// its key, and later one of 16.
const (
	observedKeys  = 10_000
	observedFirst = 50_000
)

// observedContest decides about requests of many clients, all admitted or nearly all refused.
func observedContest(yes bool, procs int) contest {
	what, answers := "admitted", allYes
	limit := weir.TokenBucket{Rate: weir.PerSecond(1e6), Burst: many}
	if !yes {
		what, answers, limit = "refused", either, weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}
	}
	requests := make([]policy.Request, observedKeys)
	for i := range requests {
		requests[i] = policy.Request{Method: "GET", Path: "/", Client: fmt.Sprintf("10.0.%d.%d", i>>8, i&255)}
	}
	deciding := func(o policy.Options) func() loop {
		return func() loop {
			e, err := policy.New(policy.Policy{
				Limits: []policy.Limit{{Name: "per-client", Key: []string{"client.ip"}, Limit: limit}},
				Routes: []policy.Route{{Match: "/", Limits: []string{"per-client"}, Respond: policy.Response{Status: 204}}},
			}, o)
			if err != nil {
				panic(err) // these are constants
			}
			for i := range observedFirst {
				e.Decide(requests[i%len(requests)])
			}
			return func(n int) (yes int) {
				for i := range n {
					if v := e.Decide(requests[i%len(requests)]); v.Outcome == policy.Allow {
						yes++
					}
				}
				return yes
			}
		}
	}
	return contest{
		title:   what + ", " + where(procs),
		procs:   procs,
		against: []string{unobserved},
		notes:   []string{fmt.Sprintf("Decide about requests of %d clients, with histograms and the 100 most refused and heaviest keys of weir serve, and without", observedKeys)},
		subjects: []subject{
			{unobserved, deciding(policy.Options{}), answers, nil},
			{observing, func() loop { return deciding(policy.Options{Observer: decisions.New(), Top: 100})() }, answers, []target{{unobserved, 1.1}}},
		},
	}
}

// Polls of a page of the dashboard: the counters every two seconds, and keys every six.
const (
	liveEvery  = 2 * time.Second
	keysEvery  = 6 * time.Second
	pollLimits = 20
	pollCalls  = 500
)

// polling measures the processor time that an open page of the dashboard takes of a server: what one poll takes, however many
// decisions there were, times the polls of a second.
func polling(r *report) (err error) {
	dir, err := os.MkdirTemp("", "weir-bench-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	binary, err := servers.BuildWeir(ctx, dir)
	if err != nil {
		return err
	}
	var names []string
	text := "listen: { gateway: \"127.0.0.1:0\", admin: \"127.0.0.1:0\" }\nlimits:\n"
	for i := range pollLimits {
		names = append(names, fmt.Sprintf("limit%d", i))
		text += "  " + names[i] + ": { key: header.user, on_missing: skip, token_bucket: { rate: 1/d, burst: 1 } }\n"
	}
	text += "routes: [{ match: /, limits: [" + strings.Join(names, ", ") + "], respond: { status: 204 } }]\n"
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	server, err := servers.StartWeir(ctx, binary, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	call := func(address, path string, header http.Header) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			return err
		}
		req.Header = header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests || resp.StatusCode >= 500 {
			err = fmt.Errorf("%s: status %d", path, resp.StatusCode)
		}
		return errors.Join(err, resp.Body.Close())
	}
	for i := range 2000 { // keys, which the sketches then have
		if err := call(server.Gateway, "/", http.Header{"User": {fmt.Sprint("user", i%500)}}); err != nil {
			return err
		}
	}
	t := table{
		Title:   fmt.Sprintf("an open page of the dashboard, %d limits", pollLimits),
		Notes:   []string{"processor time of the server for a poll, times the polls of a second: it does not depend on the number of decisions"},
		Columns: []column{{"us of CPU each", 0}, {"% of a core", 3}},
	}
	whole := 0.0
	for _, poll := range []struct {
		name, path string
		every      time.Duration
	}{{"counters", "/v1/live", liveEvery}, {"keys", "/v1/keys?limit=limit0&n=20", keysEvery}} {
		each, err := cpuOf(server.Pid(), r.repeats(), func() error { return call(server.Admin, poll.path, http.Header{}) })
		if err != nil {
			return err
		}
		share := 100 * each.Seconds() / poll.every.Seconds()
		whole += share
		t.Rows = append(t.Rows, row{Name: poll.name, Values: []float64{float64(each.Nanoseconds()) / 1000, share}})
	}
	all := row{Name: "both", Values: []float64{math.NaN(), whole}}
	all.Target, all.Missed = atMost(whole, 1, "% of a core")
	t.Rows = append(t.Rows, all)
	r.add(t)
	return nil
}

// cpuOf returns the processor time of a process for one of many calls: the median of some repetitions.
func cpuOf(pid, repeats int, call func() error) (time.Duration, error) {
	var found []float64
	for range repeats {
		before, err := cpuTime(pid)
		if err != nil {
			return 0, err
		}
		for range pollCalls {
			if err := call(); err != nil {
				return 0, err
			}
		}
		after, err := cpuTime(pid)
		if err != nil {
			return 0, err
		}
		found = append(found, float64(after-before)/pollCalls)
	}
	return time.Duration(median(found)), nil
}
