package policy_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/policy"
)

// bounded is a policy.BodyMemory.
type bounded struct{ used, most, peak int64 }

func (b *bounded) Reserve(n int64) bool {
	if b.used+n > b.most {
		return false
	}
	b.used += n
	b.peak = max(b.peak, b.used)
	return true
}

func (b *bounded) Release(n int64) { b.used -= n }

// TestBodyMemory: the memory of a body grows with what has come, stays within the bound, and is
// released as the body is read, or at the end of the request.
func TestBodyMemory(t *testing.T) {
	e, err := policy.New(costly(weir.FixedWindow{Limit: 1 << 40, Window: 1 << 40}, policy.Costs{Before: terms("body.max_tokens")}), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	read := func(m *bounded, body string) (io.ReadCloser, func(), error) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", iotest.HalfReader(strings.NewReader(body)))
		r.ContentLength = -1
		match := e.Match(policy.Request{Method: "POST", Path: "/", Length: -1})
		free, err := match.ReadBody(r, m)
		return r.Body, free, err
	}
	for _, size := range []int{100, 5000, 100_000, policy.MaxBodyRead, policy.MaxBodyRead + 100} {
		body := `{"max_tokens":7}`
		body += strings.Repeat(" ", size-len(body))
		m := &bounded{most: 2 << 20}
		got, free, err := read(m, body)
		if err != nil {
			t.Fatal(err)
		}
		if kept := int64(min(size, policy.MaxBodyRead+1)); m.used < kept || m.used > kept+32<<10 || m.used > 2*max(kept, 1<<10) {
			t.Errorf("%d bytes take %d of memory", size, m.used)
		}
		if all, err := io.ReadAll(got); string(all) != body || err != nil {
			t.Errorf("%d bytes became %d, %v", size, len(all), err)
		}
		if m.used != 0 {
			t.Errorf("%d bytes of memory are in use for a body that was read", m.used)
		}
		if free(); m.used != 0 {
			t.Errorf("memory is released twice: %d", m.used)
		}
		if got, free, err = read(m, body); err != nil {
			t.Fatal(err)
		}
		if free(); m.used != 0 {
			t.Errorf("%d bytes of memory are in use after the request", m.used)
		}
		if _, err := got.Read(make([]byte, 10)); err == nil {
			t.Error("a body is read after the request")
		}
		m.most = int64(size) / 2
		if _, _, err := read(m, body); !errors.Is(err, policy.ErrBodyMemory) || m.used != 0 {
			t.Errorf("without memory: %v, %d in use", err, m.used)
		}
	}
}

// TestIdentifyComesBeforeTheBody: whether the credentials of a request are valid is known without its
// body, and the decision is then the same.
func TestIdentifyComesBeforeTheBody(t *testing.T) {
	p := withPlans()
	p.Limits[0].Costs = policy.Costs{Before: terms("body.max_tokens")}
	e := planned(t, p, policy.Options{Customers: known()})
	for key, want := range map[string]bool{"k-free": true, "none": false} {
		m := e.Match(policy.Request{Method: "POST", Path: "/", Header: map[string][]string{"X-Api-Key": {key}}, Length: 1000})
		if ok := e.Identify(t.Context(), &m); ok != want {
			t.Errorf("%s: %v", key, ok)
		}
		if v := e.DecideMatch(t.Context(), &m); (v.Outcome != policy.UnknownCustomer) != want {
			t.Errorf("%s: %v", key, v.Outcome)
		}
	}
}
