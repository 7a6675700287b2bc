package weirsql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
)

// function is the stored function that a statement calls.
func function(statement string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(statement, "SELECT weir."), "(")
	return name
}

// A scriptedServer replies with what each function is to reply, one after another, and keeps what it was sent.
type scriptedServer struct {
	replies map[string][]string // "" for a lost reply
	sent    []string            // the functions, and the numbers of the calls
	args    [][]string
}

func (p *scriptedServer) Exec(context.Context, string) error { return nil }

func (p *scriptedServer) Query(_ context.Context, statement string, args ...string) (string, error) {
	f := function(statement)
	p.sent, p.args = append(p.sent, f+" "+args[1]), append(p.args, args)
	if len(p.replies[f]) == 0 || p.replies[f][0] == "" {
		p.replies[f] = p.replies[f][min(1, len(p.replies[f])):]
		return "", errors.New("the connection was lost")
	}
	reply := p.replies[f][0]
	p.replies[f] = p.replies[f][1:]
	return reply, nil
}

var plainBucket = weir.TokenBucket{Rate: weir.PerSecond(7), Burst: 5}

// TestTake: takes of token buckets are decided by take, and each caller gets the decision about its own
// charge, whatever the order of their keys. All else goes to carry_out.
func TestTake(t *testing.T) {
	now := time.Now().UnixMicro()
	take := func(key string) weir.Charge {
		return weir.Charge{Name: "x", Key: key, Cost: 1, Limit: plainBucket}
	}
	with := func(change func(*weir.Charge)) []weir.Charge {
		c := take("a")
		change(&c)
		return []weir.Charge{take("b"), c}
	}
	done, three := fmt.Sprint(now, " 0 0 0;0 1 0;0 2 0"), fmt.Sprint(now, " 0 0 0;0 1 0;0 2 0;0 3 0")
	for _, c := range []struct {
		name          string
		batch         []weir.Charge
		take, general []string // replies
		sent          []string
		remaining     []int64
	}{
		{"takes", []weir.Charge{take("b"), take("a"), take("b")}, []string{three}, nil, []string{"take 1"}, []int64{2, 1, 3}},
		{"one key", []weir.Charge{take("a"), take("a"), take("a")}, []string{three}, nil, []string{"take_key 1"}, []int64{1, 2, 3}},
		{"one key, a lost reply", []weir.Charge{take("a"), take("a")}, []string{""}, []string{done}, []string{"take_key 1", "carry_out 1"}, []int64{1, 2}},
		{"one key that take_key cannot decide", []weir.Charge{take("a"), take("a")}, []string{"OTHER"}, []string{done}, []string{"take_key 1", "carry_out 1"}, []int64{1, 2}},
		{"a clock that was wrong", []weir.Charge{take("b"), take("a")}, []string{fmt.Sprint("LATE ", now), done}, nil, []string{"take 1", "take 2"}, []int64{2, 1}},
		{"what take cannot decide", []weir.Charge{take("b"), take("a")}, []string{"OTHER"}, []string{done}, []string{"take 1", "carry_out 1"}, []int64{2, 1}},
		{"a lost reply", []weir.Charge{take("b"), take("a")}, []string{""}, []string{done}, []string{"take 1", "carry_out 1"}, []int64{2, 1}},
		{"a peek", with(func(c *weir.Charge) { c.Op = weir.OpPeek }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"no cost", with(func(c *weir.Charge) { c.Cost = 0 }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"a cost that never fits", with(func(c *weir.Charge) { c.Cost = 6 }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"a receipt", with(func(c *weir.Charge) { c.Keep = true }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"a group", with(func(c *weir.Charge) { c.Group = 1 }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"a window", with(func(c *weir.Charge) { c.Limit = weir.FixedWindow{Limit: 5, Window: time.Hour} }), []string{done}, nil, []string{"take 1"}, []int64{2, 1}},
		{"a calendar", with(func(c *weir.Charge) { c.Limit = weir.FixedWindow{Limit: 5, Align: "day:UTC"} }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"another algorithm", with(func(c *weir.Charge) { c.Limit = weir.SlidingCounter{Limit: 5, Window: time.Hour} }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"a bucket that starts empty", with(func(c *weir.Charge) {
			c.Limit = weir.TokenBucket{Rate: weir.PerSecond(7), Burst: 5, Initial: weir.InitialEmpty}
		}), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"too many ticks", with(func(c *weir.Charge) { c.Limit = weir.TokenBucket{Rate: weir.PerSecond(1009), Burst: 5} }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
		{"two versions", with(func(c *weir.Charge) { c.Key, c.Limit = "b", weir.TokenBucket{Rate: weir.PerSecond(7), Burst: 6} }), nil, []string{done}, []string{"carry_out 1"}, []int64{1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &scriptedServer{replies: map[string][]string{"take": c.take, "take_key": c.take, "carry_out": c.general}}
			s, err := New(p, Options{RoundTrips: 1, SweepEvery: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.clock.set(now) // what the first call of a store learns
			out := make([]weir.Decision, len(c.batch))
			if err := s.Do(t.Context(), c.batch, out); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.sent, c.sent) {
				t.Errorf("sent %q, want %q", p.sent, c.sent)
			}
			for i, want := range c.remaining {
				if out[i].Remaining != want {
					t.Errorf("charge %d: %d remain, want %d", i, out[i].Remaining, want)
				}
			}
		})
	}
}

// TestTakeArgs: the keys in ascending order, each with its limit, and its charges in the order of their callers.
func TestTakeArgs(t *testing.T) {
	p := &scriptedServer{replies: map[string][]string{"take": {fmt.Sprint(time.Now().UnixMicro(), " 0 0 0;0 1 0;0 1 0;0 1 0")}}}
	s, err := New(p, Options{SweepEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	leaky := weir.LeakyBucket{Rate: weir.PerMinute(7), Queue: 4}
	batch := []weir.Charge{{Name: "x", Key: "b", Cost: 3, Limit: plainBucket}, {Name: "x", Key: "a", Cost: 1, Limit: leaky}, {Name: "x", Key: "b", Cost: 2, Limit: plainBucket}}
	if err := s.Do(t.Context(), batch, make([]weir.Decision, 3)); err != nil {
		t.Fatal(err)
	}
	if got, want := p.args[0][4], `{"{1,1,7,60000000,5,0}","{1,0,7,1000000,5,0}"}`; got != want {
		t.Errorf("limits %s, want %s", got, want)
	}
	if got, want := p.args[0][6], "{1,7,60000000,300000000,0,1,0,2,7,1000000,5000000,5000000,3,0,2,0}"; got != want {
		t.Errorf("numbers %s, want %s", got, want)
	}
}

// TestKeyArgs: the limit and the charges, and that the call before was refused.
func TestKeyArgs(t *testing.T) {
	now := fmt.Sprint(time.Now().UnixMicro(), " 0 0 0;")
	p := &scriptedServer{replies: map[string][]string{"take_key": {now + "0 1 0;7 1 7", now + "7 0 7", now + "0 0 7", now + "7 0 7"}}}
	s, err := New(p, Options{RoundTrips: 1, SweepEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	one := []weir.Charge{{Name: "x", Key: "a", Cost: 3, Limit: plainBucket}}
	for i, c := range []struct {
		batch   []weir.Charge
		refused string
		args    string
	}{
		{append(one, weir.Charge{Name: "x", Key: "a", Cost: 2, Limit: plainBucket}), "false", "7 1000000 5000000 5000000 {3,0,2,0}"},
		{one, "true", "7 1000000 5000000 5000000 {3,0}"},
		{one, "true", "7 1000000 5000000 5000000 {3,0}"},
		{[]weir.Charge{{Name: "x", Key: "b", Cost: 1, Limit: weir.FixedWindow{Limit: 5, Window: time.Hour}}}, "false", "0 3600000000 5 0 {1,0}"},
	} {
		if err := s.Do(t.Context(), c.batch, make([]weir.Decision, len(c.batch))); err != nil {
			t.Fatal(err)
		}
		if args := p.args[i]; args[4] != c.refused || strings.Join(args[7:], " ") != c.args {
			t.Errorf("call %d: %q, want %s and %s", i, args, c.refused, c.args)
		}
	}
}
