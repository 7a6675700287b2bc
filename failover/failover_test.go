package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

func TestResponsesPass(t *testing.T) {
	for _, direct := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			f := newFake()
			s := open(t, f, Options{Direct: direct})
			if d := take(t, s, "a", 3); !d.Allowed || d.Remaining != 17 || d.Source != weir.SourceStore {
				t.Errorf("%+v", d)
			}
			batch := []weir.Charge{
				{Name: "api", Key: "a", Limit: perSecond, Cost: 2, Op: weir.OpReserve, Within: -1},
				{Name: "api", Key: "b", Limit: perSecond, Cost: 21},
			}
			out := make([]weir.Decision, 2)
			if err := s.Do(t.Context(), batch, out); err != nil || batch[0].Receipt != "store-1" || out[1].Allowed {
				t.Errorf("%v: %+v %+v", err, batch, out)
			}
			batch[0].Op, batch[0].Cost = weir.OpSettle, 1
			if err := s.Do(t.Context(), batch[:1], out); err != nil || f.settled["store-1"] != 1 {
				t.Errorf("%v: settled %v", err, f.settled)
			}
			f.set(slow(19 * time.Millisecond))
			if d := take(t, s, "a", 1); d.Source != weir.SourceStore {
				t.Errorf("an answer within the deadline: %+v", d)
			}
			if err := s.Do(t.Context(), nil, nil); err != nil {
				t.Error(err)
			}
			if err := s.Do(t.Context(), batch, out[:1]); err == nil {
				t.Error("out is too short")
			}
			if got := s.Stats(); got.Answered != 4 || got.State != Closed || got.Opened != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestDeny(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{ByName: map[string]OnFailure{"free": Allow}})
		f.set(down)
		if d := take(t, s, "a", 1); d.Allowed || d.Source != weir.SourceDeny || d.RetryAfter != 250*time.Millisecond || d.Limit != 20 || d.By != "api" {
			t.Errorf("closed: %+v", d)
		}
		breakIt(t, s, f)
		wait(100 * time.Millisecond)
		d := take(t, s, "a", 1)
		if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 250*time.Millisecond || d.Remaining != 0 {
			t.Errorf("%+v", d)
		}
		wait(d.RetryAfter - time.Millisecond)
		if d := take(t, s, "a", 1); d.RetryAfter != 20*time.Millisecond {
			t.Errorf("just before the probe: %+v", d)
		}
		for _, c := range []struct {
			weir.Charge
			allowed bool
			retry   bool
			taken   int64
		}{
			{weir.Charge{Cost: 0}, true, false, 0},
			{weir.Charge{Cost: -1}, false, false, 0},
			{weir.Charge{Cost: 21}, false, false, 0},
			{weir.Charge{Cost: 5, Op: weir.OpPeek}, false, true, 0},
			{weir.Charge{Cost: 5, Op: weir.OpReserve, Within: -1}, false, true, 0},
			{weir.Charge{Cost: 5, Op: weir.OpTakeSome}, false, true, 0},
			{weir.Charge{Op: weir.OpCarry}, true, false, 0},
			{weir.Charge{Name: "free", Cost: 20}, true, false, 0},
			{weir.Charge{Name: "free", Cost: 21}, false, false, 0},
			{weir.Charge{Name: "free", Cost: 30, Op: weir.OpTakeSome}, true, false, 20},
			{weir.Charge{Name: "free", Cost: 5, Op: weir.OpReserve}, true, false, 0},
		} {
			if c.Limit = perSecond; c.Name == "" {
				c.Name = "api"
			}
			batch, out := []weir.Charge{c.Charge}, make([]weir.Decision, 1)
			err := s.Do(t.Context(), batch, out)
			if d := out[0]; err != nil || d.Allowed != c.allowed || (d.RetryAfter > 0) != c.retry || batch[0].Taken != c.taken || batch[0].Receipt != "" {
				t.Errorf("%+v: %+v, %+v, %v", c, d, batch[0], err)
			}
		}
	})
}

// TestOperationsThatNeedTheStore: settling a charge of the store, and resetting a key.
func TestOperationsThatNeedTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Local, Nodes: 2})
		shared, err := weir.NewShared(perSecond, s, weir.Named("api"))
		if err != nil {
			t.Fatal(err)
		}
		r, ok, err := shared.Reserve(t.Context(), "a", 5, 0)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		f.set(down)
		if err := r.Cancel(t.Context()); !errors.Is(err, ErrUnavailable) || !errors.Is(err, errDown) {
			t.Errorf("Cancel: %v", err)
		}
		breakIt(t, s, f)
		if err := shared.Reset(t.Context(), "a"); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), `reset of "api"`) {
			t.Errorf("Reset: %v", err)
		}
		mend(t, s, f)
		if len(f.settled) != 0 {
			t.Errorf("settled %v", f.settled)
		}
	})
}

// TestErrorsOfChargesOpenNothing: an error that is about a charge alone goes to the caller, and does not
// open the breaker.
func TestErrorsOfChargesOpenNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Allow})
		wrong := fmt.Errorf("%w: the key holds a list", weir.ErrCharge)
		f.charge = func(c *weir.Charge) error {
			switch c.Key {
			case "list":
				return wrong
			case "node 2":
				return errDown
			case "negative":
				return weir.ErrCost
			}
			return nil
		}
		batch := make([]weir.Charge, 3)
		out := make([]weir.Decision, 3)
		ask := func(keys ...string) error {
			for i, key := range keys {
				batch[i] = weir.Charge{Name: "api", Key: key, Limit: perSecond, Cost: 1}
			}
			return s.Do(t.Context(), batch, out)
		}
		for range 100 {
			if err := ask("a", "list", "negative"); !errors.Is(err, wrong) || out[0].Source != weir.SourceStore || batch[1].Err == nil || batch[2].Err == nil {
				t.Fatalf("%v: %+v", err, out)
			}
		}
		if got := s.Stats(); got.State != Closed || got.Answered != 100 || got.Failed != 0 {
			t.Fatalf("%+v", got)
		}
		if err := ask("b", "node 2", "list"); !errors.Is(err, wrong) || out[0].Source != weir.SourceStore || out[1].Source != weir.SourceAllow || batch[1].Err != nil {
			t.Errorf("one node is down: %v: %+v", err, out)
		}
		batch[0] = weir.Charge{Name: "api", Key: "b", Limit: perSecond, Cost: 1, Group: 7}
		batch[1] = weir.Charge{Name: "other", Key: "node 2", Limit: perSecond, Cost: 1, Group: 7}
		if err := s.Do(t.Context(), batch[:2], out); err != nil || out[0].Source != weir.SourceAllow || out[1].Source != weir.SourceAllow {
			t.Errorf("a group of which one is on that node: %v: %+v", err, out)
		}
		if got := s.Stats(); got.Failed != 2 || got.State != Closed {
			t.Errorf("%+v", got)
		}
		f.charge = nil
		f.set(func(context.Context) error { return wrong })
		if err := ask("a", "b", "c"); !errors.Is(err, wrong) {
			t.Errorf("an error for all: %v", err)
		}
	})
}

// TestACallersContext: a caller that leaves early says nothing about the store. But if every caller
// leaves, the store is probed.
func TestACallersContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake()
		s := open(t, f, Options{OnFailure: Allow})
		out := make([]weir.Decision, 1)
		leave := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := s.Do(ctx, []weir.Charge{{Name: "api", Key: "a", Limit: perSecond, Cost: 1}}, out)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Millisecond {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
		}
		f.set(slow(10 * time.Millisecond)) // it would have responded
		for range 23 {
			leave()
		}
		wait(time.Second)
		if got := s.Stats(); got.State != Closed || got.Left != 23 || got.Late+got.Failed != 0 {
			t.Errorf("%+v", got)
		}
		f.set(patient) // it would not have
		for range 5 {
			leave()
		}
		wait(21 * time.Millisecond)
		if s.State() == Closed {
			t.Error("a store that does not answer those who leave early is asked for ever")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Do(gone, make([]weir.Charge, 1), out); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &beating{fake: newFake(), nodes: 2}
		s, err := New(f, Options{OnFailure: Local, Nodes: 2})
		if err != nil {
			t.Fatal(err)
		}
		breakIt(t, s, f.fake)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Do(t.Context(), make([]weir.Charge, 1), make([]weir.Decision, 1)); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}) // it fails if a goroutine is left
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		Options
		say string
	}{
		{Options{OnFailure: 3}, "OnFailure"},
		{Options{ByName: map[string]OnFailure{"api": 9}}, `"api"`},
		{Options{OnFailure: Local}, "Nodes: 0"},
		{Options{ByName: map[string]OnFailure{"api": Local}}, "Nodes: 0"},
		{Options{Nodes: -1}, "Nodes: -1"},
		{Options{Deadline: -1}, "Deadline"},
		{Options{Probe: -1}, "Probe"},
		{Options{MaxCalls: -1}, "MaxCalls"},
		{Options{MaxKeys: -1}, "MaxKeys"},
		{Options{Full: 9}, "Full"},
	} {
		if _, err := New(newFake(), c.Options); err == nil || !strings.Contains(err.Error(), "failover.Options.") || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v", c.Options, err)
		}
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no store")
	}
	if Deny.String() != "deny" || Local.String() != "local" || OnFailure(7).String() != "OnFailure(7)" || State(9).String() != "State(9)" {
		t.Error("names")
	}
}
