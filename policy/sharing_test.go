package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// faulty is a store that can be made to fail, and counts its calls.
type faulty struct {
	weir.Store
	mu    sync.Mutex
	err   error
	calls int
	hold  chan struct{} // not nil: calls wait for it
}

func (f *faulty) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	f.mu.Lock()
	f.calls++
	err, hold := f.err, f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	return f.Store.Do(ctx, batch, out)
}

func (f *faulty) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *faulty) called() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// newFaulty returns a store on the given clock.
func newFaulty(c *weirtest.Clock) *faulty { return &faulty{Store: weirtest.NewStore(c.Now)} }

func sharing(t *testing.T, p policy.Policy, c *weirtest.Clock, stores map[string]weir.Store) *policy.Engine {
	t.Helper()
	for name := range stores {
		p.Stores = append(p.Stores, policy.Store{Name: name, URL: "redis://127.0.0.1"})
	}
	o := policy.Options{Keys: true, Stores: stores}
	if c != nil {
		o.Clock, o.Timers = c.Now, c.AfterFunc
	}
	e, err := policy.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestEnginesShareALimit(t *testing.T) {
	c := new(weirtest.Clock)
	store := map[string]weir.Store{"shared": weirtest.NewStore(c.Now)}
	p := policy.Policy{
		Limits: []policy.Limit{{Name: "per-sku", Key: []string{"query.sku"}, Limit: bucket("6/m", 3), Store: "shared"}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"per-sku"}}},
	}
	one, two := sharing(t, p, c, store), sharing(t, p, c, store)
	for i, e := range []*policy.Engine{one, two, one, two, one} {
		v := e.Decide(get("/?sku=7", "x"))
		if want := i < 3; (v.Outcome == policy.Allow) != want || v.Decision.Source != weir.SourceStore || v.Err != nil {
			t.Errorf("request %d: %+v", i, v)
		}
		if asked := v.Evaluated(); len(asked) != 1 || asked[0].Limit != 3 || asked[0].Decision.Remaining != max(2-int64(i), 0) {
			t.Errorf("request %d: %+v", i, asked)
		}
	}
	v := two.Decide(get("/?sku=7", "x"))
	if key, _ := policy.DecodeKey(v.Key); v.Limit != "per-sku" || v.Decision.By != "per-sku" || v.Decision.RetryAfter != 10*sec || len(key) != 1 || key[0] != "7" {
		t.Errorf("%+v", v)
	}
	if got := counts(one, "per-sku"); got != [3]uint64{2, 1, 0} {
		t.Errorf("%v", got)
	}
	n := one.Counts()[0]
	if !n.Stored || n.Sources[weir.SourceStore] != 3 || n.Sources[weir.SourceLocal] != 0 {
		t.Errorf("%+v", n)
	}
}

// TestAllOrNothing: whichever limit refuses, in memory or in one of two stores, admitted requests
// are charged to all limits, and refused ones to none.
func TestAllOrNothing(t *testing.T) {
	c := new(weirtest.Clock)
	stores := map[string]weir.Store{"a": newFaulty(c), "b": newFaulty(c)}
	names := []string{"memory", "a1", "b1", "a2", "memory2"}
	burst := map[string]int64{"memory": 19, "a1": 37, "b1": 33, "a2": 35, "memory2": 18}
	p := policy.Policy{}
	for _, n := range names {
		l := policy.Limit{Name: n, Key: []string{"header." + n}, Limit: bucket("1/d", burst[n]), Cost: "header.cost"}
		if n[0] != 'm' {
			l.Store = n[:1]
		}
		p.Limits = append(p.Limits, l)
		p.Routes = append(p.Routes, policy.Route{Match: "/" + n, Limits: []string{n}})
	}
	p.Routes = append(p.Routes, policy.Route{Match: "/all", Limits: names})
	one, two := sharing(t, p, c, stores), sharing(t, p, c, stores)
	rnd := rand.New(rand.NewPCG(1, 2))
	used := map[string]int64{} // by engine (of a limit in memory), limit and key
	id := func(e *policy.Engine, n, key string) string {
		if n[0] == 'm' {
			return fmt.Sprintf("%p %s %s", e, n, key)
		}
		return n + " " + key
	}
	refused := map[string]int{}
	for range 2000 {
		e := one
		if rnd.IntN(2) == 0 {
			e = two
		}
		cost := 1 + rnd.Int64N(4)
		fields := []string{"Cost", fmt.Sprint(cost)}
		keys := map[string]string{}
		for _, n := range names {
			keys[n] = string(rune('a' + rnd.IntN(8)))
			fields = append(fields, n, keys[n])
		}
		want := true
		for _, n := range names {
			want = want && used[id(e, n, keys[n])]+cost <= burst[n]
		}
		v := e.Decide(get("/all", "x", fields...))
		if (v.Outcome == policy.Allow) != want {
			t.Fatalf("%+v, want %v", v, want)
		}
		if !want {
			refused[v.Limit]++
		}
		for _, a := range v.Evaluated() { // Remaining is what is left, also if another limit refused
			left := burst[a.Name] - used[id(e, a.Name, keys[a.Name])]
			if want {
				left -= cost
			}
			if a.Decision.Remaining != left {
				t.Fatalf("%s has %d left, want %d", a.Name, a.Decision.Remaining, left)
			}
		}
		for _, n := range names {
			if want {
				used[id(e, n, keys[n])] += cost
			}
		}
	}
	for _, n := range names {
		if refused[n] == 0 {
			t.Errorf("%s has refused nothing: %v", n, refused)
		}
	}
}

// TestAllOrNothingWithQueues: requests wait in a queue, and are then refused by a place of
// concurrency, or by a store. An engine that never got them makes the same decisions about all
// others, to the last nanosecond.
func TestAllOrNothingWithQueues(t *testing.T) {
	p := policy.Policy{
		Limits: []policy.Limit{
			{Name: "rate", Key: []string{"header.user"}, Limit: bucket("1/s", 3)},
			{Name: "queue", Key: []string{"header.user"}, Limit: weir.LeakyBucket{Rate: weir.PerSecond(3), Queue: 8, DelayAfter: 1}},
			{Name: "slower", Key: []string{"header.tenant"}, Limit: weir.LeakyBucket{Rate: weir.PerSecond(2), Queue: 8}},
			{Name: "few", Key: []string{"header.tenant"}, Limit: bucket("1/s", 5), Store: "s"},
			{Name: "places", Key: []string{"header.tenant"}, Limit: weir.Concurrency{Limit: 1}},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "queue", "slower", "few", "places"}}},
	}
	var clocks [2]weirtest.Clock
	var engines [2]*policy.Engine
	for i := range engines {
		engines[i] = sharing(t, p, &clocks[i], map[string]weir.Store{"s": weirtest.NewStore(clocks[i].Now)})
	}
	c := &clocks[0]
	// until returns the time at which a tenant's place is free again.
	rnd, until := rand.New(rand.NewPCG(seeds.Seed(), 5)), map[string]int64{}
	inside := map[string][2]policy.Verdict{}
	admitted, refused, waited := 0, map[string]int{}, 0
	for range 4000 {
		c.Set(c.Now() + rnd.Int64N(int64(400*time.Millisecond)))
		user, tenant := string(rune('a'+rnd.IntN(3))), string(rune('A'+rnd.IntN(2)))
		if at, ok := until[tenant]; ok && at <= c.Now() {
			for _, v := range inside[tenant] {
				v.Done(weir.OK)
			}
			delete(until, tenant)
		}
		request := get("/", "x", "User", user, "Tenant", tenant)
		come := c.Now()
		v := engines[0].Decide(request)
		if v.Outcome == policy.Delay {
			waited++
			c.Set(come + int64(v.Delay))
			if err := v.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if v.Outcome == policy.Allow || v.Outcome == policy.Delay {
			_ = v.Enter(t.Context()) // the outcome says it
		}
		if v.Outcome == policy.Deny {
			refused[v.Limit]++
			continue
		}
		admitted++
		went := c.Now()
		clocks[1].Set(come)
		other := engines[1].Decide(request)
		clocks[1].Set(went)
		if err := other.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := other.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if other.Outcome != v.Outcome || other.Delay != v.Delay || !reflect.DeepEqual(other.Evaluated(), v.Evaluated()) {
			t.Fatalf("request %d:\n got %v, %+v\nwant %v, %+v", admitted, v.Delay, v.Evaluated(), other.Delay, other.Evaluated())
		}
		inside[tenant], until[tenant] = [2]policy.Verdict{v, other}, went+rnd.Int64N(int64(600*time.Millisecond))
	}
	if admitted < 100 || waited < 100 || refused["places"] == 0 || refused["few"] == 0 || refused["rate"] == 0 {
		t.Errorf("%d admitted, %d waited, %v", admitted, waited, refused)
	}
	for _, counts := range engines[0].Counts() {
		if counts.Keys.Inexact != 0 || counts.Lost != 0 {
			t.Errorf("%+v", counts)
		}
	}
}

// TestStoreRefuses: charges in memory, and a place in a queue, are given back exactly.
func TestStoreRefuses(t *testing.T) {
	c := new(weirtest.Clock)
	e := sharing(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "bucket", Limit: bucket("1/h", 5)},
			{Name: "door", Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 3}},
			{Name: "few", Limit: bucket("1/h", 2), Store: "s"},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"few", "bucket", "door"}}},
	}, c, map[string]weir.Store{"s": weirtest.NewStore(c.Now)})
	first, second, third := e.Decide(get("/", "x")), e.Decide(get("/", "x")), e.Decide(get("/", "x"))
	if first.Outcome != policy.Allow || second.Outcome != policy.Delay || second.Delay != sec || second.Limit != "door" {
		t.Errorf("%+v\n%+v", first, second)
	}
	if third.Outcome != policy.Deny || third.Limit != "few" || third.Delay != 0 {
		t.Errorf("%+v", third)
	}
	names := ""
	for _, a := range third.Evaluated() {
		names += fmt.Sprint(a.Name, a.Decision.Remaining, " ")
	}
	if names != "few0 bucket3 door0 " {
		t.Errorf("in the order of the route, with what is left: %s", names)
	}
	for _, n := range e.Counts() {
		if n.Waiting != map[string]int{"door": 1}[n.Limit] {
			t.Errorf("%s: %d wait", n.Limit, n.Waiting)
		}
	}
	second.Cancel()
	if v := e.Decide(get("/", "x")); v.Outcome != policy.Delay || v.Delay != sec || v.Evaluated()[1].Decision.Remaining != 3 {
		t.Errorf("after the second has left: %+v", v.Evaluated())
	}
}

// TestQueueInAStore: requests to two engines leave one queue at its rate. A request that gives up
// gets its charge back.
func TestQueueInAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{
			Limits: []policy.Limit{
				{Name: "user", Key: []string{"client.ip"}, Limit: bucket("1/d", 10), Store: "s"},
				{Name: "door", Limit: weir.LeakyBucket{Rate: weir.PerSecond(1), Queue: 3}, Store: "s"},
			},
			Routes: []policy.Route{{Match: "/", Limits: []string{"door", "user"}}},
		}
		stores := map[string]weir.Store{"s": weirtest.NewStore(nil)}
		one, two := sharing(t, p, nil, stores), sharing(t, p, nil, stores)
		start := time.Now()
		var all []policy.Verdict
		for i, e := range []*policy.Engine{one, two, one, two, one} {
			v := e.DecideContext(t.Context(), get("/", fmt.Sprint(i)))
			all = append(all, v)
			if i < 4 && v.Delay != time.Duration(i)*sec || i == 4 && (v.Outcome != policy.Deny || v.Limit != "door" || v.Decision.RetryAfter != sec) {
				t.Errorf("request %d: %+v", i, v)
			}
		}
		gone, leave := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer leave()
		if err := all[3].Wait(gone); err != context.DeadlineExceeded || time.Since(start) != 500*time.Millisecond {
			t.Errorf("the one who left: %v after %v", err, time.Since(start))
		}
		for i := 1; i < 3; i++ {
			if err := all[i].Wait(t.Context()); err != nil || time.Since(start) != time.Duration(i)*sec {
				t.Errorf("request %d: %v after %v", i, err, time.Since(start))
			}
		}
		// The last place was given back, and the request's charges at other limits too. The refused
		// request was not charged.
		v := two.Decide(get("/", "3"))
		if v.Delay != sec || v.Evaluated()[1].Decision.Remaining != 9 {
			t.Errorf("%v, %+v", v.Delay, v.Evaluated())
		}
		if v := two.Decide(get("/", "4")); v.Evaluated()[1].Decision.Remaining != 9 {
			t.Errorf("%+v", v.Evaluated())
		}
		if got := counts(one, "door"); got != [3]uint64{1, 1, 1} {
			t.Errorf("%v", got)
		}
	})
}

// TestBytesInAStore: a body of unknown length counts as one byte until it has been read.
func TestBytesInAStore(t *testing.T) {
	c := new(weirtest.Clock)
	e := sharing(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "bytes", Limit: bucket("1/d", 1000), Cost: "bytes", Store: "s"},
			{Name: "requests", Limit: bucket("1/d", 10), Store: "s"},
			{Name: "memory", Limit: bucket("1/d", 10)},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"bytes", "requests", "memory"}}},
	}, c, map[string]weir.Store{"s": weirtest.NewStore(c.Now)})
	post := get("/", "x")
	left := func() (n []int64) {
		v := e.Decide(post)
		for _, a := range v.Evaluated() {
			n = append(n, a.Decision.Remaining)
		}
		return n
	}
	post.Length = 400
	if n := left(); n[0] != 600 || n[1] != 9 || n[2] != 9 {
		t.Errorf("%v", n)
	}
	post.Length = -1
	v := e.Decide(post)
	if !v.CountsBytes() || v.Evaluated()[0].Decision.Remaining != 599 {
		t.Errorf("%+v", v.Evaluated())
	}
	v.SettleBytes(150)
	v.SettleBytes(150)
	post.Length = 0
	if n := left(); n[0] != 450 || n[1] != 7 || n[2] != 7 {
		t.Errorf("after 150 bytes: %v", n)
	}
	post.Length = -1
	v = e.Decide(post)
	v.SettleBytes(0)
	post.Length = 450
	if v := e.Decide(post); v.Outcome != policy.Allow {
		t.Errorf("an empty body was charged: %+v", v)
	}
	post.Length = -1
	if v := e.Decide(post); v.Outcome != policy.Deny || v.CountsBytes() {
		t.Errorf("there is nothing left for a body: %+v", v)
	}
}

// TestShadowInAStore: a shadow has states of its own, no request waits for it, and its failures
// affect no request.
func TestShadowInAStore(t *testing.T) {
	c := new(weirtest.Clock)
	f := newFaulty(c)
	f.hold = make(chan struct{})
	limits := []policy.Limit{
		{Name: "l", Limit: bucket("1/h", 2), Store: "s", Shadow: true},
		{Name: "queue", Limit: weir.LeakyBucket{Rate: weir.PerHour(1), Queue: 1}, Store: "s", Shadow: true},
	}
	p := policy.Policy{Limits: limits, Routes: []policy.Route{{Match: "/", Limits: []string{"l", "queue"}}}}
	e := sharing(t, p, c, map[string]weir.Store{"s": f})
	for range 3 {
		if v := e.Decide(get("/", "x")); v.Outcome != policy.Allow || len(v.Evaluated()) != 0 {
			t.Errorf("%+v", v)
		}
	}
	close(f.hold)
	e.Close()
	if l, q := counts(e, "l"), counts(e, "queue"); l != [3]uint64{2, 1, 0} || q != [3]uint64{1, 1, 1} {
		t.Errorf("%v, %v", l, q)
	}
	e.Decide(get("/", "x")) // after Close the store is not called, and nothing blocks
	if n := e.Counts(); n[0].Missed != 1 || n[1].Missed != 1 {
		t.Errorf("%+v", n)
	}

	live := p
	live.Limits = []policy.Limit{limits[0], limits[1]}
	live.Limits[0].Shadow = false
	e = sharing(t, live, c, map[string]weir.Store{"s": f})
	if v := e.Decide(get("/", "x")); v.Evaluated()[0].Decision.Remaining != 1 {
		t.Errorf("the shadow has charged the live one: %+v", v.Evaluated())
	}
	f.fail(errors.New("broken"))
	e = sharing(t, p, c, map[string]weir.Store{"s": f})
	if v := e.Decide(get("/", "x")); v.Outcome != policy.Allow || v.Err != nil {
		t.Errorf("%+v", v)
	}
	e.Close()
	if n := e.Counts()[0]; n.Failed != 1 || n.Allowed+n.Limited != 0 {
		t.Errorf("%+v", n)
	}
}
