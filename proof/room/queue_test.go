package room

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/server/stores/redis"
	"github.com/weirflow/weir/weirrueidis"
)

func dial(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true, DisableRetry: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

var specs = rapid.Custom(func(t *rapid.T) room.Spec {
	if rapid.Bool().Draw(t, "slow") { // places, tokens and visitors' times come and go at the same pace
		seconds := func(label string, of ...time.Duration) time.Duration {
			return time.Second * rapid.SampledFrom(of).Draw(t, label)
		}
		return room.Spec{
			Bucket: weir.TokenBucket{Rate: weir.Rate{N: rapid.Int64Range(1, 3).Draw(t, "n"), Per: seconds("per", 1, 3, 7, 20, 60)}, Burst: rapid.Int64Range(1, 3).Draw(t, "burst")},
			Inside: rapid.Int64Range(0, 3).Draw(t, "inside"),
			Idle:   seconds("idle", 5, 10, 25, 100), Session: seconds("session", 10, 30, 200), EnterWithin: seconds("enter", 5, 20, 60), PollTimeout: seconds("lapse", 40, 60, 120),
			MaxWaiting: rapid.Int64Range(3, 22).Draw(t, "max waiting"),
		}
	}
	spans := rapid.SampledFrom([]time.Duration{time.Second, 7 * time.Second, 25 * time.Second, 40 * time.Second, time.Minute, 3 * time.Minute, time.Hour})
	return room.Spec{
		Bucket: weir.TokenBucket{
			Rate:  weir.Rate{N: rapid.Int64Range(1, 7).Draw(t, "n"), Per: rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, 20 * time.Second, 40 * time.Second}).Draw(t, "per")},
			Burst: rapid.Int64Range(1, 4).Draw(t, "burst"),
		},
		Inside: rapid.Int64Range(0, 4).Draw(t, "inside"),
		Idle:   spans.Draw(t, "idle"), Session: spans.Draw(t, "session"), EnterWithin: spans.Draw(t, "enter"), PollTimeout: spans.Draw(t, "lapse"),
		MaxWaiting: rapid.Int64Range(1, 12).Draw(t, "max waiting"),
		Opens:      rapid.SampledFrom([]int64{0, 0, 0, 1_790_000_000 * sec, 1_790_000_040 * sec, 1_790_000_000*sec + 10*60*sec + 1}).Draw(t, "opens"),
		Paused:     rapid.IntRange(0, 9).Draw(t, "paused") == 0,
	}
})

// walk makes the same polls on a queue and the model, with tickets that visitors could have: also
// old ones, and ones from before the state was lost. TestModelKeepsTheBounds shows that the model
// keeps the rate and the number.
func walk(t *rapid.T, spec room.Spec, ask func(now int64, q room.Poll) room.Standing) {
	m := newModel(spec)
	now := int64(1_790_000_000_000_000)
	steps := rapid.Custom(func(t *rapid.T) int64 {
		return rapid.SampledFrom([]int64{0, 0, 0, 1, 333_333, 999_999, sec, 2 * sec, 10 * sec, 30 * sec, 61 * sec, 10 * 60 * sec, -5 * sec, -333_333, -3600 * sec}).Draw(t, "step")
	})
	last := rapid.SampledFrom([]int{3, 7, 14}).Draw(t, "visitors") // with few, some stay away for long
	calm := rapid.Bool().Draw(t, "calm")                           // no long steps, no tickets
	if calm {
		steps = rapid.SampledFrom([]int64{0, 1, 300_000, sec, 5 * sec, 20 * sec})
	}
	tickets := map[string][]room.Poll{}
	for i := range rapid.IntRange(20, 60).Draw(t, "questions") {
		now += steps.Draw(t, "later")
		q := room.Poll{ID: "v" + strconv.Itoa(rapid.IntRange(0, last).Draw(t, "who"))}
		if had := tickets[q.ID]; calm {
			q.Join = rapid.IntRange(0, 2).Draw(t, "joins") > 0
		} else if len(had) > 0 && rapid.IntRange(0, 9).Draw(t, "shows") > 0 {
			q = had[rapid.IntRange(max(0, len(had)-2), len(had)-1).Draw(t, "which")]
			q.Provisional = rapid.IntRange(0, 9).Draw(t, "kept") == 0
			if rapid.IntRange(0, 15).Draw(t, "of before") == 0 {
				q.Started -= 1000 * sec
			}
		} else {
			q.Join = rapid.Bool().Draw(t, "joins")
			if rapid.IntRange(0, 7).Draw(t, "of an earlier state") == 0 {
				q.Ticket, q.Started, q.Place, q.End = rapid.SampledFrom([]room.TicketState{room.WaitingTicket, room.InsideTicket}).Draw(t, "held"), 5, now-rapid.Int64Range(-sec, 9*sec).Draw(t, "earlier"), now+40*sec
			}
		}
		q.Enter = rapid.Bool().Draw(t, "enters")
		q.Lot = rapid.SampledFrom([]int64{0, 1, 5, sec, 1800 * sec, 3600 * sec, 7200 * sec}).Draw(t, "lot")
		want := m.ask(now, q)
		got := ask(now, q)
		got.Lapsed, got.Missed, got.Left = 0, 0, 0
		if got != want {
			t.Fatalf("question %d at %d, %+v:\n got %+v\nwant %+v", i, now, q, got, want)
		}
		next := room.Poll{ID: q.ID, Started: want.Started, Place: want.Place, End: want.End}
		switch want.State {
		case room.Waiting:
			next.Ticket = room.WaitingTicket
			if rapid.IntRange(0, 9).Draw(t, "of before the opening") == 0 {
				next.Place = 0
			}
		case room.Admitted:
			next = q
		case room.Inside:
			next.Ticket = room.InsideTicket
		default:
			continue
		}
		tickets[q.ID] = append(tickets[q.ID], next)
	}
}

func TestQueueInMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs.Draw(t, "room")
		var now int64
		line, err := room.NewMemory(spec, func() int64 { return now })
		if err != nil {
			t.Fatal(err)
		}
		walk(t, spec, func(at int64, q room.Poll) room.Standing {
			now = at
			a, err := line.Poll(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			return a
		})
	})
}

func TestQueueInRedis(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	client := dial(t, s.Addr)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		ctx := context.Background()
		spec := specs.Draw(t, "room")
		line, err := redis.NewQueue(weirrueidis.Evaler(client), spec, redis.QueueOptions{Name: fmt.Sprint(n), ClockKey: "clock", Deadline: servers.Patience})
		if err != nil {
			t.Fatal(err)
		}
		walk(t, spec, func(at int64, q room.Poll) room.Standing {
			client.Do(ctx, client.B().Hset().Key("clock").FieldValue().FieldValue("s", fmt.Sprint(at/sec)).FieldValue("us", fmt.Sprint(at%sec)).Build())
			a, err := line.Poll(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			return a
		})
	})
}

// TestModelKeepsTheBounds: in any interval no more visitors of the model get their turn than rate
// and burst allow, none gets it before the poll that it follows, and there are never more than
// Inside inside.
func TestModelKeepsTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := specs.Draw(t, "room")
		m := newModel(spec)
		now := int64(1_790_000_000_000_000)
		for i := range 100 {
			now += rapid.Int64Range(0, 3*sec).Draw(t, "later")
			a := m.ask(now, room.Poll{ID: fmt.Sprint(i), Join: true, Enter: rapid.Bool().Draw(t, "enters")})
			if spec.Inside > 0 && a.Inside > spec.Inside {
				t.Fatalf("%d inside of %d", a.Inside, spec.Inside)
			}
			if n := len(m.turns); n > 0 && m.turns[n-1] > now {
				t.Fatalf("a turn at %d, which comes after %d", m.turns[n-1], now)
			}
		}
		b := spec.Bucket
		for i := range m.turns {
			for j := i; j < len(m.turns); j++ {
				in := m.turns[j] - m.turns[i]
				if int64(j-i+1) > b.Burst+in*b.Rate.N/b.Rate.Per.Microseconds() {
					t.Fatalf("%d had their turn within %d us by %v", j-i+1, in, b)
				}
			}
		}
	})
}

// TestClockOfTheServerSteps: a clock that swings between two times gives a room no more time than
// goes by, and so no more visitors than the rate. While it does not step, the room's time goes on
// with it, or is what it shows, however far it has stepped back before.
func TestClockOfTheServerSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(specs.Draw(t, "room"))
		now := int64(1_790_000_000_000_000)
		behind := rapid.SampledFrom([]int64{1, 40_000, sec, 3 * sec, 3600 * sec}).Draw(t, "behind")
		m.ask(now, room.Poll{ID: "first", Join: true})
		before := int64(0) // how far the clock was behind at the latest poll
		for i := range 100 {
			later, stepped := rapid.Int64Range(0, 3*sec).Draw(t, "later"), rapid.SampledFrom([]int64{0, before, behind}).Draw(t, "clock")
			was := m.now
			now += later
			m.ask(now-stepped, room.Poll{ID: fmt.Sprint(i), Join: true})
			if m.now > now {
				t.Fatalf("the room's time is %d us ahead", m.now-now)
			}
			if stepped == before && m.now-was < later && m.now != now-stepped {
				t.Fatalf("the room's time went on by %d us in %d us", m.now-was, later)
			}
			before = stepped
		}
	})
}
