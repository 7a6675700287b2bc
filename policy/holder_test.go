package policy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
)

// placed is a store in memory that keeps the places of one concurrency limit.
type placed struct {
	*faulty
	places *keyed.Concurrency[string]
	seen   weir.Charge // the latest charge
}

func newPlaced(t *testing.T, l weir.Concurrency) *placed {
	places, err := keyed.NewConcurrency[string](l, keyed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { places.Close() })
	return &placed{faulty: &faulty{}, places: places}
}

func (p *placed) Enter(ctx context.Context, c weir.Charge) (func(weir.Outcome), weir.Decision, error) {
	p.mu.Lock()
	p.seen = c
	err := p.err
	p.mu.Unlock()
	if err != nil {
		return nil, weir.Decision{}, err
	}
	if c.Within != 0 {
		hold, err := p.places.EnterCost(ctx, c.Key, c.Cost)
		var limited *weir.LimitedError
		if errors.As(err, &limited) {
			return nil, limited.Decision, nil
		}
		return hold.Done, weir.Decision{Allowed: err == nil, Source: weir.SourceStore}, err
	}
	hold, d := p.places.TryEnterCost(c.Key, c.Cost)
	if d.Source = weir.SourceStore; !d.Allowed {
		return nil, d, nil
	}
	return hold.Done, d, nil
}

// TestPlacesInAStore: two engines with one store share its places and its queue. A refused request
// gets back what other limits were charged.
func TestPlacesInAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := weir.Concurrency{Limit: 1, Queue: 1}
		store := newPlaced(t, limit)
		p := policy.Policy{
			Limits: []policy.Limit{
				{Name: "rate", Limit: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 9}},
				{Name: "places", Key: []string{"client.ip"}, Limit: limit, Store: "s"},
			},
			Routes: []policy.Route{{Match: "/", Limits: []string{"rate", "places"}}},
		}
		one, two := sharing(t, p, nil, map[string]weir.Store{"s": store}), sharing(t, p, nil, map[string]weir.Store{"s": store})
		decide := func(e *policy.Engine) *policy.Verdict {
			v := e.Decide(policy.Request{Method: "GET", Path: "/", Client: "a"})
			if v.Outcome != policy.Allow {
				t.Fatalf("%+v", v)
			}
			return &v
		}
		first, second, third := decide(one), decide(two), decide(two)
		if err := first.Enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := store.seen; c.Limit != (weir.Concurrency{Limit: 1, Queue: 1, MaxHold: policy.DefaultMaxHold}) || c.Name != "places@client.ip" || c.Cost != 1 {
			t.Errorf("%+v", c)
		}
		waited := make(chan error, 1)
		go func() { waited <- second.Enter(t.Context()) }()
		synctest.Wait()
		var limited *weir.LimitedError
		if err := third.Enter(t.Context()); !errors.As(err, &limited) || third.Outcome != policy.Deny || third.Limit != "places" {
			t.Errorf("%v, %+v", err, third)
		}
		if got := one.Counts()[1]; got.Held != 1 || got.Allowed != 1 || !got.Stored || got.Sources[weir.SourceStore] != 1 {
			t.Errorf("%+v", got)
		}
		first.Done(weir.OK)
		first.Done(weir.OK)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		second.Done(weir.OK)
		if n := store.places.Stats().Holding; one.Counts()[1].Held != 0 || one.Counts()[1].Outcomes.OK != 1 || n != 0 {
			t.Errorf("%d held, %+v", n, one.Counts()[1])
		}
		again := decide(two)
		if again.Decision.Remaining != 7 { // of 9: the charges of refused requests were given back
			t.Errorf("%+v", again.Decision)
		}
	})
}

// TestPlacesInAStoreThatFails: without failover, `on_failure: allow` admits a request, and every
// other value refuses it. An invalid charge is refused.
func TestPlacesInAStoreThatFails(t *testing.T) {
	store := newPlaced(t, weir.Concurrency{Limit: 1})
	down := errors.New("down")
	for _, c := range []struct {
		onFailure string
		err       error
		source    weir.Source
		allowed   bool
	}{
		{"allow", down, weir.SourceAllow, true},
		{"deny", down, weir.SourceDeny, false},
		{"local", down, weir.SourceDeny, false},
		{"allow", weir.ErrCharge, weir.SourceStore, false},
	} {
		p := policy.Policy{
			Limits: []policy.Limit{{Name: "places", Limit: weir.Concurrency{Limit: 1}, Store: "s", OnFailure: c.onFailure}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"places"}}},
		}
		e := sharing(t, p, nil, map[string]weir.Store{"s": store})
		store.fail(c.err)
		v := e.Decide(policy.Request{Method: "GET", Path: "/"})
		if err := v.Enter(t.Context()); (err == nil) != c.allowed || e.Counts()[0].Sources[c.source] != 1 {
			t.Errorf("%s, %v: %v, %+v", c.onFailure, c.err, err, e.Counts()[0])
		}
		v.Done(weir.OK)
	}
}

// TestShadowPlacesInAStore: a shadow's place is taken and left in the background, also if the
// request ends first.
func TestShadowPlacesInAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newPlaced(t, weir.Concurrency{Limit: 1})
		p := policy.Policy{
			Limits: []policy.Limit{{Name: "places", Limit: weir.Concurrency{Limit: 1}, Store: "s", Shadow: true}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"places"}}},
		}
		e := sharing(t, p, nil, map[string]weir.Store{"s": store})
		var all []policy.Verdict
		for range 3 {
			v := e.Decide(policy.Request{Method: "GET", Path: "/"})
			if err := v.Enter(t.Context()); err != nil {
				t.Error(err)
			}
			all = append(all, v)
		}
		synctest.Wait()
		if c := e.Counts()[0]; c.Allowed != 1 || c.Limited != 2 {
			t.Errorf("%+v", c)
		}
		for i := range all {
			all[i].Done(weir.OK)
		}
		late := e.Decide(policy.Request{Method: "GET", Path: "/"})
		if err := late.Enter(t.Context()); err != nil {
			t.Error(err)
		}
		late.Done(weir.OK) // perhaps before the store has responded
		<-time.After(time.Second)
		if n := store.places.Stats().Holding; n != 0 {
			t.Errorf("%d places are held", n)
		}
	})
}

// TestNoPlacesInAStore: a store that keeps no places is an error when the policy is compiled, and
// not at the first request.
func TestNoPlacesInAStore(t *testing.T) {
	p := policy.Policy{
		Stores: []policy.Store{{Name: "s"}},
		Limits: []policy.Limit{{Name: "places", Limit: weir.Concurrency{Limit: 1}, Store: "s"}},
		Routes: []policy.Route{{Match: "/", Limits: []string{"places"}}},
	}
	if _, err := policy.New(p, policy.Options{Stores: map[string]weir.Store{"s": &faulty{}}}); err == nil {
		t.Error("no error")
	}
	p.Limits[0].Limit = weir.Concurrency{Limit: 1, MaxHold: time.Second}
	now := int64(time.Hour)
	e, err := policy.New(p, policy.Options{Clock: func() int64 { return now }}) // as in a replay
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, allowed := range []bool{true, false} {
		v := e.Decide(policy.Request{Method: "GET", Path: "/"})
		if err := v.Enter(t.Context()); (err == nil) != allowed {
			t.Errorf("allowed is to be %v: %v", allowed, err)
		}
		now += int64(time.Minute) // the first request is in flight for longer than MaxHold, as a store would extend it
	}
}
