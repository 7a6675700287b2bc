package regions

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/pause"
	"github.com/weirflow/weir/weirtest"
)

// TestFixedParts: if all of a limit is guaranteed, no part moves, so windows of any length are divided, and no
// home is needed.
func TestFixedParts(t *testing.T) {
	s, err := New(weirtest.NewStore(nil), nil, Options{Here: "eu", Regions: []Region{{"eu", 60}, {"us", 40}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, c := range map[string]struct {
		l    weir.Limit
		part int64
	}{
		"day":     {weir.FixedWindow{Limit: 1000, Window: 24 * time.Hour}, 600},
		"month":   {weir.FixedWindow{Limit: 1000, Align: "month"}, 600},
		"sliding": {weir.SlidingWindow{Limit: 1000, Window: 24 * time.Hour, Slots: 24}, 600},
		"bucket":  {weir.TokenBucket{Rate: weir.PerDay(1000), Burst: 1000}, 500}, // the burst is equal in all regions
	} {
		l, err := weir.NewShared(c.l, s, weir.Named(name))
		if err != nil {
			t.Errorf("%+v: %v", c.l, err)
			continue
		}
		if d, err := l.Take(t.Context(), "k", c.part); err != nil || !d.Allowed {
			t.Errorf("%+v: %+v, %v", c.l, d, err)
		}
		if d, err := l.Take(t.Context(), "k", 1); err != nil || d.Allowed {
			t.Errorf("%+v: more than the part: %+v, %v", c.l, d, err)
		}
	}
	if now, next := s.Share("day"); now != 600 || next != 600 {
		t.Errorf("a share of %d, then %d", now, next)
	}
	if calls := s.Stats().Calls; calls != 0 {
		t.Errorf("%d calls of a home that there is not", calls)
	}
}

// TestTooLong: a limit that cannot follow demand says which Term it needs, if there is one.
func TestTooLong(t *testing.T) {
	o := Options{Here: "eu", Regions: three}
	for _, c := range []struct {
		l     weir.Limit
		needs time.Duration
	}{
		{weir.FixedWindow{Limit: 10, Window: time.Minute}, 8 * time.Minute},
		{weir.FixedWindow{Limit: 10, Window: 450 * sec}, time.Hour},
		{weir.FixedWindow{Limit: 10, Window: 451 * sec}, 0},
		{weir.FixedWindow{Limit: 10, Align: "month"}, 0},
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 200}, 80 * sec},
	} {
		_, err := o.Guaranteed(c.l)
		var long *TooLongError
		if !errors.As(err, &long) || !errors.Is(err, ErrLimit) || long.Needs != c.needs || long.Term != time.Minute {
			t.Errorf("%+v: %v", c.l, err)
			continue
		}
		if c.needs == 0 {
			continue
		}
		longer := o
		longer.Term = c.needs
		if _, err := longer.Guaranteed(c.l); err != nil {
			t.Errorf("%+v: with the Term that the error names: %v", c.l, err)
		}
	}
	if part, err := o.Guaranteed(weir.FixedWindow{Limit: 100, Window: sec}); err != nil || part != (weir.FixedWindow{Limit: 10, Window: sec}) {
		t.Errorf("%+v, %v", part, err)
	}
	if _, err := (Options{Here: "eu"}).Guaranteed(weir.FixedWindow{Limit: 100, Window: sec}); err == nil || !strings.Contains(err.Error(), "from 2 to 16") {
		t.Error(err)
	}
}

// TestTwoTermsAtOneHome: Stores with different Terms at one home have counts of their own: no count is charged
// in windows of two lengths, which would reset it.
func TestTwoTermsAtOneHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := &recorded{Store: weirtest.NewStore(nil), seen: map[[2]string]weir.Limit{}}
		for _, term := range []time.Duration{10 * sec, 40 * sec} {
			s, err := New(weirtest.NewStore(nil), home, Options{Here: "eu", Regions: three, Term: term})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			l, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 50}, s, weir.Named("l"))
			if err != nil {
				t.Fatal(err)
			}
			if d, err := l.Take(t.Context(), "k", 1); err != nil || !d.Allowed {
				t.Error(d, err)
			}
		}
		_ = pause.For(t.Context(), 100*sec)
		synctest.Wait()
		if len(home.seen) < 10 {
			t.Errorf("only %d counts", len(home.seen))
		}
		for _, count := range home.twice {
			t.Errorf("%s is charged in windows of two lengths", count)
		}
	})
}

// recorded is a store that looks at each charge's limit.
type recorded struct {
	weir.Store
	mu    sync.Mutex
	seen  map[[2]string]weir.Limit // by name and key
	twice [][2]string
}

func (r *recorded) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	r.mu.Lock()
	for _, c := range batch {
		at := [2]string{c.Name, c.Key}
		if of, ok := r.seen[at]; ok && of != c.Limit {
			r.twice = append(r.twice, at)
		}
		r.seen[at] = c.Limit
	}
	r.mu.Unlock()
	return r.Store.Do(ctx, batch, out)
}

// TestStartAsAWindowBegins: a node that makes its first call just when the home's window begins does not call again
// and again until it knows its share.
func TestStartAsAWindowBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := weirtest.NewStore(nil)
		s, err := New(weirtest.NewStore(nil), home, Options{Here: "eu", Regions: three})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 50}, s, weir.Named("l"))
		if err != nil {
			t.Fatal(err)
		}
		if d, err := l.Take(t.Context(), "k", 1); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		_ = pause.For(t.Context(), 30*sec)
		if calls := s.Stats().Calls; calls > 8 {
			t.Errorf("%d calls of the home in half a Term", calls)
		}
	})
}

// TestOnHome: a home that becomes unavailable is told once, and so is its return.
func TestOnHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &downStore{place: &place{store: weirtest.NewStore(nil)}}
		var told []error
		s, err := New(weirtest.NewStore(nil), down, Options{
			Here: "eu", Regions: three, Term: 10 * sec,
			OnHome: func(cause error) { told = append(told, cause) },
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 50}, s, weir.Named("l"))
		if err != nil {
			t.Fatal(err)
		}
		for _, down.down = range []bool{false, true, true, false, false} {
			if d, err := l.Take(t.Context(), "k", 1); err != nil || !d.Allowed {
				t.Error(d, err)
			}
			_ = pause.For(t.Context(), 30*sec)
			synctest.Wait()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if len(told) != 2 || told[0] != errCut || told[1] != nil {
			t.Errorf("told %v", told)
		}
	})
}

type downStore struct{ *place }

func (d *downStore) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	if d.down {
		return errCut
	}
	return d.store.Do(ctx, batch, out)
}

func (d *downStore) Close() error { return nil }

// TestCloseDuringACall: the reply of a call of the home that was made before Close is of no use any more. It crashed
// the process.
func TestCloseDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := &heldStore{Store: weirtest.NewStore(nil), release: make(chan struct{})}
		s, err := New(weirtest.NewStore(nil), home, Options{Here: "eu", Regions: three})
		if err != nil {
			t.Fatal(err)
		}
		l, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 50}, s, weir.Named("l"))
		if err != nil {
			t.Fatal(err)
		}
		if d, err := l.Take(t.Context(), "k", 1); err != nil || !d.Allowed {
			t.Error(d, err)
		}
		synctest.Wait() // the home has the call
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if _, err := l.Take(t.Context(), "k", 1); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		close(home.release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

type heldStore struct {
	weir.Store
	release chan struct{}
}

func (h *heldStore) Do(ctx context.Context, batch []weir.Charge, out []weir.Decision) error {
	<-h.release
	return h.Store.Do(ctx, batch, out)
}
