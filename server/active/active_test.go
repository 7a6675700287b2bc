package active

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/server/policyfile"
)

// part is a Part that records its calls, and can be made to fail.
type part struct {
	name  string
	calls *[]string
	fails error
}

func (p *part) Prepare(_ context.Context, now *Snapshot, next Candidate) (Change, error) {
	if p.fails != nil {
		return nil, p.fails
	}
	return partChange{p, next.File}, nil
}

type partChange struct {
	*part
	file *policyfile.File
}

func (c partChange) note(what string) { *c.calls = append(*c.calls, c.name+" "+what) }

func (c partChange) Commit(next *Snapshot) {
	if next.File != c.file || next.Engine == nil {
		c.note("commits another policy")
		return
	}
	c.note("commits")
}

func (c partChange) Discard() { c.note("discards") }

const text = `
limits: { l: { key: client.ip, token_bucket: { rate: 1/h, burst: BURST } } }
routes: [{ match: /, limits: [l] }]
`

func parse(t *testing.T, text string) *policyfile.File {
	t.Helper()
	f, err := policyfile.Parse(filepath.Join(t.TempDir(), "policy.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestUpdateIsAllOrNothing: if one part fails, the others discard what they prepared, and the old
// policy and its limits stay.
func TestUpdateIsAllOrNothing(t *testing.T) {
	with := func(burst string) *policyfile.File { return parse(t, strings.ReplaceAll(text, "BURST", burst)) }
	p, err := New(t.Context(), with("2"), Options{Log: slog.New(slog.DiscardHandler), Accept: func(_, candidate *policyfile.File) error {
		if len(candidate.Policy.Limits) == 0 {
			return errors.New("not acceptable")
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var calls []string
	first, second := &part{name: "first", calls: &calls}, &part{name: "second", calls: &calls}
	for _, part := range []*part{first, second} {
		if err := p.Join(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	steps := func(want ...string) {
		t.Helper()
		if !slices.Equal(calls, want) {
			t.Errorf("%q, want %q", calls, want)
		}
		calls = nil
	}
	steps("first commits", "second commits")
	remaining := func(want int64) {
		t.Helper()
		if v := p.Engine().Decide(policy.Request{Method: "GET", Path: "/", Client: "10.0.0.1"}); v.Decision.Remaining != want {
			t.Errorf("%d remaining, want %d", v.Decision.Remaining, want)
		}
	}
	remaining(1)

	now := p.Now()
	second.fails = errors.New("second is not ready")
	if err := p.Update(t.Context(), with("9")); !errors.Is(err, second.fails) || p.Now() != now {
		t.Errorf("%v", err)
	}
	steps("first discards")
	unready := parse(t, "stores: { s: { url: \"redis://u@h?password_file=/not/there\" } }\n"+strings.ReplaceAll(text, "BURST", "9"))
	second.fails = nil
	if err := p.Update(t.Context(), unready); err == nil || p.Now() != now {
		t.Errorf("%v", err)
	}
	steps()
	if err := p.Update(t.Context(), parse(t, "routes: []\n")); err == nil || p.Now() != now {
		t.Errorf("%v", err)
	}
	steps()
	wrong := with("9")
	wrong.Policy.Limits[0].Key = []string{"nonsense"} // the engine, which comes last, refuses it
	if err := p.Update(t.Context(), wrong); err == nil || p.Now() != now {
		t.Errorf("%v", err)
	}
	steps("first discards", "second discards")
	remaining(0)

	if err := p.Update(t.Context(), with("9")); err != nil || p.File().Policy.Limits[0].Limit == nil {
		t.Fatal(err)
	}
	steps("first commits", "second commits")
	remaining(6) // two were used before
}

// TestJoinThatFails: a part that cannot be prepared for the active policy is not updated later.
func TestJoinThatFails(t *testing.T) {
	p, err := New(t.Context(), parse(t, "routes: []\n"), Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var calls []string
	if err := p.Join(t.Context(), &part{name: "x", calls: &calls, fails: errors.New("no")}); err == nil {
		t.Error("it joined")
	}
	if err := p.Update(t.Context(), parse(t, "routes: []\n")); err != nil || calls != nil {
		t.Errorf("%v, %q", err, calls)
	}
}
