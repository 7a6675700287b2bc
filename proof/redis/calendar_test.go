package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
	"github.com/weirflow/weir/weirtest"
)

// counted counts calls.
type counted struct {
	weirredis.Evaler
	calls int
}

func (c *counted) Eval(ctx context.Context, call weirredis.Call) (string, error) {
	c.calls++
	return c.Evaler.Eval(ctx, call)
}

// dates is a limit in Redis whose clock is set to dates, and its model.
type dates struct {
	*subject
	limit weir.Limit
	model *weirtest.Versions
	calls *counted
}

func openDates(t *testing.T, l weir.Limit) *dates {
	t.Helper()
	w := &world{client: connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)}
	clock := new(weirtest.Clock)
	opened, err := w.open(l, clock)
	if err != nil {
		t.Fatal(err)
	}
	d := &dates{subject: opened.(*subject), limit: l, model: weirtest.NewVersions(time.Microsecond)}
	prefix := fmt.Sprintf("dates:%s:%d:", t.Name(), time.Now().UnixNano())
	d.store, d.calls = d.opened(t, prefix)
	d.shared, err = weir.NewShared(l, d.store, weir.Named("quota"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// opened returns another store over the same keys and the same clock.
func (d *dates) opened(t *testing.T, prefix string) (*weirredis.Store, *counted) {
	t.Helper()
	c := &counted{Evaler: weirrueidis.Evaler(d.client)}
	s, err := weirredis.New(c, weirredis.Options{Prefix: prefix, ClockKey: d.clockKey, Grace: time.Hour, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, c
}

// at sets the clock, and returns the model's reading.
func (d *dates) at(t *testing.T, date string) int64 {
	t.Helper()
	at, err := time.Parse(time.DateTime, date)
	if err != nil {
		t.Fatal(err)
	}
	d.clock.Set(at.UnixNano())
	return at.UnixMicro()
}

// take compares a take with the model, and checks the number of calls.
func (d *dates) take(t *testing.T, date string, most int) {
	t.Helper()
	now, before := d.at(t, date), d.calls.calls
	got, want := d.Take("a", 1), d.model.Take(d.limit, now, 1)
	got.By, got.Source = "", 0
	if got != want {
		t.Errorf("at %s: %+v, want %+v", date, got, want)
	}
	if calls := d.calls.calls - before; calls > most {
		t.Errorf("at %s: %d calls", date, calls)
	}
}

// TestCalendarAfterJumps: the server's clock jumps by a year and back. The windows that it needs
// are sent again, in the same call, and no others.
func TestCalendarAfterJumps(t *testing.T) {
	for _, align := range []weir.Align{"day:Europe/Berlin", "month:America/New_York", "week-sunday", "year"} {
		t.Run(string(align), func(t *testing.T) {
			d := openDates(t, weir.FixedWindow{Limit: 2, Align: align})
			d.take(t, "2026-03-28 22:30:00", 3) // neither the clock nor the script is known
			d.take(t, "2026-03-28 22:30:00", 1)
			d.take(t, "2026-03-28 22:59:59", 2)
			d.take(t, "2026-03-28 23:00:00", 1) // midnight in Berlin: the next window was sent, too
			d.take(t, "2027-03-28 12:00:00", 2) // the call would have expired: its reply tells the time
			d.take(t, "2027-03-28 12:00:00", 1)
			d.take(t, "2027-03-28 12:00:00", 1)
			d.take(t, "2026-03-28 12:00:00", 3) // other windows are needed, and then the end of the one in the state
			d.take(t, "2027-03-28 13:00:00", 3)
			d.take(t, "2028-02-29 00:00:00", 2)
		})
	}
}

// TestCalendarBookedAhead: reservations are promised days far ahead, whose windows were not sent
// before.
func TestCalendarBookedAhead(t *testing.T) {
	d := openDates(t, weir.FixedWindow{Limit: 1, Align: "day:Europe/Berlin"})
	now := d.at(t, "2026-03-01 12:00:00")
	for i := range 40 {
		r, ok := d.Reserve("a", 1, -1)
		_, delay, want := d.model.Reserve(d.limit, now, 1, -1)
		if !ok || r.Delay() != delay || r.Decision().ResetAfter != want.ResetAfter {
			t.Fatalf("number %d: %v in %v, reset %v, want %v, %v", i, ok, r.Delay(), r.Decision().ResetAfter, delay, want.ResetAfter)
		}
	}
	d.take(t, "2026-03-01 13:00:00", 3)
	d.take(t, "2026-04-20 13:00:00", 3)
}

// TestCalendarsOfABatch: one call is about states with windows all over a year, and their windows
// are sent together.
func TestCalendarsOfABatch(t *testing.T) {
	daily := weir.FixedWindow{Limit: 1, Align: "day:Europe/Berlin"}
	d := openDates(t, daily)
	start := d.at(t, "2026-03-01 12:00:00")
	var batch []weir.Charge
	for i := range 30 {
		key := fmt.Sprint(i)
		for day := range int64(11) {
			d.clock.Set((start + day*int64(i)*86400e6) * int64(time.Microsecond))
			d.Reserve(key, 1, -1)
		}
		batch = append(batch, weir.Charge{Name: "quota", Key: key, Limit: daily, Cost: 1, Op: weir.OpPeek})
	}
	d.at(t, "2026-03-01 12:00:00")
	d.setClock("0")
	before, out := d.calls.calls, make([]weir.Decision, len(batch))
	if err := d.store.Do(t.Context(), batch, out); err != nil {
		t.Fatal(err)
	}
	if calls := d.calls.calls - before; calls > 3 { // first the other windows of now, then those of all states
		t.Errorf("%d calls", calls)
	}
	for i, got := range out {
		if got.Allowed {
			t.Errorf("key %d: %+v", i, got)
		}
	}
}

// decree sets the zone to so many hours east (RFC 8536, version 1, without transitions).
func decree(t *testing.T, hours int32) {
	t.Helper()
	b := append([]byte("TZif"), make([]byte, 40)...)
	b[39], b[43] = 1, 4 // one type, and the four bytes of its name
	b = binary.BigEndian.AppendUint32(b, uint32(hours*3600))
	b = append(b, 0, 0)
	b = append(b, "NEW\x00"...)
	if err := os.WriteFile(filepath.Join(os.Getenv("ZONEINFO"), "Decreed"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCalendarDecreed: the zone's data change after a window was counted in. It stays the same
// window, and ends when the new data say so.
func TestCalendarDecreed(t *testing.T) {
	decree(t, 1)
	daily := weir.FixedWindow{Limit: 1, Align: "day:Decreed"}
	d := openDates(t, daily)
	prefix := fmt.Sprintf("decreed:%d:", time.Now().UnixNano())
	open := func() *weir.Shared {
		s, _ := d.opened(t, prefix)
		shared, err := weir.NewShared(daily, s, weir.Named("quota"))
		if err != nil {
			t.Fatal(err)
		}
		return shared
	}
	ask := func(s *weir.Shared, date string, want weir.Decision) {
		t.Helper()
		d.at(t, date)
		d.setClock("a")
		got, err := s.Take(t.Context(), "a", 1)
		want.Limit, want.By, want.Source = 1, "quota", weir.SourceStore
		if err != nil || got != want {
			t.Errorf("at %s: %+v, %v, want %+v", date, got, err, want)
		}
	}
	before := open()
	ask(before, "2026-03-01 12:00:00", weir.Decision{Allowed: true, ResetAfter: 11 * time.Hour})
	decree(t, 0) // the day is an hour longer
	after := open()
	ask(after, "2026-03-01 23:30:00", weir.Decision{RetryAfter: 30 * time.Minute, ResetAfter: 30 * time.Minute})
	ask(after, "2026-03-02 00:00:00", weir.Decision{Allowed: true, ResetAfter: 24 * time.Hour})
	ask(before, "2026-03-02 22:30:00", weir.Decision{RetryAfter: 30 * time.Minute, ResetAfter: 30 * time.Minute})
	decree(t, 3) // and one that is shorter by three
	ask(open(), "2026-03-02 21:00:00", weir.Decision{Allowed: true, ResetAfter: 24 * time.Hour})
	ask(before, "2026-03-02 22:00:00", weir.Decision{RetryAfter: 25 * time.Hour, ResetAfter: 25 * time.Hour}) // from a process that does not know it yet
}

// TestCarriedOverWithoutItsCalendar: a state of an abandoned limit counts in the windows of another
// limit, until its own window has ended, although no process sends that window.
func TestCarriedOverWithoutItsCalendar(t *testing.T) {
	for date, count := range map[string]int64{"2026-03-31 21:59:00": 3, "2026-03-31 22:00:00": 0} {
		d := openDates(t, weir.FixedWindow{Limit: 5, Align: "month:Europe/Berlin"})
		for range 3 {
			d.take(t, "2026-03-10 12:00:00", 3)
		}
		d.at(t, date)
		if err := d.SetLimit(weir.FixedWindow{Limit: 5, Align: "year"}); err != nil {
			t.Fatal(err)
		}
		if got := d.Peek("a", 1); got.Remaining != 5-count {
			t.Errorf("at %s: %+v, want %d counted", date, got, count)
		}
	}
}
