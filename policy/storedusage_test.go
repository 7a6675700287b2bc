package policy_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// farStore is a store that takes a while for each call. It has a thousand keys of which something is used, and all
// of it is back at one moment.
type farStore struct{ end time.Time }

func (s farStore) Do(_ context.Context, batch []weir.Charge, out []weir.Decision) error {
	<-time.After(10 * time.Millisecond)
	for i := range batch {
		out[i] = weir.Decision{Allowed: true, Limit: 10, Remaining: 7, ResetAfter: time.Until(s.end), Source: weir.SourceStore}
	}
	<-time.After(10 * time.Millisecond)
	return nil
}

func (s farStore) StateKeys(_ context.Context, _ string, _ []weir.Limit, each func(key string, under int) error) error {
	for i := range 1000 {
		if err := each(policy.EncodeKey(strconv.Itoa(i)), 0); err != nil {
			return err
		}
	}
	return nil
}

func (farStore) Close() error { return nil }

// TestWhenUsageResets: the time of a usage is that of its reading. It used to be the time at which a line of an
// export was written: the end of a day was printed as a second after midnight, and later for a client that read
// slowly.
func TestWhenUsageResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(5 * time.Hour)
		e, err := policy.New(policy.Policy{Stores: []policy.Store{{Name: "s", URL: "redis://127.0.0.1"}}, Limits: []policy.Limit{
			{Name: "daily", Limit: weir.FixedWindow{Limit: 10, Window: 24 * time.Hour}, Key: []string{"header.k"}, Store: "s"},
		}}, policy.Options{Stores: map[string]weir.Store{"s": farStore{end}}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		rows := 0
		check := func(u policy.Usage) error {
			rows++
			// as a whole second, rounded up, it is the end
			if at := u.At.Add(u.Reset); u.Problem != nil || u.Used != 3 || at.After(end) || at.Before(end.Add(-time.Second+1)) {
				t.Errorf("%v: reset at %v, and not at %v (%v)", u.Key, at, end, u.Problem)
			}
			<-time.After(20 * time.Millisecond) // a client that reads slowly
			return nil
		}
		if err := e.StoredUsages(t.Context(), check); err != nil || rows != 1000 {
			t.Errorf("%d rows, %v", rows, err)
		}
		for _, u := range e.Usage(t.Context(), "daily", []string{"7"}, "") {
			_ = check(u)
		}
		if rows != 1001 {
			t.Errorf("%d rows", rows)
		}
	})
}

// failedStore is a store whose fallback decides.
type failedStore struct{ farStore }

func (failedStore) Do(_ context.Context, batch []weir.Charge, out []weir.Decision) error {
	for i := range batch {
		out[i] = weir.Decision{Limit: 5, RetryAfter: time.Hour, Source: weir.SourceShare}
	}
	return nil
}

// TestUsageWhileTheStoreIsUnavailable: Usage returned what this node's fallback had admitted, as if that were
// what the key has used of the limit.
func TestUsageWhileTheStoreIsUnavailable(t *testing.T) {
	e, err := policy.New(policy.Policy{Stores: []policy.Store{{Name: "s", URL: "redis://127.0.0.1"}}, Limits: []policy.Limit{
		{Name: "daily", Limit: weir.FixedWindow{Limit: 10, Window: 24 * time.Hour}, Key: []string{"header.k"}, Store: "s"},
	}}, policy.Options{Stores: map[string]weir.Store{"s": failedStore{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if u := e.Usage(t.Context(), "daily", []string{"7"}, "")[0]; u.Problem == nil || u.Used != 0 || u.Of != 0 {
		t.Errorf("%+v", u)
	}
}

// TestWhenUsageInMemoryResets: a client that reads an export slowly gets each key as it is when it is read. The
// time of all was that of the beginning, so that windows seemed to end too early, by all that was spent before.
func TestWhenUsageInMemoryResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := policy.New(policy.Policy{
			Limits: []policy.Limit{{Name: "hourly", Limit: weir.FixedWindow{Limit: 10, Window: time.Hour, Align: "first"}, Key: []string{"header.k"}, OnMissing: "deny"}},
			Routes: []policy.Route{{Match: "/", Limits: []string{"hourly"}}},
		}, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		const early, late = 20_000, 20_000
		use := func(from, n int) {
			for i := range n {
				e.Decide(policy.Request{Method: "GET", Path: "/", Header: http.Header{"K": {strconv.Itoa(from + i)}}})
			}
		}
		use(0, early)
		ends := time.Now().Add(time.Hour)
		<-time.After(30 * time.Minute)
		use(early, late)
		endsLate := time.Now().Add(time.Hour)
		rows := [2]int{}
		for u := range e.Usages() {
			n, err := strconv.Atoi(u.Key[0])
			if err != nil {
				t.Fatal(err)
			}
			end, of := ends, 0
			if n >= early {
				end, of = endsLate, 1
			}
			if rows[of]++; !u.At.Add(u.Reset).Equal(end) || u.Used != 1 {
				t.Fatalf("%v, read at %v: reset at %v, and not at %v", u.Key, u.At, u.At.Add(u.Reset), end)
			}
			<-time.After(100 * time.Millisecond) // the windows of the early keys end after 18,000 lines
		}
		if rows[1] != late || rows[0] == 0 || rows[0] == early {
			t.Errorf("%v lines: of the early keys, only those that were read before their windows ended", rows)
		}
	})
}
