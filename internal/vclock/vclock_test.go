package vclock

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestTimersFireInOrderAtTheirTimes(t *testing.T) {
	var c Clock
	var fired []int64
	note := func() { fired = append(fired, c.Now()) }
	c.AfterFunc(30, note)
	c.AfterFunc(10, func() { note(); c.AfterFunc(5, note) })
	stopped := c.AfterFunc(20, note)
	moved := c.AfterFunc(1, note)
	if !moved.Reset(40) || !stopped.Stop() || stopped.Stop() {
		t.Error("Reset and Stop do not tell whether the timer was set")
	}
	if at, ok := c.Next(); !ok || at != 10 {
		t.Errorf("Next = %d, %v", at, ok)
	}
	c.Set(30)
	if want := []int64{10, 15, 30}; !slices.Equal(fired, want) {
		t.Errorf("fired at %v, want %v", fired, want)
	}
	c.Set(20) // back: nothing fires
	c.Set(39)
	if len(fired) != 3 || c.Now() != 39 {
		t.Errorf("fired at %v, now %d", fired, c.Now())
	}
	c.Set(40)
	if len(fired) != 4 {
		t.Errorf("fired at %v", fired)
	}
	if _, ok := c.Next(); ok {
		t.Error("a timer is left")
	}
}

func TestSameTimeFiresInTheOrderSet(t *testing.T) {
	var c Clock
	var order []int
	for i := range 100 {
		c.AfterFunc(7, func() { order = append(order, i) })
	}
	c.Set(7)
	if len(order) != 100 || !slices.IsSorted(order) {
		t.Errorf("order %v", order)
	}
}

func TestEndOfTime(t *testing.T) {
	var c Clock
	c.Set(math.MaxInt64 - 1)
	ran := false
	c.AfterFunc(time.Hour, func() { ran = true })
	c.Set(math.MaxInt64)
	if !ran {
		t.Error("a timer past the end of time did not fire at the end")
	}
}
