package weirredis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirflow/weir"
)

// A server that computes its replies from what was sent.
type server func(sent []any) (string, error)

func (s server) Eval(_ context.Context, c Call) (string, error) { return s(decoded(c.Args[0])) }

func (s server) EvalAll(ctx context.Context, calls []Call, replies []Reply) {
	for i, c := range calls {
		replies[i].Text, replies[i].Err = s.Eval(ctx, c)
	}
}

// decoded is a MessagePack array in Go's types: int64, string and []any.
func decoded(text string) []any {
	r := &reader{b: text}
	return elements(r)
}

func elements(r *reader) []any {
	all := make([]any, r.array())
	for i := range all {
		switch c := r.b[0]; {
		case r.text():
			all[i] = r.string()
		case c&0xf0 == 0x90 || c == 0xdc || c == 0xdd:
			all[i] = elements(r)
		default:
			all[i] = r.int()
		}
	}
	return all
}

// yes is the reply to one take.
func yes(now int64) string {
	b := appendArray(nil, 4)
	for _, v := range []int64{now, 0, 1, 0} {
		b = appendInt(b, v)
	}
	return string(b)
}

func micros(month, day, hour int) int64 {
	return time.Date(2026, time.Month(month), day, hour, 0, 0, 0, time.UTC).UnixMicro()
}

// TestWindowsAreSent: the present windows as soon as the server's clock is known, and those that
// the script asks for.
func TestWindowsAreSent(t *testing.T) {
	now, ahead := micros(3, 28, 12), micros(6, 10, 3)
	day := func(month, day int) int64 { return micros(month, day, 0) / 86400e6 }
	var sent []any
	s, err := New(server(func(asked []any) (string, error) {
		sent = append(sent, asked[6:])
		switch len(sent) {
		case 1:
			return "", fmt.Errorf("WEIRLATE %d", now)
		case 2:
			return "", fmt.Errorf("WEIRCALENDAR %d %d %d", now, ahead, ahead)
		}
		return yes(now), nil
	}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	batch := []weir.Charge{{Name: "daily", Key: "a", Limit: weir.FixedWindow{Limit: 2, Align: "day:Europe/Berlin"}, Cost: 1}}
	out := make([]weir.Decision, 1)
	for range 2 {
		if err := s.Do(t.Context(), batch, out); err != nil || !out[0].Allowed {
			t.Fatal(out, err)
		}
	}
	present := []any{
		day(3, 28), micros(3, 27, 23), micros(3, 28, 23),
		day(3, 29), micros(3, 28, 23), micros(3, 29, 22),
		day(3, 30), micros(3, 29, 22), micros(3, 30, 22),
	}
	asked := append(present[:9:9],
		day(6, 9), micros(6, 8, 22), micros(6, 9, 22),
		day(6, 10), micros(6, 9, 22), micros(6, 10, 22),
		day(6, 11), micros(6, 10, 22), micros(6, 11, 22),
		day(6, 12), micros(6, 11, 22), micros(6, 12, 22))
	want := []any{
		[]any{}, // the clock is not known yet
		[]any{[]any{"day:Europe/Berlin", present}},
		[]any{[]any{"day:Europe/Berlin", asked}},
		[]any{[]any{"day:Europe/Berlin", present}},
	}
	if !reflect.DeepEqual(sent, want) {
		t.Errorf("sent\n%v\nwant\n%v", sent, want)
	}
}

// TestCalendarsAreSentOnce: limits with the same windows share them, and limits without a calendar
// send none.
func TestCalendarsAreSentOnce(t *testing.T) {
	now := micros(3, 28, 12)
	var names []string
	s, err := New(server(func(asked []any) (string, error) {
		names = names[:0]
		for _, last := range asked[6:] {
			for i, v := range last.([]any) {
				if i%2 == 0 {
					names = append(names, v.(string))
				}
			}
		}
		return "", errors.New("WEIRTEST no more than this")
	}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.clock.set(now)
	ask := func(limits ...weir.Limit) string {
		var batch []weir.Charge
		for _, l := range limits {
			batch = append(batch, weir.Charge{Key: "a", Limit: l, Cost: 1})
		}
		if err := s.Do(t.Context(), batch, make([]weir.Decision, len(batch))); err == nil {
			t.Error("there is an answer")
		}
		return strings.Join(names, " ")
	}
	daily := weir.FixedWindow{Limit: 1, Align: "day"}
	if got := ask(daily, weir.FixedWindow{Limit: 2, Align: "day:UTC"}, weir.All(daily, weir.FixedWindow{Limit: 1, Align: "week"})); got != "day:UTC week-monday:UTC" {
		t.Errorf("sent %q", got)
	}
	if got := ask(weir.FixedWindow{Limit: 1, Window: time.Second}, weir.SlidingCounter{Limit: 1, Window: time.Second}); got != "" {
		t.Errorf("sent %q", got)
	}
}

// TestWindowNotFound: if the script asks for the same window again, there is no third call.
func TestWindowNotFound(t *testing.T) {
	calls := 0
	s, err := New(server(func([]any) (string, error) {
		calls++
		return "", fmt.Errorf("WEIRCALENDAR %d %d", micros(3, 28, 12), micros(3, 28, 12))
	}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	batch := []weir.Charge{{Key: "a", Limit: weir.FixedWindow{Limit: 2, Align: "day"}, Cost: 1}}
	if err := s.Do(t.Context(), batch, make([]weir.Decision, 1)); err == nil || !strings.Contains(err.Error(), "windows that are needed are not found") || calls != 2 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}
