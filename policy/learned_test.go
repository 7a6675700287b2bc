package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestLearnedIsBounded: however many keys there are, the last ones are known, and no more are kept
// than may be.
func TestLearnedIsBounded(t *testing.T) {
	l := newLearned()
	for i := range 3 * maxLearned {
		for range fewestCosts {
			l.add(fmt.Sprint(i), int64(i))
		}
	}
	if _, ok := l.quantile(fmt.Sprint(3*maxLearned - 1)); !ok || len(l.keys) != maxLearned || l.order.Len() != maxLearned {
		t.Errorf("%d keys are kept", len(l.keys))
	}
}

// TestSharedSpec: limits that read the same from a response read it once.
func TestSharedSpec(t *testing.T) {
	costs := Costs{Default: 5, After: []CostTerm{{Of: "openai"}}}
	p := Policy{Routes: []Route{{Match: "/"}}}
	p.Limits = append(p.Limits, Limit{Name: "tokens", Limit: weir.FixedWindow{Limit: 1000, Window: time.Minute}, Costs: costs},
		Limit{Name: "day", Limit: weir.FixedWindow{Limit: 10000, Window: time.Hour}, Costs: costs},
		Limit{Name: "dry", Shadow: true, Limit: weir.FixedWindow{Limit: 10, Window: time.Hour}, Costs: costs})
	p.Routes[0].Limits = []string{"tokens", "day", "dry"}
	e, err := New(p, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	match := e.Match(Request{Method: "POST", Path: "/"})
	v := e.DecideMatch(t.Context(), &match)
	m := v.Meter()
	if len(m.readers) != 1 {
		t.Errorf("%d readers", len(m.readers))
	}
	m.Header(200, nil)
	m.Write([]byte(`{"usage":{"prompt_tokens":7,"completion_tokens":1}}`))
	m.End(Ending{Complete: true})
	for _, c := range e.Counts() {
		if want := uint64(8); c.Actual != want {
			t.Errorf("%s: %d", c.Limit, c.Actual)
		}
	}
}
