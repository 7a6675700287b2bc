package keyed_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/keyed"
	"github.com/weirflow/weir/weirtest"
)

// TestAllKeysAreVisitedOnce: in a table of many parts, which grows during the iteration.
func TestAllKeysAreVisitedOnce(t *testing.T) {
	raced.Skip(t)
	c := new(weirtest.Clock)
	k, err := keyed.New[string](weir.TokenBucket{Rate: weir.PerHour(1), Burst: 10}, keyed.Options{Keys: true, Clock: c.Now, Timers: c.AfterFunc})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	const n = 8_000
	for i := range n {
		k.Take(strconv.Itoa(i), int64(i%10)+1)
	}
	if err := k.Override("7", keyed.Override{Deny: true}); err != nil {
		t.Fatal(err)
	}
	more := n
	found := map[string]int64{}
	for key, d := range k.Keys() {
		if _, ok := found[key]; ok {
			t.Fatalf("%s came twice", key)
		}
		found[key] = d.Remaining
		for range 3 {
			k.Take(strconv.Itoa(more), 1)
			more++
		}
	}
	for i := range n {
		if left, ok := found[strconv.Itoa(i)]; !ok || left != 9-int64(i%10) {
			t.Fatalf("%d: %d, %v", i, left, ok)
		}
	}
	prints := map[uint64]bool{}
	for h := range k.All() {
		prints[h] = true
	}
	if len(prints) != k.Len() || k.Len() != more {
		t.Errorf("%d fingerprints of %d keys", len(prints), k.Len())
	}
	for _, key := range []string{"0", "7", strconv.Itoa(more - 1)} {
		if h, ok := k.Fingerprint(key); !ok || !prints[h] {
			t.Errorf("%s was not visited", key)
		}
	}
	for range k.All() {
		break
	}
}

func TestReset(t *testing.T) {
	c := new(weirtest.Clock)
	k := table(t, c, "each", few)
	if k.Reset("a") {
		t.Error("there was nothing to forget")
	}
	k.Take("a", 2)
	k.Take("b", 2)
	r, _ := k.Reserve("c", 2, 0)
	if !k.Reset("a") || !k.Reset("c") {
		t.Error("there was something")
	}
	r.Cancel() // of an earlier state of the key
	for key, want := range map[string]int64{"a": 2, "b": 0, "c": 2} {
		if d := k.Peek(key, 0); d.Remaining != want {
			t.Errorf("%s: %+v", key, d)
		}
	}
	overrides(t, k, "b", keyed.Override{Limit: weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 5}})
	if !k.Reset("b") {
		t.Error("there was something")
	}
	if d := k.Take("b", 5); !d.Allowed || d.Limit != 5 {
		t.Errorf("the override stays: %+v", d)
	}
	c.Set(int64(time.Hour))
	k.Lift("b")
	if d := k.Take("b", 2); !d.Allowed || d.Limit != 2 {
		t.Errorf("%+v", d)
	}
}

// TestUsed: what a key has used is more than its limit if the cost of its work was known only afterwards.
func TestUsed(t *testing.T) {
	clock := new(weirtest.Clock)
	k, err := keyed.New[string](weir.FixedWindow{Limit: 10, Window: time.Hour}, keyed.Options{Clock: clock.Now, Keys: true})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := k.Parameters(weir.FixedWindow{Limit: 5, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for key, by := range map[string]*keyed.Parameters{"a": nil, "b": plan} {
		r, ok := k.ReserveBy(by, key, 4, 0)
		if !ok || k.Used(key) != 4 {
			t.Fatalf("%s: %v, %d used, want 4", key, ok, k.Used(key))
		}
		r.Settle(25)
		if got := k.Used(key); got != 25 {
			t.Errorf("%s: %d used, want 25", key, got)
		}
	}
	for key, read := range k.Readings() {
		if read.Used != 25 {
			t.Errorf("%s: %d used", key, read.Used)
		}
	}
	if got := k.Used("c"); got != 0 {
		t.Errorf("%d used by a key without a state", got)
	}
	clock.Set(clock.Now() + int64(time.Hour))
	if got := k.Used("a"); got != 0 {
		t.Errorf("%d used in a new window", got)
	}
}
