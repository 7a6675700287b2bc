package policy_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// lines returns the events of a verdict as text.
func lines(v *policy.Verdict) (all []string) {
	for _, e := range v.Events() {
		all = append(all, e.Level+": "+e.String())
	}
	return all
}

// TestNginxBucketDelays: a request that nginx would delay is charged at once and waits for
// nginx's delay. If it gives up, it stays charged. The log has nginx's lines.
func TestNginxBucketDelays(t *testing.T) {
	e, c := engine(t, policy.Policy{
		Limits: []policy.Limit{{
			Name: "one", Key: []string{"client.ip"}, Log: "error", Limit: weir.NginxBucket{Rate: weir.PerSecond(10), Queue: 2, DelayAfter: 1},
		}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"one"}}},
	})
	outcomes := []policy.Outcome{policy.Allow, policy.Allow, policy.Delay, policy.Deny}
	wants := [][]string{nil, nil, {`warn: delaying request, excess: 2.000, by zone "one"`}, {`error: limiting requests, excess: 3.000 by zone "one"`}}
	var held policy.Verdict
	for i, want := range outcomes {
		v := e.Decide(get("/", "10.0.0.1"))
		if v.Outcome != want || !slices.Equal(lines(&v), wants[i]) {
			t.Fatalf("request %d: %v %q, want %v %q", i, v.Outcome, lines(&v), want, wants[i])
		}
		if v.Outcome == policy.Delay {
			held = v
		}
	}
	if held.Delay != 100*time.Millisecond {
		t.Errorf("held for %v", held.Delay)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := held.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if v := e.Decide(get("/", "10.0.0.1")); v.Outcome != policy.Deny {
		t.Errorf("after one gave up: %v: nginx keeps its charge", v.Outcome)
	}
	c.Set(int64(150 * time.Millisecond))
	v := e.Decide(get("/", "10.0.0.1"))
	if got := lines(&v); v.Delay != 50*time.Millisecond || got[0] != `warn: delaying request, excess: 1.500, by zone "one"` {
		t.Errorf("%+v %q", v, got)
	}
	if got := counts(e, "one"); got != [3]uint64{2, 2, 2} {
		t.Errorf("%v", got)
	}
}

// TestNginxBucketWaits: a delayed request goes on when its own delay is over, whatever other
// requests do.
func TestNginxBucketWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := policy.New(policy.Policy{
			Limits: []policy.Limit{{Name: "one", Limit: weir.NginxBucket{Rate: weir.PerSecond(10), Queue: 2}}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"one"}}},
		}, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		began := time.Now()
		for i := range 3 {
			v := e.Decide(get("/", ""))
			due := began.Add(time.Duration(i) * 100 * time.Millisecond)
			go func() {
				if err := v.Wait(t.Context()); err != nil || !time.Now().Equal(due) {
					t.Errorf("%v at %v, want %v", err, time.Now(), due)
				}
			}()
		}
		synctest.Wait()
		<-time.After(time.Second)
	})
}

// TestSeveralNginxBuckets: all are evaluated before any is charged, and the longest delay applies.
func TestSeveralNginxBuckets(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "a", Key: []string{"client.ip"}, Limit: weir.NginxBucket{Rate: weir.PerSecond(10), Queue: 5}},
			{Name: "b", Key: []string{"query.q"}, OnMissing: "skip_empty", Limit: weir.NginxBucket{Rate: weir.PerSecond(1), Queue: 1}},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"a", "b"}}},
	})
	for i, c := range []struct {
		target string
		want   policy.Outcome
		delay  time.Duration
		limit  string
	}{
		{"/?q=x", policy.Allow, 0, ""},
		{"/?q=x", policy.Delay, time.Second, "b"},
		{"/?q=x", policy.Deny, 0, "b"},
		{"/?q=x", policy.Deny, 0, "b"},
		{"/?q=", policy.Delay, 200 * time.Millisecond, "a"}, // the two that b refused are not counted here
		{"/", policy.Delay, 300 * time.Millisecond, "a"},
		{"/?q=y", policy.Delay, 400 * time.Millisecond, "a"},
	} {
		if v := e.Decide(get(c.target, "10.0.0.1")); v.Outcome != c.want || v.Delay != c.delay || v.Limit != c.limit {
			t.Errorf("request %d: %v %v %q, want %v %v %q", i, v.Outcome, v.Delay, v.Limit, c.want, c.delay, c.limit)
		}
	}
}

// TestEvents: the excess is nginx's, in exact arithmetic. A limit without a rate has none, and a
// shadow's event says so.
func TestEvents(t *testing.T) {
	e, c := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "leaky", Log: "notice", Limit: weir.LeakyBucket{Rate: weir.PerSecond(10), Queue: 1}},
			{Name: "window", Log: "info", Limit: weir.FixedWindow{Limit: 1, Window: time.Hour}},
			{Name: "dry", Log: "warn", Shadow: true, Limit: weir.NginxBucket{Rate: weir.PerSecond(10)}},
			{Name: "quiet", Shadow: true, Limit: weir.NginxBucket{Rate: weir.PerSecond(10)}},
		},
		Routes: []policy.Route{{Match: "/l", Limits: []string{"leaky"}}, {Match: "/w", Limits: []string{"window", "dry"}}, {Match: "/", Limits: []string{"dry", "quiet"}}},
	})
	for i, w := range []struct {
		at   time.Duration
		path string
		want []string
	}{
		{0, "/l", nil},
		{40 * time.Millisecond, "/l", []string{`info: delaying request, excess: 0.600, by zone "leaky"`}},
		{50 * time.Millisecond, "/l", []string{`notice: limiting requests, excess: 1.500 by zone "leaky"`}},
		{50 * time.Millisecond, "/w", nil},
		{60 * time.Millisecond, "/w", []string{`info: limiting requests by zone "window"`}},
		{70 * time.Millisecond, "/", []string{`warn: limiting requests, dry run, excess: 0.800 by zone "dry"`}},
	} {
		c.Set(int64(w.at))
		if v := e.Decide(get(w.path, "10.0.0.1")); !slices.Equal(lines(&v), w.want) {
			t.Errorf("request %d: %q, want %q", i, lines(&v), w.want)
		}
	}
}

// TestPlaces: a concurrency limit is entered and left. If it refuses, the other limits get their
// charges back. Requests inside stay inside when the policy changes.
func TestPlaces(t *testing.T) {
	p := policy.Policy{
		Limits: []policy.Limit{
			{Name: "rate", Limit: bucket("1/h", 3)},
			{Name: "conns", Key: []string{"client.ip"}, Log: "error", Limit: weir.Concurrency{Limit: 1}},
			{Name: "dry", Shadow: true, Log: "warn", Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"conns", "rate", "dry"}}},
	}
	e, _ := engine(t, p)
	enter := func(from string) *policy.Verdict {
		v := e.Decide(get("/", from))
		if v.Outcome != policy.Allow {
			t.Fatalf("%+v", v)
		}
		return &v
	}
	a := enter("10.0.0.1")
	if err := a.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := enter("10.0.0.1")
	var limited *weir.LimitedError
	if err := b.Enter(t.Context()); !errors.As(err, &limited) || limited.Decision.By != "conns" || b.Outcome != policy.Deny || b.Limit != "conns" {
		t.Fatalf("%v, %+v", err, b)
	}
	if got := lines(b); len(got) != 1 || got[0] != `error: limiting connections by zone "conns"` {
		t.Errorf("%q", got)
	}
	c := enter("10.0.0.2") // the second of three that rate admits: the charge of the one that b refused is back
	if err := c.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := lines(c); len(got) != 1 || got[0] != `warn: limiting connections, dry run, by zone "dry"` {
		t.Errorf("%q", got)
	}
	p.Limits[1].Limit = weir.Concurrency{Limit: 2}
	next, err := e.Next(p)
	if err != nil {
		t.Fatal(err)
	}
	e = next
	d := enter("10.0.0.1")
	if err := d.Enter(t.Context()); err != nil {
		t.Errorf("with two places: %v", err)
	}
	for _, v := range []*policy.Verdict{a, a, c, d} { // once each, although Done is called again
		v.Done(weir.OK)
	}
	for _, n := range e.Counts() {
		if n.Held != 0 || n.Limit == "conns" && (n.Allowed != 3 || n.Limited != 1) || n.Limit == "dry" && (n.Allowed != 1 || n.Limited != 2) {
			t.Errorf("%+v", n)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestEmptyKeys: with skip_empty, a limit applies only to requests with at least one part of its
// key.
func TestEmptyKeys(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{{Name: "l", Key: []string{"header.a", "query.b"}, OnMissing: "skip_empty", Limit: bucket("1/h", 1)}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	})
	for i, c := range []struct {
		target string
		fields []string
		want   policy.Outcome
	}{
		{"/", nil, policy.Allow},
		{"/", nil, policy.Allow},
		{"/?b=", []string{"A", ""}, policy.Allow},
		{"/?b=1", nil, policy.Allow},
		{"/?b=1", nil, policy.Deny},
		{"/?b=1", []string{"A", ""}, policy.Deny},
		{"/", []string{"A", "1"}, policy.Allow},
		{"/", []string{"A", "1"}, policy.Deny},
	} {
		if v := e.Decide(get(c.target, "10.0.0.1", c.fields...)); v.Outcome != c.want {
			t.Errorf("request %d: %v, want %v", i, v.Outcome, c.want)
		}
	}
}

// TestURI: the key part uri is the path and the query, as they were sent.
func TestURI(t *testing.T) {
	e, _ := engine(t, policy.Policy{
		Limits: []policy.Limit{{Name: "l", Key: []string{"uri"}, Limit: bucket("1/h", 1)}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"l"}}},
	})
	for i, target := range []string{"/a", "/a?b", "/a?c", "/a/", "/%61"} {
		if v := e.Decide(get(target, "")); v.Outcome != policy.Allow {
			t.Errorf("request %d: %v", i, v.Outcome)
		}
		if v := e.Decide(get(target, "")); v.Outcome != policy.Deny {
			t.Errorf("request %d again: %v", i, v.Outcome)
		}
	}
}

// TestWrongPlaces: settings that concurrency cannot have are errors.
func TestWrongPlaces(t *testing.T) {
	p := policy.Policy{
		Stores: []policy.Store{{Name: "s", URL: "redis://127.0.0.1:6379"}},
		Limits: []policy.Limit{{Name: "l", Limit: weir.Concurrency{Limit: 1}, Store: "s", Cost: "bytes", Log: "loud", Status: 200, OnMissing: "skipempty"}},
	}
	var got []string
	for _, w := range p.Check() {
		if !w.Warning {
			got = append(got, w.Path[len(w.Path)-1])
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"cost", "log", "on_missing", "status"}) {
		t.Errorf("%q", got)
	}
}
