package regions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/weirtest"
)

var three = []Region{{"eu", 10}, {"us", 10}, {"ap", 10}}

func TestOptions(t *testing.T) {
	store := weirtest.NewStore(nil)
	for want, o := range map[string]Options{
		"from 2 to 16":           {Here: "eu", Regions: three[:1]},
		"is no name":             {Here: "eu", Regions: []Region{{"eu", 10}, {"U S", 10}}},
		"listed twice":           {Here: "eu", Regions: []Region{{"eu", 10}, {"eu", 10}}},
		"at least 1":             {Here: "eu", Regions: []Region{{"eu", 10}, {"us", 0}}},
		"more than 100 percent":  {Here: "eu", Regions: []Region{{"eu", 1 << 62}, {"us", 1 << 62}}},
		"not one of the Regions": {Here: "sa", Regions: three},
		"between 1s and 1h":      {Here: "eu", Regions: three, Term: 2 * time.Hour},
		"of milliseconds":        {Here: "eu", Regions: three, Term: time.Second + 1},
		"Timeout: -1ns":          {Here: "eu", Regions: three, Timeout: -1},
		"Margin: -1ns":           {Here: "eu", Regions: three, Margin: -1},
		"an eighth of the Term":  {Here: "eu", Regions: three, Timeout: time.Minute},
		"1/64 of the Term":       {Here: "eu", Regions: three, Margin: time.Minute},
	} {
		if _, err := New(store, store, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, and not %q", o, err, want)
		}
	}
	if _, err := New(nil, store, Options{Here: "eu", Regions: three}); err == nil {
		t.Error("no store, and no error")
	}
}

// TestLimits: a limit that cannot be divided is refused when it is made, and by each charge.
func TestLimits(t *testing.T) {
	here := weirtest.NewStore(nil)
	s, err := New(here, here, Options{Here: "eu", Regions: three, Term: 40 * sec})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		l    weir.Limit
		want string
	}{
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 100}, ""},
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 101}, "a smaller burst"},
		{weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 2}, "is too small"},
		{weir.FixedWindow{Limit: 10, Window: 5 * sec}, ""},
		{weir.FixedWindow{Limit: 9, Window: 5 * sec}, "is too small"},
		{weir.FixedWindow{Limit: 10, Window: 6 * sec}, "a shorter window"},
		{weir.FixedWindow{Limit: 10, Align: "day"}, "a shorter window"},
		{weir.SlidingWindow{Limit: 10, Window: 5 * sec, Slots: 5}, ""},
		{weir.SlidingWindow{Limit: 100, Window: 5 * sec, Slots: 5, SlotLimit: 9}, "is too small"},
		{weir.SlidingLog{Limit: 10, Window: sec}, "have no common clock"},
		{weir.All(weir.FixedWindow{Limit: 10, Window: 5 * sec}, weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 100}), "use several limits"},
	} {
		_, err := weir.NewShared(c.l, s, weir.Named("l"))
		batch := []weir.Charge{{Name: "l", Limit: weir.FixedWindow{Limit: 10, Window: 5 * sec}}, {Name: "l", Limit: c.l, Cost: 1}}
		given := slices.Clone(batch)
		done := s.Do(context.Background(), batch, make([]weir.Decision, 2))
		if batch[0].Limit != given[0].Limit || batch[1].Limit != given[1].Limit {
			t.Errorf("%+v: the caller's batch was changed: %+v", c.l, batch)
		}
		if c.want == "" {
			if err != nil || done != nil {
				t.Errorf("%+v: %v, %v", c.l, err, done)
			}
			continue
		}
		for _, err := range []error{err, done, batch[1].Err} {
			if !errors.Is(err, ErrLimit) || !errors.Is(err, weir.ErrCharge) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, and not %q", c.l, err, c.want)
			}
		}
	}
}

func TestDivide(t *testing.T) {
	for _, c := range []struct {
		pool               int64
		guaranteed, demand []int64
		want               []int64
	}{
		{700, []int64{100, 100, 100}, []int64{0, 0, 0}, []int64{234, 233, 233}},
		{700, []int64{100, 100, 100}, []int64{mostDemand * 1000, 0, 0}, []int64{700, 0, 0}},
		{700, []int64{100, 100, 100}, []int64{600, 100, 0}, []int64{671, 29, 0}},
		{700, []int64{100, 100, 100}, []int64{500, 300, 200}, []int64{400, 200, 100}},
		{400, []int64{500, 50, 50}, []int64{600, 600, 600}, []int64{0, 200, 200}},
		{0, []int64{500, 500}, []int64{5, 5}, []int64{0, 0}},
		{1, []int64{500, 499}, []int64{5, 5}, []int64{0, 1}},
	} {
		if got := divide(c.pool, c.guaranteed, c.demand); !slices.Equal(got, c.want) {
			t.Errorf("%d for %v: %v, and not %v", c.pool, c.demand, got, c.want)
		}
	}
}

// TestDivideRandomly: a division is the whole pool, nobody gets less than nothing, and who wants more
// does not get less.
func TestDivideRandomly(t *testing.T) {
	random := seeds.Of(t.Name())
	for range 10_000 {
		n, left := 2+random.IntN(15), int64(whole)
		var guaranteed, demand []int64
		for range n {
			g := min(left, 10*(1+random.Int64N(6)))
			guaranteed, demand, left = append(guaranteed, g), append(demand, random.Int64N(1<<random.IntN(45))), left-g
		}
		sum, got := int64(0), divide(left, guaranteed, demand)
		for i, part := range got {
			sum += part
			for j := range got {
				if demand[i] > demand[j] && guaranteed[i]+part < guaranteed[j]+got[j]-1 && got[j] > 1 {
					t.Fatalf("%v, %v: %v", guaranteed, demand, got)
				}
			}
		}
		if sum != left || slices.Min(got) < 0 {
			t.Fatalf("%v, %v: %v", guaranteed, demand, got)
		}
	}
}

// TestTerms: a share ends early enough before it becomes smaller, and begins only when the home's
// window has surely ended.
func TestTerms(t *testing.T) {
	var h terms
	settles := func(units int64) int64 { return 100 }
	at := func(now, units, until int64) {
		t.Helper()
		if u, end := h.at(now, settles); u != units || end != until {
			t.Errorf("at %d: %d until %d, and not %d until %d: %v", now, u, end, units, until, &h)
		}
	}
	const forever = 1<<63 - 1
	at(0, 0, forever)
	h.learn(10_000, 10_020, 1000, 500, true)
	at(9_000, 0, 10_000)
	at(10_000, 0, 10_020)
	at(10_020, 500, 10_900)
	at(10_900, 0, forever) // the next share is not known
	if !h.learn(11_003, 11_010, 1000, 0, false) {
		t.Error("what was claimed before is not known")
	}
	at(10_020, 500, 10_903)
	h.learn(11_004, 11_009, 1000, 700, true)
	at(10_950, 500, 11_004)
	at(11_004, 500, 11_009)
	at(11_009, 700, 11_904)
	h.learn(12_000, 12_001, 1000, 200, true)
	at(11_500, 700, 11_900)
	at(11_900, 200, 12_000)
	at(12_000, 200, 12_001)
	at(12_001, 200, 12_900)
	if h.learn(99_000, 99_001, 1000, 200, true) {
		t.Error("windows were missed, and the share is known")
	}
	at(98_000, 0, 99_000)
}

// TestClose: no call of the home is made after Close, and charges fail.
func TestClose(t *testing.T) {
	here := weirtest.NewStore(nil)
	s, err := New(here, here, Options{Here: "eu", Regions: three})
	if err != nil {
		t.Fatal(err)
	}
	l, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 100}, s, weir.Named("l"))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := l.Take(context.Background(), "k", 1); err != nil || d.Limit != 33 {
		t.Error(d, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Take(context.Background(), "k", 1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
