package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
)

// TestTimeline: however long a log is, its slots are few, of a length that people name, at full multiples of it, and
// every request is in the slot of its time. A log of three days had slots of 8m32s.
func TestTimeline(t *testing.T) {
	rng := seeds.Of(t.Name())
	t.Logf("WEIR_SEED=%s", seeds.Text())
	for _, c := range []struct{ long, slot time.Duration }{
		{time.Second, time.Second}, {590 * time.Second, time.Second}, {11 * time.Minute, 5 * time.Second}, {13 * time.Hour, 5 * time.Minute},
		{83 * time.Hour, 10 * time.Minute}, {90 * 24 * time.Hour, 6 * time.Hour}, {800 * 24 * time.Hour, 48 * time.Hour}, {30 * 365 * 24 * time.Hour, 768 * time.Hour},
	} {
		start := time.Date(1965, 5, 17, 10, 5, 3, 0, time.UTC).UnixNano() // the Unix time is below 0
		times := []int64{start, start + int64(c.long)}
		for range 1000 {
			times = append(times, start+rng.Int64N(int64(c.long)))
		}
		slices.Sort(times)
		var l timeline
		for _, at := range times {
			l.at(at).Requests++
		}
		if got := time.Duration(l.width); got != c.slot || len(l.slots) > timelineSlots {
			t.Errorf("%v: %d slots of %v, want %v", c.long, len(l.slots), got, c.slot)
		}
		for _, s := range l.spans() {
			if s.Start.UnixNano()%l.width != 0 {
				t.Errorf("%v: a slot starts at %v", c.long, s.Start)
			}
			from, _ := slices.BinarySearch(times, s.Start.UnixNano())
			to, _ := slices.BinarySearch(times, s.Start.UnixNano()+l.width)
			if s.Requests != int64(to-from) {
				t.Errorf("%v: %d requests at %v, want %d", c.long, s.Requests, s.Start, to-from)
			}
		}
	}
}
