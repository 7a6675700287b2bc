package weirtest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/weirtest"
)

// placesInMemory keeps places in this process. A fault breaks it in one way.
type placesInMemory struct {
	fault string
	mu    sync.Mutex
	names map[string]*keyed.Concurrency[string]
}

func (p *placesInMemory) of(name string, limit weir.Concurrency) *keyed.Concurrency[string] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names[name] == nil {
		p.names[name], _ = keyed.NewConcurrency[string](limit, keyed.Options{})
	}
	_ = p.names[name].SetLimit(limit)
	return p.names[name]
}

// Enter implements policy.Holder.
func (p *placesInMemory) Enter(ctx context.Context, c weir.Charge) (func(weir.Outcome), weir.Decision, error) {
	if c.Cost < 0 {
		return nil, weir.Decision{}, weir.ErrCost
	}
	limit := c.Limit.(weir.Concurrency)
	switch p.fault {
	case "one too many":
		limit.Limit++
	case "a longer queue":
		limit.Queue++
	}
	of := p.of(c.Name, limit)
	hold, d := of.TryEnterCost(c.Key, c.Cost)
	if !d.Allowed && c.Within != 0 {
		var err error
		var limited *weir.LimitedError
		switch hold, err = of.EnterCost(ctx, c.Key, c.Cost); {
		case errors.As(err, &limited):
			return nil, limited.Decision, nil
		case err != nil:
			if p.fault == "a refusal for giving up" {
				return nil, weir.Decision{RetryAfter: weir.Never}, nil
			}
			return nil, weir.Decision{}, err
		}
		d = weir.Decision{Allowed: true, Limit: limit.Limit}
	}
	if p.fault == "one too many" {
		d.Limit, d.Remaining = d.Limit-1, max(d.Remaining-1, 0)
	}
	if p.fault == "more remaining" && d.Remaining > 0 {
		d.Remaining++
	}
	if !d.Allowed {
		return nil, d, nil
	}
	return func(o weir.Outcome) {
		if o != weir.Dropped || p.fault != "kept when dropped" {
			hold.Done(o)
		}
	}, d, nil
}

// TestPlacesConform: a correct store conforms to the model, and each fault is found. The minutes in
// which a place does not come back are virtual.
func TestPlacesConform(t *testing.T) {
	for fault, want := range map[string]string{
		"":                        "",
		"one too many":            "admitted while",
		"not shared":              "admitted while",
		"more remaining":          "has Remaining",
		"kept when dropped":       "after all have left",
		"a longer queue":          "no caller is refused by a full queue",
		"a refusal for giving up": "whose context ended",
	} {
		synctest.Test(t, func(t *testing.T) {
			places := &placesInMemory{fault: fault, names: map[string]*keyed.Concurrency[string]{}}
			var found recorder
			weirtest.Conform(&found, weirtest.Subject{
				Open: openKeyed, Limits: []func(*rand.Rand) weir.Limit{}, Seed: seeds.Seed(),
				Places: func() (policy.Holder, error) {
					if fault == "not shared" {
						return &placesInMemory{names: map[string]*keyed.Concurrency[string]{}}, nil
					}
					return places, nil
				},
			})
			all := strings.Join(found.errors, "\n")
			if (want == "") != (all == "") || !strings.Contains(all, want) {
				t.Errorf("%q: %q, want %q", fault, all, want)
			}
		})
	}
}
