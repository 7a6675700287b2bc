package weirtest_test

import (
	"testing"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirtest"
)

// TestClone: calls on a copy do not change the model, with reservations and waiters open.
func TestClone(t *testing.T) {
	m := weirtest.NewModel(weir.LeakyBucket{Rate: weir.Rate{N: 1, Per: 10}, Queue: 5}, 1)
	m.Take(0, 1)
	waits, _, _ := m.Join(0, 1, -1)
	later, _, _ := m.Reserve(0, 2, -1)
	before := m.Peek(0, 1)

	c := m.Clone()
	c.Cancel(0, later)
	if !c.Leave(0, waits) {
		t.Error("the copy's line is empty")
	}
	c.SetLimit(0, weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1})
	c.Take(0, 1)
	if after := m.Peek(0, 1); after != before {
		t.Errorf("the model became %+v, was %+v", after, before)
	}
	if !m.Waits(0, waits) {
		t.Error("the model's line is empty")
	}
	if m.Cancel(0, later); m.Peek(0, 1) == before {
		t.Error("the model's reservation is gone")
	}
}
