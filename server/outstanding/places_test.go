package outstanding

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// TestPlacesAreBounded: there are no more places than the options say, in total and of one caller, and each is
// given back once, in whatever way it ends.
func TestPlacesAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	p := NewPlaces(Options{Max: 3, PerCaller: 2, Now: func() time.Time { return now }})
	ended := map[weir.Outcome]int{}
	add := func(by Caller) string {
		t.Helper()
		id, err := addPlace(p, by, func(o weir.Outcome) { ended[o]++ }, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	a, b := Caller{Name: "a"}, Caller{Address: "192.0.2.1:1"}
	first := add(a)
	add(a)
	for _, by := range []Caller{a, {Name: "a", Address: "192.0.2.2:1"}} {
		if _, err := addPlace(p, by, nil, time.Second); !errors.Is(err, ErrPlacesFull) {
			t.Errorf("a third of one caller: %v", err)
		}
	}
	last := add(b)
	if _, err := addPlace(p, Caller{Name: "c"}, nil, time.Second); !errors.Is(err, ErrPlacesFull) {
		t.Errorf("a fourth: %v", err)
	}
	for _, id := range []string{"", "x", first[1:], first + "A", last} {
		if err := p.Leave("a", id, weir.OK); !errors.Is(err, ErrNoPlace) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := p.Leave("a", first, weir.Dropped); err != nil || ended[weir.Dropped] != 1 {
		t.Errorf("%v, %v", err, ended)
	}
	now = now.Add(time.Second)
	if err := p.Leave("", last, weir.OK); !errors.Is(err, ErrPlaceExpired) || p.Len() != 0 || ended[weir.Ignore] != 2 || ended[weir.OK] != 0 {
		t.Errorf("%v, %d left, %v", err, p.Len(), ended)
	}
	add(a)
	p.Close()
	if _, err := addPlace(p, a, nil, time.Second); !errors.Is(err, ErrPlacesFull) || ended[weir.Ignore] != 3 {
		t.Errorf("after Close: %v, %v", err, ended)
	}
}

// TestPlacesAtOnce: each place is given back once, also where Leave, Sweep and Close meet.
func TestPlacesAtOnce(t *testing.T) {
	p := NewPlaces(Options{})
	var given, back atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 500 {
				id, err := addPlace(p, Caller{Name: "a"}, func(weir.Outcome) { back.Add(1) }, time.Duration(i%3)*time.Millisecond)
				if err != nil {
					return
				}
				given.Add(1)
				_ = p.Leave("a", id, weir.OK)
				p.Sweep()
			}
		})
	}
	all.Wait()
	p.Close()
	if given.Load() != back.Load() || len(p.bounds) != 0 {
		t.Errorf("%d given, %d back, %v", given.Load(), back.Load(), p.bounds)
	}
}

// addPlace claims a place, and keeps it.
func addPlace(p *Places, by Caller, done func(weir.Outcome), keep time.Duration) (string, error) {
	c, err := p.Claim(by)
	if err != nil {
		return "", err
	}
	return c.Keep(done, keep)
}

// TestClaimsCount: a claim takes the room of a place until it is released, and none is kept after Close.
func TestClaimsCount(t *testing.T) {
	p := NewPlaces(Options{Max: 2, PerCaller: 1})
	a, err := p.Claim(Caller{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Claim(Caller{Name: "a"}); !errors.Is(err, ErrPlacesFull) {
		t.Errorf("beside a claim of the caller: %v", err)
	}
	b, err := p.Claim(Caller{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Claim(Caller{Name: "c"}); !errors.Is(err, ErrPlacesFull) {
		t.Errorf("beside all claims: %v", err)
	}
	a.Release()
	if a, err = p.Claim(Caller{Name: "a"}); err != nil {
		t.Error(err)
	}
	if _, err := b.Keep(func(weir.Outcome) {}, time.Minute); err != nil || p.Len() != 1 {
		t.Errorf("%v, %d places", err, p.Len())
	}
	p.Close()
	if _, err := a.Keep(nil, time.Minute); !errors.Is(err, ErrPlacesFull) || p.Len() != 0 || p.claims != 0 || len(p.bounds) != 0 {
		t.Errorf("after Close: %v, %+v", err, p)
	}
}
