package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// The calls of concurrency.lua, and its replies.
const (
	enter = iota
	leave
	extend
	look

	refused = iota - 4
	held
	waits
	late
	gone

	lease = 1_000_000 // how long a waiter without polls keeps its place
)

// entry is a holder, a waiter, or one that is known to have left.
type entry struct {
	id                  string
	expiry, cost, fence int64
}

// line is Concurrency in a store, written as plainly as possible.
type line struct {
	holds, queue, graves []entry
	fence                int64

	ahead int64   // how far the time is ahead of the server's clock
	seen  int64   // the time of the latest change
	steps []int64 // how far the clock is behind, after at most two steps back
}

// time is the time of the line at a reading of the server's clock: it goes on where that steps back.
func (l *line) time(reading int64) int64 {
	for i, back := range append([]int64{0}, l.steps...) {
		if reading+back >= l.seen {
			l.steps = l.steps[:i]
			return reading + back
		}
	}
	if l.steps = append(l.steps, l.seen-reading); len(l.steps) > 2 {
		l.steps = l.steps[1:]
	}
	return l.seen
}

func (l *line) purge(now int64) {
	for _, all := range []*[]entry{&l.holds, &l.queue, &l.graves} {
		*all = slices.DeleteFunc(*all, func(e entry) bool { return e.expiry <= now })
	}
}

func sum(all []entry) (n int64) {
	for _, e := range all {
		n += e.cost
	}
	return n
}

func find(all []entry, id string) int {
	return slices.IndexFunc(all, func(e entry) bool { return e.id == id })
}

// returns gives the time at which there is room, without further calls.
func (l *line) returns(now, cost, limit int64) int64 {
	if cost < 0 || cost > limit {
		return -1
	}
	all := slices.Concat(l.holds, l.queue)
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.expiry, b.expiry) })
	need := sum(all) + cost - limit
	for _, e := range all {
		if need -= e.cost; need <= 0 {
			return e.expiry - now
		}
	}
	return 0
}

// question is a call of the script, and answer its reply.
type question struct {
	op                               int64
	key, id                          string
	cost, limit, queue, span, expiry int64
}

type answer struct{ code, fence, place, retry, remaining, reset int64 }

func (l *line) ask(reading int64, q question) (a answer) {
	now := l.time(reading)
	l.ahead = now - reading
	l.purge(now)
	switch q.op {
	case enter:
		if a.code = late; reading <= q.expiry {
			a = l.enter(now, q)
		}
	case leave:
		a = l.leave(now, q)
	case extend:
		a.code = gone
		if i := find(l.holds, q.id); i >= 0 {
			l.seen = now
			l.holds[i].expiry = max(l.holds[i].expiry, now+q.span)
			a.code, a.fence = held, l.holds[i].fence
		}
	case look:
		a = answer{code: held, fence: sum(l.holds), place: int64(len(l.queue))}
		if q.cost != 0 && (q.cost < 0 || sum(l.holds)+sum(l.queue)+q.cost > q.limit) {
			a.code, a.retry = refused, l.returns(now, q.cost, q.limit)
		}
	}
	a.remaining = max(q.limit-sum(l.holds)-sum(l.queue), 0)
	for _, e := range slices.Concat(l.holds, l.queue) {
		a.reset = max(a.reset, e.expiry-now)
	}
	return a
}

func (l *line) enter(now int64, q question) answer {
	if i := find(l.holds, q.id); i >= 0 {
		l.seen = now
		l.holds[i].expiry = max(l.holds[i].expiry, now+q.span)
		return answer{code: held, fence: l.holds[i].fence}
	}
	if find(l.graves, q.id) >= 0 {
		return answer{code: gone}
	}
	i := find(l.queue, q.id)
	before := l.queue
	if i >= 0 {
		before = l.queue[:i]
	}
	if q.cost <= q.limit && sum(l.holds)+sum(before)+q.cost <= q.limit {
		if i >= 0 {
			l.queue = slices.Delete(l.queue, i, i+1)
		}
		l.fence = max(l.fence+1, now)
		l.holds, l.seen = append(l.holds, entry{q.id, now + q.span, q.cost, l.fence}), now
		return answer{code: held, fence: l.fence}
	}
	switch {
	case i >= 0 && q.cost > q.limit:
		l.queue, l.seen = slices.Delete(l.queue, i, i+1), now
		return answer{code: refused, retry: -1}
	case i >= 0:
		l.queue[i].expiry, l.seen = now+lease, now
	case q.cost > q.limit || int64(len(l.queue)) >= q.queue:
		return answer{code: refused, retry: l.returns(now, q.cost, q.limit)}
	default:
		i = len(l.queue)
		l.queue, l.seen = append(l.queue, entry{q.id, now + lease, q.cost, 0}), now
	}
	return answer{code: waits, place: int64(i + 1)}
}

func (l *line) leave(now int64, q question) answer {
	a := answer{code: gone}
	for _, all := range []*[]entry{&l.holds, &l.queue} {
		if i := find(*all, q.id); i >= 0 {
			*all, l.seen = slices.Delete(*all, i, i+1), now
			a.code = held
		}
	}
	if q.expiry >= now-l.ahead {
		l.seen = now
		l.graves = slices.DeleteFunc(l.graves, func(e entry) bool { return e.id == q.id })
		l.graves = append(l.graves, entry{id: q.id, expiry: q.expiry + 1 + l.ahead})
	}
	return a
}

// asker calls the script itself, as a store does.
type asker struct {
	client rueidis.Client
	evaler weirredis.Evaler
	script *weirredis.Script
	calls  int
}

// Eval records the script of a store.
func (a *asker) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	a.script = c.Script
	return a.evaler.Eval(ctx, c)
}

func (a *asker) EvalAll(ctx context.Context, calls []weirredis.Call, replies []weirredis.Reply) {
	a.evaler.EvalAll(ctx, calls, replies)
}

// The part of MessagePack that is needed.
func packInt(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
}

func packText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(len(s))), s...)
}

func packArray(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func unpackInt(b *string) int64 {
	c := (*b)[0]
	size := map[byte]int{0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8}[c]
	v := uint64(0)
	for i := range size {
		v = v<<8 | uint64((*b)[1+i])
	}
	*b = (*b)[1+size:]
	switch {
	case size == 0:
		return int64(int8(c))
	case c >= 0xd0:
		return int64(v) << (64 - 8*size) >> (64 - 8*size)
	}
	return int64(v)
}

func (a *asker) ask(t *rapid.T, now int64, qs []question) (answers []answer) {
	ctx := context.Background()
	set := a.client.B().Hset().Key("clock").FieldValue().FieldValue("s", strconv.FormatInt(now/1e6, 10)).FieldValue("us", strconv.FormatInt(now%1e6, 10)).Build()
	if err := a.client.Do(ctx, set).Error(); err != nil {
		t.Fatal(err)
	}
	b := packArray(packInt(packInt(packInt(packArray(nil, 4), 1), 3_600_000), lease), 7*len(qs))
	var keys []string
	for _, q := range qs {
		b = packText(packInt(b, q.op), q.id)
		for _, v := range []int64{q.cost, q.limit, q.queue, q.span, q.expiry} {
			b = packInt(b, v)
		}
		keys = append(keys, q.key)
	}
	text, err := a.evaler.Eval(ctx, weirredis.Call{Script: a.script, Keys: keys, Args: []string{string(b)}})
	if err != nil {
		t.Fatal(err)
	}
	if text = text[1:]; len(qs)*6+1 > 15 {
		text = text[2:]
	}
	if said := unpackInt(&text); said != now {
		t.Fatalf("it is %d and the script says %d", now, said)
	}
	for range qs {
		answers = append(answers, answer{unpackInt(&text), unpackInt(&text), unpackInt(&text), unpackInt(&text), unpackInt(&text), unpackInt(&text)})
	}
	return answers
}

// TestHoldsModel compares the script with the model on random walks, reply by reply: the holders
// with their times, the waiters with their order, and the fences.
func TestHoldsModel(t *testing.T) {
	a := askHolds(t)
	rapid.Check(t, func(t *rapid.T) {
		a.calls++
		a.walk(t)
	})
}

// TestHoldsAfterAClockStep: the server's clock steps back by an hour. A place whose holder crashed then
// comes back after MaxHold and not after the hour, and one that is extended stays.
func TestHoldsAfterAClockStep(t *testing.T) {
	a := askHolds(t)
	const begin, back, span = 1_700_000_000_000_000, 3_600_000_000, 10_000_000
	rapid.Check(t, func(t *rapid.T) {
		a.calls++
		at := func(now, op int64, id string) answer {
			return a.ask(t, now, []question{{op: op, key: fmt.Sprintf("step:%d:{a}", a.calls), id: id, cost: 1, limit: 2, span: span, expiry: now + 1000}})[0]
		}
		at(begin, enter, "crashes")
		at(begin, enter, "stays")
		if got := at(begin-back, enter, "next"); got.code != refused || got.retry != span {
			t.Fatalf("%+v after the step", got)
		}
		at(begin-back+span/2, extend, "stays")
		if got := at(begin-back+span, enter, "next"); got.code != held || got.remaining != 0 {
			t.Fatalf("%+v after MaxHold", got)
		}
		if got := at(begin+span+1, enter, "another"); got.code != refused { // the clock swings back
			t.Fatalf("%+v after the clock swung back", got)
		}
	})
}

// askHolds calls the script of a new server.
func askHolds(t *testing.T) *asker {
	t.Helper()
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	a := &asker{client: client, evaler: weirrueidis.Evaler(client)}
	store, err := weirredis.New(a, weirredis.Options{ClockKey: "clock", Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := client.Do(t.Context(), client.B().Hset().Key("clock").FieldValue().FieldValue("s", "1700000000").FieldValue("us", "0").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	c, err := weirredis.NewConcurrency(store, weir.Concurrency{Limit: 1, MaxHold: time.Minute}, "gate")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Peek(t.Context(), "k", 1); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *asker) walk(t *rapid.T) {
	now := int64(1_700_000_000_000_000)
	limit, queue := rapid.Int64Range(1, 5).Draw(t, "limit"), rapid.Int64Range(0, 4).Draw(t, "queue")
	span := rapid.SampledFrom([]int64{1, 1000, 1_000_000, 10_000_000}).Draw(t, "max_hold")
	models := map[string]*line{}
	promised := map[string]int64{}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now += rapid.SampledFrom([]int64{0, 0, 0, 1, 500, span / 3, span, lease - 1, lease, -1, -span, -100 * span, -3600 * lease}).Draw(t, "later")
		if rapid.IntRange(0, 15).Draw(t, "change") == 0 {
			limit = rapid.Int64Range(1, 5).Draw(t, "limit")
		}
		var qs []question
		for range rapid.IntRange(1, 3).Draw(t, "questions") {
			qs = append(qs, question{
				op:    rapid.SampledFrom([]int64{enter, enter, enter, enter, leave, leave, extend, look}).Draw(t, "op"),
				key:   fmt.Sprintf("model:%d:{%s}", a.calls, rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "key")),
				id:    rapid.SampledFrom([]string{"p", "q", "r", "s", "t", "u", "v", "w"}).Draw(t, "id"),
				limit: limit, queue: queue, span: span,
			})
			q := &qs[len(qs)-1]
			q.cost = int64(q.id[0]-'p')%3 + 1 // a repeated call has the same cost
			switch q.op {
			case enter:
				q.expiry = now + rapid.SampledFrom([]int64{1000, 1000, 0, -1}).Draw(t, "expiry")
			case leave:
				q.expiry = rapid.SampledFrom([]int64{0, 0, now, now + 2000}).Draw(t, "unsure")
			case look:
				q.cost = rapid.Int64Range(-1, 6).Draw(t, "cost")
			}
		}
		for i, got := range a.ask(t, now, qs) {
			q := qs[i]
			m := models[q.key]
			if m == nil {
				m = &line{}
				models[q.key] = m
			}
			want := m.ask(now, q)
			promised[q.key] = max(promised[q.key], now+m.ahead+max(span, lease))
			// The reset is an upper bound, and so is the place: waiters that have left are known
			// later.
			if got.reset < want.reset || (want.reset == 0) != (got.reset == 0) || got.reset > promised[q.key]-now-m.ahead {
				t.Fatalf("%+v at %d: reset %d, want %d", q, now, got.reset, want.reset)
			}
			if got.place < want.place || got.place > int64(max(len(m.queue), 0)) {
				t.Fatalf("%+v at %d: place %d, want %d", q, now, got.place, want.place)
			}
			if got.reset, got.place = want.reset, want.place; got != want {
				t.Fatalf("%+v at %d: %+v, want %+v\n%+v", q, now, got, want, *m)
			}
		}
	}
}
