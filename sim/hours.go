package sim

import "time"

// A Span is what happened in a part of the time.
type Span struct {
	Start                               time.Time
	Requests, Allowed, Limited, Delayed int64
}

// hours finds the first and the worst hour of a replay.
type hours struct {
	now          int64 // the hour being counted, since 1970
	counted      Span
	first, worst Span
}

// hour is an hour of UTC.
const hour = int64(time.Hour)

// at returns the counts for a time. Times come in order.
func (h *hours) at(at int64) *Span {
	if now := floorDiv(at, hour); now != h.now || h.counted.Requests == 0 {
		h.end()
		h.now, h.counted = now, Span{Start: time.Unix(0, now*hour).UTC()}
	}
	return &h.counted
}

// end ends the hour that is being counted.
func (h *hours) end() {
	if h.counted.Limited > 0 && h.first.Limited == 0 {
		h.first = h.counted
	}
	if h.counted.Limited > h.worst.Limited {
		h.worst = h.counted
	}
}

// timelineSlots is how many slots of time a timeline has at most.
const timelineSlots = 600

// slotWidths are lengths of slots that people name. Each is a multiple of the one before. Longer ones are doubled.
var slotWidths = [...]time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// timeline counts what happened in slots of equal length, from one second on: as long as needed for all of them to fit.
type timeline struct {
	width int64 // of a slot, in nanoseconds
	base  int64 // the number of the first slot, since 1970
	slots []Span
}

// at returns the slot of a time. Times come in order.
func (t *timeline) at(at int64) *Span {
	if t.width == 0 {
		t.width = int64(slotWidths[0])
		t.base = floorDiv(at, t.width)
	}
	for floorDiv(at, t.width)-t.base >= timelineSlots {
		t.widen()
	}
	n := int(floorDiv(at, t.width) - t.base)
	for len(t.slots) <= n {
		t.slots = append(t.slots, Span{})
	}
	return &t.slots[n]
}

// widen makes longer slots.
func (t *timeline) widen() {
	times := int64(2)
	for _, w := range slotWidths {
		if int64(w) > t.width {
			times = int64(w) / t.width
			break
		}
	}
	base := floorDiv(t.base, times)
	var slots []Span
	for i, s := range t.slots {
		n := int(floorDiv(t.base+int64(i), times) - base)
		for len(slots) <= n {
			slots = append(slots, Span{})
		}
		to := &slots[n]
		to.Requests += s.Requests
		to.Allowed += s.Allowed
		to.Limited += s.Limited
		to.Delayed += s.Delayed
	}
	t.base, t.slots = base, slots
	t.width *= times
}

// spans returns the slots with their times.
func (t *timeline) spans() []Span {
	for i := range t.slots {
		t.slots[i].Start = time.Unix(0, (t.base+int64(i))*t.width).UTC()
	}
	return t.slots
}
