package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
)

// recorder is an Observer that keeps everything.
type recorder struct {
	mu     sync.Mutex
	all    []Observed
	timed  int
	queued map[string]time.Duration
}

func (r *recorder) Sees(Outcome, string, bool) bool { return true }
func (r *recorder) Observe(o Observed)              { r.mu.Lock(); r.all = append(r.all, o); r.mu.Unlock() }
func (r *recorder) Timed(time.Duration)             { r.mu.Lock(); r.timed++; r.mu.Unlock() }
func (r *recorder) Queued(limit string, d time.Duration) {
	r.mu.Lock()
	r.queued[limit] += d
	r.mu.Unlock()
}

// texts returns what was observed, in order.
func (r *recorder) texts() (all []string) {
	for _, o := range r.all {
		key, _ := DecodeKey(o.Key)
		all = append(all, fmt.Sprintf("%v %s %v cost=%d route=%s shadow=%v banned=%v", o.Outcome, o.Limit, key, o.Cost, o.Match, o.Shadow, o.Banned))
	}
	r.all = nil
	return all
}

// TestObserver: each decision is observed once, with the limit that decided, its key and its cost: of one
// limit, of several, of shadows, of bans, of limits without a place, and of work that names its limits.
func TestObserver(t *testing.T) {
	seen := &recorder{queued: map[string]time.Duration{}}
	bucket := func(burst int64) weir.Limit { return weir.TokenBucket{Rate: weir.PerHour(1), Burst: burst} }
	e, err := New(Policy{
		Limits: []Limit{
			{Name: "one", Key: []string{"client.ip"}, Limit: bucket(2)},
			{Name: "user", Key: []string{"client.ip", "header.user"}, Limit: bucket(1)},
			{Name: "trial", Limit: bucket(1), Shadow: true},
			{Name: "places", Key: []string{"client.ip"}, Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []Route{
			{Match: "/two", Limits: []string{"one", "user"}, Respond: Response{Status: 204}},
			{Match: "/trial", Limits: []string{"trial"}, Respond: Response{Status: 204}},
			{Match: "/places", Limits: []string{"places"}, Respond: Response{Status: 204}},
			{Match: "/", Limits: []string{"one"}, Respond: Response{Status: 204}},
		},
	}, Options{Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	request := func(path, client string) *Verdict {
		v := e.Decide(Request{Method: "GET", Path: path, Client: client, Header: map[string][]string{"User": {"ann"}}})
		return &v
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := seen.texts(); !slices.Equal(got, want) {
			t.Errorf("%s:\n%q\nwant:\n%q", what, got, want)
		}
	}
	for range 3 {
		request("/", "a")
	}
	expect("one limit", "allow one [a] cost=1 route=/ shadow=false banned=false", "allow one [a] cost=1 route=/ shadow=false banned=false",
		"deny one [a] cost=1 route=/ shadow=false banned=false")
	request("/two", "b")
	request("/two", "b")
	expect("two limits", "allow user [b ann] cost=1 route=/two shadow=false banned=false", "deny user [b ann] cost=1 route=/two shadow=false banned=false")
	request("/trial", "a")
	request("/trial", "a")
	expect("a shadow", "allow trial [] cost=1 route= shadow=true banned=false", "allow  [] cost=0 route=/trial shadow=false banned=false",
		"deny trial [] cost=1 route= shadow=true banned=false", "allow  [] cost=0 route=/trial shadow=false banned=false")
	if err := e.Override(Override{Limit: "one", Key: []string{"c"}, Ban: true, For: time.Hour}); err == nil {
		t.Fatal("c is no address")
	}
	if err := e.Override(Override{Limit: "one", Key: []string{"192.0.2.1"}, Ban: true, For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	request("/", "192.0.2.1")
	expect("a ban", "deny one [192.0.2.1] cost=0 route=/ shadow=false banned=true")
	inside, outside := request("/places", "a"), request("/places", "a")
	if inside.Enter(t.Context()) != nil || outside.Enter(t.Context()) == nil {
		t.Fatal("there is one place")
	}
	defer inside.Done(weir.OK)
	expect("no place", "allow  [] cost=0 route=/places shadow=false banned=false", "allow  [] cost=0 route=/places shadow=false banned=false",
		"deny places [a] cost=1 route=/places shadow=false banned=false")
	for range 2 {
		if _, err := e.Take(t.Context(), []Ask{{Limit: "user", Key: []string{"192.0.2.7", "eve"}, Cost: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	expect("by name", "allow user [192.0.2.7 eve] cost=1 route= shadow=false banned=false", "deny user [192.0.2.7 eve] cost=1 route= shadow=false banned=false")
	if _, err := e.Peek(t.Context(), []Ask{{Limit: "user", Key: []string{"192.0.2.7", "eve"}}}); err != nil {
		t.Fatal(err)
	}
	expect("a look is no decision")
	for range 1000 * TimedOneIn {
		request("/nothing", "z")
	}
	if seen.timed < 700 || seen.timed > 1400 { // 1000 on average, 31 is its deviation
		t.Errorf("%d of %d decisions were timed", seen.timed, 1000*TimedOneIn)
	}
}

// TestObserverQueued: how long a request waited in a queue, also if it gave up.
func TestObserverQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recorder{queued: map[string]time.Duration{}}
		e, err := New(Policy{
			Limits: []Limit{
				{Name: "paced", Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 10}},
				{Name: "places", Limit: weir.Concurrency{Limit: 1, Queue: 5}},
			},
			Routes: []Route{
				{Match: "/paced", Limits: []string{"paced"}, Respond: Response{Status: 204}},
				{Match: "/", Limits: []string{"places"}, Respond: Response{Status: 204}},
			},
		}, Options{Observer: seen})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		for i := range 3 {
			v := e.Decide(Request{Method: "GET", Path: "/paced"})
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			if i == 0 || i == 1 {
				ctx = t.Context()
			}
			if i == 2 { // behind another one, which nobody waits for
				e.Decide(Request{Method: "GET", Path: "/paced"})
			}
			_ = v.Wait(ctx)
			cancel()
		}
		if got := seen.queued["paced"]; got < 1500*time.Millisecond || got > 3*time.Second {
			t.Errorf("requests waited for %v", got)
		}
		first, second := e.Decide(Request{Method: "GET", Path: "/"}), e.Decide(Request{Method: "GET", Path: "/"})
		if err := first.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(700*time.Millisecond, func() { first.Done(weir.OK) })
		if err := second.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		second.Done(weir.OK)
		if got := seen.queued["places"]; got != 700*time.Millisecond {
			t.Errorf("a request waited for %v for a place", got)
		}
	})
}
