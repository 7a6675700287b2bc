package keyed_test

import (
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/keyed"
)

// moved is a limiter whose states went on in another one.
type moved struct {
	from, to    *keyed.Limiter[string]
	differences []int64
}

// move hands all states over, and what is settled later.
func move(t *testing.T, from, to *keyed.Limiter[string]) *moved {
	m := &moved{from: from, to: to}
	from.Move(func(key string, difference int64) {
		m.differences = append(m.differences, difference)
		if difference < 0 {
			to.GiveBack(key, -difference)
			return
		}
		late, _ := to.Reserve(key, 0, 0)
		late.Settle(difference)
	}, func(key string, s keyed.Saved) bool {
		if err := to.Restore(key, s); err != nil {
			t.Error(err)
		}
		return true
	})
	return m
}

// TestMoveSettlesLater: what was reserved before a move counts as used after it, and each reservation is
// settled in both: more is charged, less comes back, and nothing for a window that has ended.
func TestMoveSettlesLater(t *testing.T) {
	now := int64(time.Hour)
	limit := weir.FixedWindow{Limit: 100, Window: 10 * time.Hour}
	table := func() *keyed.Limiter[string] {
		k, err := keyed.New[string](limit, keyed.Options{Keys: true, Clock: func() int64 { return now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.Close() })
		return k
	}
	from, to := table(), table()
	reserve := func(key string) keyed.Reservation[string] {
		r, ok := from.Reserve(key, 10, 0)
		if !ok {
			t.Fatalf("a reservation of %s is refused", key)
		}
		return r
	}
	before, less, more, same, late := reserve("a"), reserve("a"), reserve("a"), reserve("a"), reserve("b")
	before.Settle(5)
	m := move(t, from, to)
	if left := to.Peek("a", 0).Remaining; left != 100-35 {
		t.Errorf("%d are left after the move: what was reserved counts as used", left)
	}
	less.Settle(4)
	more.Settle(25)
	same.Settle(10)
	less.Settle(0) // once
	if left := to.Peek("a", 0).Remaining; left != 100-5-4-25-10 {
		t.Errorf("%d are left once all is settled", left)
	}
	now += int64(10 * time.Hour)
	to.Take("b", 30)
	late.Cancel()
	if left := to.Peek("b", 0).Remaining; left != 70 {
		t.Errorf("%d are left of a new window: it gets nothing of the one before", left)
	}
	if got := len(m.differences); got != 2 {
		t.Errorf("%v: two settlements have changed something", m.differences)
	}
}
