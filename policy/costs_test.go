package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// costly is a policy of one limit with costs that are known only afterwards.
func costly(l weir.Limit, costs policy.Costs, change ...func(*policy.Limit)) policy.Policy {
	limit := policy.Limit{Name: "tokens", Key: []string{"body.model"}, Limit: l, Costs: costs}
	for _, c := range change {
		c(&limit)
	}
	p := policy.Policy{Limits: []policy.Limit{limit}, Routes: []policy.Route{{Match: "/", Limits: []string{"tokens"}}}}
	if limit.Store != "" {
		p.Stores = []policy.Store{{Name: limit.Store, URL: "mem:"}}
	}
	return p
}

func terms(of ...string) (all []policy.CostTerm) {
	for _, o := range of {
		all = append(all, policy.CostTerm{Of: o})
	}
	return all
}

// decideBody decides about a request with a body.
func decideBody(t *testing.T, e *policy.Engine, body string, header ...string) policy.Verdict {
	t.Helper()
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	if strings.HasSuffix(body, " ") { // such a body comes in chunks
		r.ContentLength = -1
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	m := e.Match(policy.Request{Method: "POST", Path: "/", Header: r.Header, Length: r.ContentLength})
	if _, err := m.ReadBody(r, nil); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(r.Body); string(all) != body || err != nil {
		t.Errorf("the body became %.50q, %v", all, err)
	}
	return e.DecideMatch(t.Context(), &m)
}

// respond ends a request with a response.
func respond(v *policy.Verdict, header http.Header, body string) {
	m := v.Meter()
	m.Header(200, header)
	m.Write([]byte(body))
	m.End(policy.Ending{Complete: true})
	m.End(policy.Ending{Complete: true}) // does nothing
}

// TestEstimates: what is charged before, by the request.
func TestEstimates(t *testing.T) {
	huge := `{"model":"a","max_tokens":7,"x":"` + strings.Repeat("x", policy.MaxBodyRead) + `"}`
	for _, c := range []struct {
		before []policy.CostTerm
		body   string
		cost   int64
	}{
		{terms("70"), `{}`, 70},
		{terms("body.max_tokens"), `{"max_tokens":7}`, 7},
		{terms("body.max_tokens"), `{"max_tokens":"7"}`, 7},
		{terms("body.max_tokens"), `{"max_tokens":7,"max_tokens":8}`, 50},
		{terms("body.max_tokens"), `{"max_tokens":7.5}`, 50},
		{terms("body.max_tokens"), `{"max_tokens":0}`, 1},
		{terms("body.max_tokens"), `not JSON`, 50},
		{terms("body.max_tokens"), huge, 50},
		{terms("body.max_completion_tokens|max_tokens"), `{"max_tokens":7}`, 7},
		{terms("body.max_completion_tokens|max_tokens"), `{"max_tokens":7,"max_completion_tokens":9}`, 9},
		{terms("body.max_completion_tokens|max_tokens"), `{"max_completion_tokens":9,"max_completion_tokens":9,"max_tokens":1}`, 50},
		{terms("body.generationConfig.maxOutputTokens"), `{"generationConfig":{"maxOutputTokens":9}}`, 9},
		{terms("prompt/4"), `12345678`, 2},
		{terms("prompt/4"), `123456789`, 3},
		{terms("prompt/4"), `1234567 `, 2},
		{terms("prompt/4096"), huge + strings.Repeat(" ", 1<<20), 256}, // 1 MiB at least
		{terms("prompt/65536"), huge + " ", 50},
		{terms("prompt/4", "body.max_tokens"), `{"max_tokens":7}`, 4 + 7},
		{terms("prompt/4", "body.max_tokens"), `{"other":17}`, 3 + 50},
		{terms("header.x-estimate"), `{}`, 33},
		{[]policy.CostTerm{{"prompt/4", 3}, {"body.max_tokens", 15}}, `{"max_tokens":7}`, 3*4 + 15*7},
		{terms("learned"), `{}`, 50},
		{terms("0"), `{}`, 0},
		{nil, `{}`, 50},
	} {
		e, err := policy.New(costly(weir.FixedWindow{Limit: 1000, Window: time.Hour}, policy.Costs{Before: c.before, Default: 50, After: terms("openai")}), policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := decideBody(t, e, c.body, "X-Estimate", "33")
		if got := 1000 - v.Decision.Remaining; got != c.cost {
			t.Errorf("%v of %.60s: %d, want %d", c.before, c.body, got, c.cost)
		}
		e.Close()
	}
}

// TestLearned: estimates follow what a key and a model have cost, in bounded memory, and survive a
// change of the policy.
func TestLearned(t *testing.T) {
	p := costly(weir.FixedWindow{Limit: 1 << 40, Window: time.Hour}, policy.Costs{Before: terms("learned"), Default: 50, After: terms("openai")})
	e, err := policy.New(p, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { e.Close() }()
	estimate := func(model string) int64 {
		before := e.Counts()[0].Estimated
		v := decideBody(t, e, `{"model":"`+model+`"}`)
		v.Meter().End(policy.Ending{Failed: true})
		return int64(e.Counts()[0].Estimated - before)
	}
	for i := range 20 {
		v := decideBody(t, e, `{"model":"a"}`)
		respond(&v, nil, fmt.Sprintf(`{"usage":{"completion_tokens":%d}}`, 1000+i))
	}
	if got := estimate("a"); got != 1018 {
		t.Errorf("the estimate is %d, want the second largest of the last 16: 1018", got)
	}
	if got := estimate("b"); got != 50 {
		t.Errorf("another model's estimate is %d", got)
	}
	next, err := e.Next(p)
	if err != nil {
		t.Fatal(err)
	}
	e = next
	if got := estimate("a"); got != 1018 {
		t.Errorf("after a change of the policy, the estimate is %d", got)
	}
}

// TestSettledOnce: whatever happens to requests, in whatever order, what is charged in the end is
// what they have cost. The model is a sum.
func TestSettledOnce(t *testing.T) {
	for _, stored := range []bool{false, true} {
		rnd := seeds.Of(t.Name())
		const capacity = 1 << 40
		opts := policy.Options{}
		p := costly(weir.FixedWindow{Limit: capacity, Window: time.Hour}, policy.Costs{Before: terms("body.max_tokens"), Default: 50, After: terms("openai"), IfUnknown: policy.IfUnknownSeen},
			func(l *policy.Limit) {
				if stored {
					l.Store = "shared"
				}
			})
		if stored {
			opts.Stores = map[string]weir.Store{"shared": weirtest.NewStore(nil)}
		}
		e, err := policy.New(p, opts)
		if err != nil {
			t.Fatal(err)
		}
		var want int64
		type open struct {
			v        *policy.Verdict
			estimate int64
		}
		var all []open
		for range 2000 {
			if len(all) < 20 && rnd.IntN(2) == 0 {
				n := int64(1 + rnd.IntN(1000))
				v := decideBody(t, e, fmt.Sprintf(`{"model":"a","max_tokens":%d}`, n))
				all = append(all, open{&v, n})
				want += n
				continue
			}
			if len(all) == 0 {
				continue
			}
			i := rnd.IntN(len(all))
			o := all[i]
			all = append(all[:i], all[i+1:]...)
			m, n := o.v.Meter(), int64(rnd.IntN(2000))
			actual := o.estimate
			switch rnd.IntN(5) {
			case 0: // nothing is known
				m.End(policy.Ending{})
			case 1:
				m.Header(503, nil)
				m.End(policy.Ending{Complete: true})
				actual = 0
			case 2:
				m.End(policy.Ending{Failed: true})
				actual = 0
			default:
				m.Header(200, nil)
				m.Write(fmt.Appendf(nil, `{"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, n))
				m.End(policy.Ending{Complete: true})
				actual = n + 1
			}
			m.End(policy.Ending{Complete: true})
			if again := o.v.Meter(); again != nil {
				t.Fatal("a second meter of one request")
			}
			want += actual - o.estimate
		}
		for _, o := range all {
			o.v.KeepEstimates()
		}
		e.Close() // waits for what is settled in the background
		v := decideBody(t, e, `{"model":"a","max_tokens":1}`)
		if got := capacity - v.Decision.Remaining - 1; got != want {
			t.Errorf("stored %v: %d are charged, want %d", stored, got, want)
		}
	}
}

// TestBodyThatBreaks: a body that cannot be read is an error, and charges nothing.
func TestBodyThatBreaks(t *testing.T) {
	e, err := policy.New(costly(weir.FixedWindow{Limit: 1000, Window: time.Hour}, policy.Costs{Default: 5, After: terms("openai")}), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	broken := errors.New("broken")
	r := httptest.NewRequestWithContext(context.Background(), "POST", "/", io.MultiReader(strings.NewReader(`{"model":`), iotest.ErrReader(broken)))
	m := e.Match(policy.Request{Method: "POST", Path: "/", Length: -1})
	if _, err := m.ReadBody(r, nil); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestBodyOfUnknownLength: a body in chunks is read up to its bound, and what is beyond it makes its
// fields unclear: an upstream might read another value.
func TestBodyOfUnknownLength(t *testing.T) {
	e, err := policy.New(costly(weir.FixedWindow{Limit: 1000, Window: time.Hour}, policy.Costs{Before: terms("body.max_tokens"), Default: 50, After: terms("openai")}), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	used := int64(0)
	for _, c := range []struct {
		pad  int
		more string
		cost int64
	}{{policy.MaxBodyRead, "", 7}, {policy.MaxBodyRead, "}", 50}, {100, "", 7}, {100, "}", 50}} {
		body := `{"max_tokens":7}`
		body += strings.Repeat(" ", c.pad-len(body)) + c.more
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", io.MultiReader(strings.NewReader(body)))
		m := e.Match(policy.Request{Method: "POST", Path: "/", Length: -1})
		if _, err := m.ReadBody(r, nil); err != nil {
			t.Fatal(err)
		}
		v := e.DecideMatch(t.Context(), &m)
		if got := 1000 - v.Decision.Remaining - used; c.cost != got {
			// the key is the empty one, whether the model is missing or unclear
			t.Errorf("%d bytes and %q: %d, want %d", c.pad, c.more, got, c.cost)
		}
		v.KeepEstimates()
		used += c.cost
	}
}
