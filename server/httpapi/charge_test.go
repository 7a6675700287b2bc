package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirclient"
	"github.com/weirflow/weir/weirtest"
)

// replaced is a store behind the service, which a test replaces.
type replaced struct {
	mu    sync.Mutex
	store weir.Store
}

func (r *replaced) set(s weir.Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store = s
}

func (r *replaced) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	r.mu.Lock()
	s := r.store
	r.mu.Unlock()
	return s.Do(ctx, batch, out)
}

func (r *replaced) Close() error { return nil }

// behind serves client limits that are kept in a store.
func behind(t *testing.T) (*service, *weirclient.Client, *replaced) {
	t.Helper()
	s := serve(t, "stores: { own: { url: \"redis://127.0.0.1:1\", deadline: 1m } }\n"+limits, ", client_limits: { store: own }", nil)
	r := new(replaced)
	s.policy.Now().Direct["own"] = r
	return s, s.client(weirclient.Options{Timeout: time.Minute}), r
}

// client returns a client of the service.
func (s *service) client(o weirclient.Options) *weirclient.Client {
	s.t.Helper()
	c, err := weirclient.New(s.url(""), o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// TestStoreConforms: over HTTP, a store does as the reference model: nothing is lost between the client,
// the service and the store behind it. The store is the reference, with two versions of a limit.
func TestStoreConforms(t *testing.T) {
	raced.Skip(t)
	_, c, r := behind(t)
	weirtest.Conform(t, weirtest.Subject{Blind: true, Tick: time.Nanosecond, Latest: 1 << 62, Seed: seeds.Seed(), Walks: 6, Open: func(l weir.Limit, clock *weirtest.Clock) (weirtest.Taker, error) {
		r.set(weirtest.NewStore(clock.Now))
		return weirtest.Stored(c.Store(), l), nil
	}})
}

// TestChargesThatFail: an error of one charge is a weir.ErrCharge, and one of the store is not. A call
// that the store did not respond to is remembered: sent again, it is not carried out again.
func TestChargesThatFail(t *testing.T) {
	s, c, r := behind(t)
	r.set(weirtest.NewStore(nil))
	do := func(charges ...weir.Charge) ([]weir.Charge, []weir.Decision, error) {
		for i := range charges {
			if charges[i].Name == "" {
				charges[i].Name = "own"
			}
			if charges[i].Limit == nil {
				charges[i].Limit = weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}
			}
		}
		out := make([]weir.Decision, len(charges))
		return charges, out, c.Store().Do(t.Context(), charges, out)
	}
	batch, out, err := do(weir.Charge{Key: "a", Cost: 1}, weir.Charge{Key: "a", Op: weir.OpSettle, Receipt: "none"}, weir.Charge{Key: "\xff\x00", Cost: 6})
	if !errors.Is(err, weir.ErrCharge) || batch[0].Err != nil || !errors.Is(batch[1].Err, weir.ErrCharge) || batch[2].Err != nil || !out[0].Allowed || out[2].RetryAfter != weir.Never {
		t.Errorf("%v %+v %+v", err, batch, out)
	}
	for name, x := range map[string]weir.Charge{
		"no limit":    {Limit: weir.TokenBucket{}},
		"a name":      {Name: "per user"},
		"a long key":  {Key: strings.Repeat("k", 5000)},
		"concurrency": {Limit: weir.Concurrency{Limit: 5}, Cost: 1},
	} {
		if _, _, err := do(x); !errors.Is(err, weir.ErrCharge) || strings.Contains(err.Error(), clientPrefix) {
			t.Errorf("%s: %v", name, err)
		}
	}
	down := errors.New("connection refused")
	r.set(failing{down})
	if batch, _, err = do(weir.Charge{Key: "a", Cost: 1}); err == nil || errors.Is(err, weir.ErrCharge) || batch[0].Err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	body := `{"charges": [{"name": "own", "key": "a", "limit": {"token_bucket": {"rate": "1/h", "burst": 5}}, "cost": 1}]}`
	if status, _, text := s.call("POST", "/v1/charge", body, "Idempotency-Key", "k1"); status != 503 || !strings.Contains(text, `"unavailable":true`) {
		t.Errorf("%d %s", status, text)
	}
	r.set(weirtest.NewStore(nil))
	if status, _, text := s.call("POST", "/v1/charge", body, "Idempotency-Key", "k1"); status != 503 {
		t.Errorf("carried out, perhaps for the second time: %d %s", status, text)
	}
	if status, _, text := s.call("POST", "/v1/charge", body, "Idempotency-Key", "k2"); status != 200 || !strings.Contains(text, `"remaining":4`) {
		t.Errorf("%d %s", status, text)
	}
}

// failing is a store that is down.
type failing struct{ err error }

func (f failing) Do(context.Context, []weir.Charge, []weir.Decision) error { return f.err }
func (f failing) Close() error                                             { return nil }

// TestClientLimitsAreApart: no name that a client brings reaches a limit of the policy, and without
// client_limits, or a scope for them, there are none.
func TestClientLimitsAreApart(t *testing.T) {
	s := serve(t, limits, ", client_limits: { max_keys: 100, when_full: refuse }", nil)
	store := s.client(weirclient.Options{}).Store()
	out := make([]weir.Decision, 1)
	for _, name := range []string{"per-user", "limits/per-user", "CLIENT.per-user", `{"limit":"per-user"}`} {
		batch := []weir.Charge{{Name: name, Key: "a", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}, Cost: 5}}
		if err := store.Do(t.Context(), batch, out); err != nil || !out[0].Allowed || out[0].By != name {
			t.Errorf("%s: %v %+v", name, err, out)
		}
	}
	if left := s.left("a"); left != 5 {
		t.Errorf("a client's limit reached one of the policy: %v left", left)
	}
	failed := 0
	for i := range 200 {
		batch := []weir.Charge{{Name: "own", Key: fmt.Sprint(i), Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}, Cost: 5}}
		if err := store.Do(t.Context(), batch, out); err != nil {
			failed++
		}
	}
	if failed < 100 || s.clients.memory.Len() > 100 {
		t.Errorf("%d failed, %d keys", failed, s.clients.memory.Len())
	}
	none := serve(t, limits, "", nil)
	var wrong *weirclient.Error
	if err := none.client(weirclient.Options{}).Store().Do(t.Context(), []weir.Charge{{Name: "own", Limit: weir.TokenBucket{Rate: weir.PerHour(1), Burst: 5}}}, out); !errors.As(err, &wrong) || wrong.Status != 403 || !strings.Contains(wrong.Fix, "client_limits") {
		t.Errorf("without client_limits: %v", err)
	}
}

// TestDefaultCost: a charge without a cost charges 1, as a take does, and a settle needs a cost.
func TestDefaultCost(t *testing.T) {
	s := serve(t, limits, ", client_limits: {}", nil)
	const own = `"name": "own", "key": "a", "limit": {"token_bucket": {"rate": "1/h", "burst": 5}}`
	result := func(charge string) map[string]any {
		t.Helper()
		status, out := s.post("charge", `{"charges": [{`+own+charge+`}]}`)
		if status != 200 {
			t.Fatalf("%d: %v", status, out)
		}
		return out["results"].([]any)[0].(map[string]any)
	}
	for i, op := range []string{"", `, "op": "take"`, `, "op": "reserve"`, `, "op": "take_some"`} {
		if r := result(op); r["remaining"] != float64(4-i) {
			t.Errorf("%s: %v", op, r)
		}
	}
	if r := result(`, "cost": 0`); r["remaining"] != 1.0 {
		t.Errorf("a cost of 0: %v", r)
	}
	receipt, _ := result(`, "keep": true`)["receipt"].(string)
	settle := `, "op": "settle", "receipt": "` + receipt + `"`
	if status, out := s.post("charge", `{"charges": [{`+own+settle+`}]}`); status != 422 || out["field"] != "charges[0].cost" {
		t.Errorf("a settle without a cost: %d %v", status, out)
	}
	for _, wrong := range []string{`, "cost": 1, "once": "a"`, `, "cost": 1, "once": "a b", "once_for_ns": 1`, `, "cost": 1, "once": "a", "once_for_ns": 7200000000001`} {
		if status, out := s.post("charge", `{"charges": [{`+own+settle+wrong+`}]}`); status != 422 {
			t.Errorf("%s: %d %v", wrong, status, out)
		}
	}
	if r := result(settle + `, "cost": 0, "once": "a", "once_for_ns": 1000000000`); r["remaining"] != 1.0 {
		t.Errorf("settled: %v", r)
	}
}
