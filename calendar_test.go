package weir

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"
)

// TestCachedCalendar: the window that a calendar caches changes no result, whatever the order of
// the calls.
func TestCachedCalendar(t *testing.T) {
	for _, align := range []Align{"day:America/St_Johns", "week", "month:Europe/Berlin", "year:Pacific/Apia"} {
		pure, err := newCalendar(align, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		cached := &cachedCalendar{Calendar: pure}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			at := rnd.Int64N(40 * 366 * 86400)
			if rnd.IntN(2) == 0 && cached.last.Load() != nil { // near a boundary of the cached window
				w := cached.last.Load()
				at = []int64{w.begins - 1, w.begins, w.ends - 1, w.ends}[rnd.IntN(4)]
			}
			id := cached.Window(at)
			if want := pure.Window(at); id != want {
				t.Fatalf("%s: at %d the window %d, want %d", align, at, id, want)
			}
			for n := range uint64(3) {
				if got, want := cached.Ends(id, n), pure.Ends(id, n); got != want {
					t.Fatalf("%s: the window %d ends at %d, want %d", align, id, got, want)
				}
			}
		}
		if cached.Identity() != pure.Identity() {
			t.Errorf("%s: the cached calendar is taken for another", align)
		}
	}
}
