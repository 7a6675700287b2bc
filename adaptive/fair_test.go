package adaptive

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/overload"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
)

// TestPartitionsDoNotStarve: a partition that wants 0.6 of its share gets nearly all of it, however much
// another one wants. The other one gets most of the rest.
func TestPartitionsDoNotStarve(t *testing.T) {
	raced.Skip(t)
	r := seeds.Of(t.Name())
	in := func(name string) func(*rand.Rand) Request {
		return func(*rand.Rand) Request { return Request{Partition: name} }
	}
	for _, flood := range []float64{2, 10} {
		small := &class{share: 0.3 / (0.3 + flood), request: in("small")}
		large := &class{share: 1, request: in("large")}
		classes(t, Options{Algorithm: fixed(50), Partitions: []Partition{{"small", 0.5}, {"large", 0.5}}}, overload.Scenario{
			For: 60 * time.Second, Seed: r.Uint64(), Work: overload.Exponential(100 * time.Millisecond),
			At: func(time.Duration) overload.Service { return overload.Service{Workers: 50, Rate: 500 * (0.3 + flood)} },
		}, 10*time.Second, small, large)
		got := 1 - float64(small.refused)/float64(small.asked)
		used := float64(small.good+large.good) / 500 / 50
		if got < 0.98 || used < 0.7 {
			t.Errorf("beside %g times the capacity: %.2f %% are served, and %.1f %% of the capacity is used", flood, 100*got, 100*used)
		}
	}
}

// TestUsersTakeTurns: at twice the capacity, within a minute most users have nearly all or nearly nothing,
// and within twenty, each has about half.
func TestUsersTakeTurns(t *testing.T) {
	raced.Skip(t)
	const users, minutes = 200, 20
	var asked, refused [minutes][users]int
	r := seeds.Of(t.Name())
	s := overload.Scenario{
		For: minutes * time.Minute, Seed: r.Uint64(), Work: overload.Exponential(100 * time.Millisecond),
		At: func(time.Duration) overload.Service { return overload.Service{Workers: 20, Rate: 400} },
	}
	sim := overload.New(s)
	l, err := New(Options{Algorithm: fixed(20), Clock: sim.Now})
	if err != nil {
		t.Fatal(err)
	}
	sim.Run(overload.Limiter{Limit: l.Limit, Enter: func() (func(weir.Outcome), bool) {
		minute, user := min(sim.Now()/int64(time.Minute), minutes-1), r.Uint64N(users)
		asked[minute][user]++
		h, ok := l.TryEnterAs(Request{User: user + 1})
		if !ok {
			refused[minute][user]++
		}
		return h.Done, ok
	}})
	decided := 0
	for minute := range minutes {
		for user := range users {
			if part := float64(refused[minute][user]) / float64(asked[minute][user]); part < 0.25 || part > 0.75 {
				decided++
			}
		}
	}
	least, most := 1.0, 0.0
	for user := range users {
		a, n := 0, 0
		for minute := range minutes {
			a, n = a+asked[minute][user], n+refused[minute][user]
		}
		part := 1 - float64(n)/float64(a)
		least, most = min(least, part), max(most, part)
	}
	if least < 0.2 || most > 0.8 || decided < users*minutes/2 {
		t.Errorf("users were served %.2f to %.2f, and %.2f of them had nearly all or nothing in a minute", least, most, float64(decided)/users/minutes)
	}
}

// TestAloneInAPartition: after more important requests had been refused, less important ones of a partition were
// refused for half a minute and longer, with all places free: they left more free than the partition may have.
func TestAloneInAPartition(t *testing.T) {
	l, err := New(Options{Algorithm: fixed(8), Partitions: []Partition{{"a", 0.6}, {"b", 0.3}}})
	if err != nil {
		t.Fatal(err)
	}
	var all []Hold
	for h, ok := l.TryEnter(); ok; h, ok = l.TryEnter() {
		all = append(all, h)
	}
	for range 20 {
		for _, name := range []string{"a", "b", ""} {
			for _, p := range []Priority{Sheddable, CriticalPlus} {
				if _, ok := l.TryEnterAs(Request{Partition: name, Priority: p}); ok {
					t.Fatal("there is a place")
				}
			}
		}
	}
	for _, h := range all {
		h.Done(weir.OK)
	}
	for _, name := range []string{"a", "b", ""} {
		first, ok := l.TryEnterAs(Request{Partition: name, Priority: Sheddable})
		if !ok {
			t.Errorf("%q: refused with all places free: %+v", name, l.Stats().Reasons)
		}
		if _, more := l.TryEnterAs(Request{Partition: name, Priority: Sheddable}); more {
			t.Errorf("%q: a second one does not leave places to the important requests", name)
		}
		first.Done(weir.OK)
	}
}

// TestAloneOfUsersInAPartition: after a storm of many less important users, which moves whom is refused
// first, each of them that comes alone finds all places free, and is served.
func TestAloneOfUsersInAPartition(t *testing.T) {
	l, err := New(Options{Algorithm: fixed(6), Partitions: []Partition{{"a", 0.6}, {"b", 0.3}}})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", ""}
	for range 2000 {
		var all []Hold
		for u := range uint64(20) {
			for _, p := range []Priority{Sheddable, SheddablePlus} {
				if h, ok := l.TryEnterAs(Request{Partition: names[u%3], Priority: p, User: u << 50}); ok {
					all = append(all, h)
				}
			}
		}
		for _, h := range all {
			h.Done(weir.OK)
		}
	}
	for u := range uint64(64) {
		for _, name := range names {
			h, ok := l.TryEnterAs(Request{Partition: name, Priority: Sheddable, User: u << 50})
			if !ok {
				t.Fatalf("%q: user %d was refused with all places free: %+v", name, u, l.Stats().Reasons)
			}
			h.Done(weir.OK)
		}
	}
}
