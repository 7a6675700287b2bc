package weirclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/charges"
)

// A Store is a weir.Store that the limit service keeps: in the server's memory, or in the store that
// client_limits of its policy names. The limits are those of this program, and their names are apart
// from those of the policy. Programs that use a name share its keys.
//
//	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 20}, c.Store(), weir.Named("per-user"))
//
// A list of charges is one round trip, and one with a Group is all or nothing, whatever its keys. While
// the service is unavailable, calls fail with ErrUnavailable: package failover has fallbacks for that.
type Store struct {
	c  *Client
	mu sync.RWMutex
	// the JSON of limits
	limits map[weir.Limit]json.RawMessage
}

// mostLimits bounds the memory of limits.
const mostLimits = 1024

// Store returns a store that the service keeps. Several share nothing but the client.
func (c *Client) Store() *Store { return &Store{c: c, limits: map[weir.Limit]json.RawMessage{}} }

// Close does nothing: the client stays open.
func (s *Store) Close() error { return nil }

// Do carries out a batch, as weir.Store specifies. A batch of more than 256 charges is sent in several
// calls, and a group may not be larger.
func (s *Store) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if len(out) < len(batch) {
		return fmt.Errorf("weirclient: %d charges, and room for %d decisions", len(batch), len(out))
	}
	var failed error
	for len(batch) > 0 {
		n, err := split(batch)
		if err == nil {
			err = s.do(ctx, batch[:n], out[:n])
		}
		if failed == nil {
			failed = err
		}
		if errors.Is(err, ErrUnavailable) || n == 0 {
			return failed
		}
		batch, out = batch[n:], out[n:]
	}
	return failed
}

// split returns how many charges go into the next call: no group may be cut.
func split(batch []weir.Charge) (n int, err error) {
	if len(batch) <= charges.Most {
		return len(batch), nil
	}
	last := map[int]int{} // by group
	for i := range batch {
		if g := batch[i].Group; g > 0 {
			last[g] = i
		}
	}
	end := 0 // of the groups that have begun
	for i := range batch {
		if i >= end && i > 0 && i <= charges.Most {
			n = i
		}
		if g := batch[i].Group; g > 0 {
			end = max(end, last[g]+1)
		}
		if i == charges.Most {
			break
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("weirclient: a group and what stands between its charges are more than %d charges: %w", charges.Most, weir.ErrCharge)
	}
	return n, nil
}

// do is Do for what fits into one call.
func (s *Store) do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	in := charges.Request{Charges: make([]charges.Charge, len(batch))}
	groups := map[int]int{}
	for i := range batch {
		c := &batch[i]
		limit, err := s.limit(c.Limit)
		if err == nil {
			in.Charges[i], err = charges.Encode(c, limit)
		}
		if err != nil {
			return fmt.Errorf("weirclient: %w: %w", weir.ErrCharge, err)
		}
		if c.Group > 0 { // the server numbers groups from 1 on
			if groups[c.Group] == 0 {
				groups[c.Group] = len(groups) + 1
			}
			in.Charges[i].Group = groups[c.Group]
		}
	}
	var got charges.Response
	if err := s.c.call(ctx, "charge", http.MethodPost, "/v1/charge", in, &got, http.StatusOK, http.StatusServiceUnavailable); err != nil {
		return asStore(err)
	}
	if len(got.Results) != len(batch) {
		return fmt.Errorf("weirclient: %d charges, and %d results", len(batch), len(got.Results))
	}
	var first error
	for i := range batch {
		got.Results[i].Into(&batch[i], &out[i])
		if err := batch[i].Err; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// asStore is an error as a weir.Store returns it: what is wrong with a charge is a weir.ErrCharge.
func asStore(err error) error {
	var wrong *Error
	if errors.As(err, &wrong) && (wrong.Status == http.StatusUnprocessableEntity || wrong.Status == http.StatusBadRequest) {
		return fmt.Errorf("%w: %w", weir.ErrCharge, err)
	}
	return err
}

// limit returns the JSON of a limit.
func (s *Store) limit(l weir.Limit) (json.RawMessage, error) {
	s.mu.RLock()
	text := s.limits[l]
	s.mu.RUnlock()
	if text != nil {
		return text, nil
	}
	text, err := charges.EncodeLimit(l)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.limits) >= mostLimits {
		s.limits = map[weir.Limit]json.RawMessage{}
	}
	s.limits[l] = text
	return text, nil
}
