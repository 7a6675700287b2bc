package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// unreadable is a body that fails the test where it is read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, errors.ErrUnsupported
}

// TestRefuseUnread: a limit that does not depend on the body refuses a request before its body is read,
// as it would afterwards. It charges and counts nothing else, and other limits wait for the body.
func TestRefuseUnread(t *testing.T) {
	e, c := engine(t, policy.Policy{
		Limits: []policy.Limit{
			{Name: "models", Key: []string{"header.x-user", "body.model"}, Limit: bucket("1/h", 3)},
			{Name: "requests", Key: []string{"header.x-user"}, OnMissing: "deny", Limit: bucket("6/m", 2)},
			{Name: "tokens", Key: []string{"header.x-user"}, Limit: bucket("60/m", 10), Costs: policy.Costs{Before: terms("prompt/4")}},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"models", "requests", "tokens"}}},
	})
	refused := func(user string, length int64) (policy.Verdict, bool) {
		r := httptest.NewRequest("POST", "/", io.NopCloser(unreadable{t}))
		r.ContentLength = length
		if user != "" {
			r.Header.Set("X-User", user)
		}
		m := e.Match(policy.Request{Method: "POST", Path: "/", Header: r.Header, Length: length})
		if !m.ReadsBody(r) || !e.Identify(t.Context(), &m) {
			t.Fatal("the body is not needed")
		}
		return e.RefuseUnread(t.Context(), &m)
	}
	if v, ok := refused("", 4); !ok || v.Outcome != policy.Deny || v.Limit != "requests" || counts(e, "requests") != [3]uint64{0, 1, 0} {
		t.Errorf("without a part of the key: %v, %+v, %v", ok, v, counts(e, "requests"))
	}
	for range 2 {
		for range 3 { // charges nothing
			if v, ok := refused("a", 4); ok {
				t.Fatalf("refused by %s", v.Limit)
			}
		}
		if v := decideBody(t, e, `{"model":"m"}`, "X-User", "a"); v.Outcome != policy.Allow {
			t.Fatalf("%+v", v)
		}
	}
	v, ok := refused("a", 4)
	if !ok || v.Outcome != policy.Deny || v.Limit != "requests" || v.Decision.By != "requests" || v.Decision.RetryAfter != 10*sec || len(v.Evaluated()) != 1 {
		t.Errorf("%v, %+v", ok, v)
	}
	if got, models := counts(e, "requests"), counts(e, "models"); got != [3]uint64{2, 2, 0} || models != [3]uint64{2, 0, 0} {
		t.Errorf("counted: %v, %v", got, models)
	}
	if after := decideBody(t, e, `{"model":"m"}`, "X-User", "a"); after.Outcome != v.Outcome || after.Limit != v.Limit || after.Decision.RetryAfter != v.Decision.RetryAfter {
		t.Errorf("before the body %+v, afterwards %+v", v, after)
	}
	if v, ok := refused("a", 4*10); !ok || v.Limit != "requests" || v.Decision.RetryAfter != 10*sec { // tokens: 8s
		t.Errorf("two limits refuse: %v, %+v", ok, v)
	}
	c.Set(c.Now() + int64(10*sec))
	if v, ok := refused("a", 4); ok {
		t.Errorf("after RetryAfter: refused by %s", v.Limit)
	}
	// an estimate by the size of the body is known from a Content-Length alone
	if v, ok := refused("b", 4*11); !ok || v.Limit != "tokens" {
		t.Errorf("a prompt of 11 tokens: %v, %+v", ok, v)
	}
	if v, ok := refused("b", -1); ok {
		t.Errorf("a prompt of unknown size: refused by %s", v.Limit)
	}
}

// TestRefuseUnreadOfStores: so does a limit in a store, with one call that charges nothing. No store is called
// for a request that a limit in memory refuses, and one that does not respond decides after the body.
func TestRefuseUnreadOfStores(t *testing.T) {
	c := new(weirtest.Clock)
	store := &callsOf{Store: weirtest.NewStore(c.Now)}
	e, err := policy.New(policy.Policy{
		Stores: []policy.Store{{Name: "s", OnFailure: "deny"}},
		Limits: []policy.Limit{
			{Name: "models", Key: []string{"header.x-user", "body.model"}, Limit: bucket("1/h", 1), Store: "s"},
			{Name: "requests", Key: []string{"header.x-user"}, Limit: bucket("6/m", 2), Store: "s"},
			{Name: "all", Limit: bucket("1/m", 3)},
			{Name: "days", Key: []string{"header.x-user"}, Limit: bucket("1000/h", 1000), Store: "s"},
		},
		Routes: []policy.Route{{Match: "/", Limits: []string{"models", "requests", "days", "all"}}},
	}, policy.Options{Clock: c.Now, Stores: map[string]weir.Store{"s": store}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	refused := func(user string) (policy.Verdict, bool) {
		r := httptest.NewRequest("POST", "/", io.NopCloser(unreadable{t}))
		r.Header.Set("X-User", user)
		m := e.Match(policy.Request{Method: "POST", Path: "/", Header: r.Header, Length: 4})
		store.calls = nil
		return e.RefuseUnread(t.Context(), &m)
	}
	for _, model := range []string{"m", "n"} {
		if v, ok := refused("a"); ok || fmt.Sprint(store.calls) != "[[peek requests peek days]]" {
			t.Fatalf("refused by %q: %v", v.Limit, store.calls)
		}
		if v := decideBody(t, e, `{"model":"`+model+`"}`, "X-User", "a"); v.Outcome != policy.Allow {
			t.Fatalf("%+v", v)
		}
	}
	v, ok := refused("a")
	if !ok || v.Outcome != policy.Deny || v.Limit != "requests" || v.Decision.RetryAfter != 10*sec || len(v.Evaluated()) != 1 || v.Evaluated()[0].Name != "requests" {
		t.Errorf("%v, %+v", ok, v)
	}
	if n := e.Counts()[1]; n.Limited != 1 || n.Sources[v.Decision.Source] != 3 {
		t.Errorf("%+v", n)
	}
	store.err = errors.New("connection reset")
	if v, ok := refused("a"); ok || len(store.calls) != 1 {
		t.Errorf("by a store that does not respond: %+v", v)
	}
	store.err = nil
	decideBody(t, e, `{"model":"m"}`, "X-User", "b")
	if v, ok := refused("a"); !ok || v.Limit != "all" || len(store.calls) != 0 {
		t.Errorf("%v, %+v, calls %v", ok, v, store.calls)
	}
}

// callsOf records the calls of a store, and may fail instead.
type callsOf struct {
	weir.Store
	err   error
	calls [][]string
}

func (s *callsOf) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	var call []string
	for _, c := range batch {
		name, _, _ := strings.Cut(c.Name, "@")
		call = append(call, c.Op.String(), name)
	}
	if s.calls = append(s.calls, call); s.err != nil {
		return s.err
	}
	return s.Store.Do(ctx, batch, out)
}
