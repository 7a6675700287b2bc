package room

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/server/stores/postgres"
	"github.com/weirflow/weir/weirpgx"
	"github.com/weirflow/weir/weirsql"
)

// testClock is an SQL expression that reads the clock of tests.
const testClock = "(SELECT us FROM public.clock)"

// connectTo returns a pool of connections with a server.
func connectTo(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// withClock starts a PostgreSQL whose functions read the clock of tests.
func withClock(t *testing.T) (pool *pgxpool.Pool, set func(at int64)) {
	t.Helper()
	pool = connectTo(t, servers.StartPostgres(t, servers.PostgresOptions{}).URL())
	if _, err := pool.Exec(t.Context(), "CREATE TABLE public.clock (us bigint NOT NULL); INSERT INTO public.clock VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	if err := (weirsql.Schema{Clock: testClock, Unlogged: true}).Migrate(t.Context(), weirpgx.Querier(pool)); err != nil {
		t.Fatal(err)
	}
	return pool, func(at int64) {
		if _, err := pool.Exec(context.Background(), "UPDATE public.clock SET us = $1", at); err != nil {
			t.Error(err)
		}
	}
}

func openPostgres(t testing.TB, q weirsql.Querier, name string, spec room.Spec) *postgres.Queue {
	line, err := postgres.NewQueue(q, spec, postgres.QueueOptions{Name: name, Deadline: servers.Patience})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func TestQueueInPostgres(t *testing.T) {
	pool, set := withClock(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		spec := specs.Draw(r, "room")
		line := openPostgres(t, weirpgx.Querier(pool), fmt.Sprint(n), spec)
		walk(r, spec, func(at int64, q room.Poll) room.Standing {
			set(at)
			a, err := line.Poll(context.Background(), q)
			if err != nil {
				r.Fatal(err)
			}
			return a
		})
	})
}

// TestLongQueueInPostgres: the visitors ahead are counted exactly in a queue of several parts, which visitors join at the end,
// at the beginning and in between, and leave everywhere.
func TestLongQueueInPostgres(t *testing.T) {
	pool, set := withClock(t)
	const start = int64(1_790_000_000_000_000)
	spec := plainSpec()
	spec.Bucket = weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 5}
	spec.PollTimeout = 2 * time.Minute
	line := openPostgres(t, weirpgx.Querier(pool), "sale", spec)
	now := start
	memory, err := room.NewMemory(spec, func() int64 { return now })
	if err != nil {
		t.Fatal(err)
	}
	random := seeds.Of(t.Name())
	var known []string
	poll := func(q room.Poll) room.Standing {
		t.Helper()
		set(now)
		want, err := memory.Poll(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got := ask(t, line, q)
		if got != want {
			t.Fatalf("%+v at %d:\n got %+v\nwant %+v", q, now, got, want)
		}
		return got
	}
	for i := range 3000 {
		now += random.Int64N(2000)
		q := room.Poll{ID: fmt.Sprint("v", i), Join: true, Enter: true}
		if i%3 > 0 { // of a lost state: anywhere in the queue
			q.Ticket, q.Started, q.Place = room.WaitingTicket, 5, start-random.Int64N(1000*sec)
		}
		poll(q)
		known = append(known, q.ID)
	}
	var parts int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM weir.parts").Scan(&parts); err != nil || parts < 6 {
		t.Errorf("%d parts, %v", parts, err)
	}
	for i := range 2000 {
		now += random.Int64N(sec / 20)
		poll(room.Poll{ID: known[random.IntN(len(known))], Enter: i%2 == 0})
	}
	for range 10 { // most have stopped polling: a poll removes up to 500 of them, and the next one goes on
		now += 20 * sec
		set(now)
		for range 20 {
			q := room.Poll{ID: known[random.IntN(len(known))], Enter: true}
			for range 8 {
				if _, err := memory.Poll(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				ask(t, line, q)
			}
			poll(q)
		}
	}
	rows, err := pool.Query(t.Context(), "SELECT p.n, (SELECT count(*) FROM weir.visitors v WHERE v.place IS NOT NULL AND (v.place, v.id) >= (p.place, p.id) AND ((v.place, v.id) < (p.next, p.next_id)) IS NOT FALSE)"+
		" FROM (SELECT *, lead(place) OVER w AS next, lead(id) OVER w AS next_id FROM weir.parts WINDOW w AS (ORDER BY place, id)) p")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n, counted int
		if err := rows.Scan(&n, &counted); err != nil || n != counted || n == 0 {
			t.Errorf("a part of %d visitors has %d, %v", counted, n, err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}

// TestQueueInPostgresWithFewRights: a user with the rights in docs/postgres.md can keep a queue, whose reply
// may be lost: a poll that is carried out again says the same.
func TestQueueInPostgresWithFewRights(t *testing.T) {
	s := servers.StartPostgres(t, servers.PostgresOptions{})
	pool := connectTo(t, s.URL())
	if err := (weirsql.Schema{}).Migrate(t.Context(), weirpgx.Querier(pool)); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "CREATE ROLE weir LOGIN; GRANT USAGE ON SCHEMA weir TO weir; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA weir TO weir"); err != nil {
		t.Fatal(err)
	}
	line := openPostgres(t, weirpgx.Querier(connectTo(t, strings.Replace(s.URL(), "postgres@", "weir@", 1))), "sale", plainSpec())
	some(t, line)
	for _, id := range []string{"1", "1"} {
		if a := ask(t, line, room.Poll{ID: id, Join: true}); a.Ahead != 1 || a.Waiting != 3 || a.Inside != 1 {
			t.Errorf("%+v", a)
		}
	}
	if err := line.Close(); err != nil {
		t.Error(err)
	}
	if _, err := line.Poll(t.Context(), room.Poll{ID: "1"}); err == nil {
		t.Error("a closed queue responds")
	}
}

// TestRoomOfPostgresIsRemoved: what a room has is removed some time after the latest poll, a part at a time, and
// a visitor who comes meanwhile finds an empty room.
func TestRoomOfPostgresIsRemoved(t *testing.T) {
	pool, set := withClock(t)
	set(1_790_000_000_000_000)
	line := openPostgres(t, weirpgx.Querier(pool), "sale", plainSpec())
	for i := range 1500 {
		ask(t, line, room.Poll{ID: fmt.Sprint(i), Join: true})
	}
	count := func(table string) (n int) {
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM weir."+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	store, err := weirpgx.New(pool, weirsql.Options{Schema: weirsql.Schema{Clock: testClock}, SweepEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	sweep := func() {
		t.Helper()
		if _, err := store.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
	}
	set(1_790_000_000_000_000 + 2*3600*sec)
	if sweep(); count("visitors") != 1500 {
		t.Errorf("%d visitors of a room that may be used again", count("visitors"))
	}
	set(1_790_000_000_000_000 + 2*3600*sec + 46*sec)
	sweep()
	if a := ask(t, line, room.Poll{ID: "new", Join: true, Enter: true}); a.State != room.Inside || a.Waiting != 0 || a.Inside != 1 {
		t.Errorf("%+v", a)
	}
	sweep()
	sweep()
	for table, want := range map[string]int{"rooms": 1, "visitors": 1, "parts": 0} {
		if n := count(table); n != want {
			t.Errorf("%d rows in %s, want %d", n, table, want)
		}
	}
}

// TestQueueInALockedPostgres: a poll fails in time while something else has locked the room, leaves no session that
// waits, and is carried out afterwards.
func TestQueueInALockedPostgres(t *testing.T) {
	s := servers.StartPostgres(t, servers.PostgresOptions{})
	pool := connectTo(t, s.URL())
	if err := (weirsql.Schema{}).Migrate(t.Context(), weirpgx.Querier(pool)); err != nil {
		t.Fatal(err)
	}
	line := openPostgres(t, weirpgx.Querier(pool), "sale", plainSpec())
	some(t, line)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM weir.rooms FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if a, err := line.Poll(ctx, room.Poll{ID: "late", Join: true}); err == nil {
		t.Errorf("%+v", a)
	}
	servers.Poll(t, "no session waits", func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n)
		return err == nil && n == 0
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, line, room.Poll{ID: "late", Join: true}); a.State != room.Waiting || a.Ahead != 3 {
		t.Errorf("%+v", a)
	}
}

// TestQueueInAPostgresThatRestarts: a poll waits, within its deadline, for a server that was killed. Visitors have
// their places then; tables that are not logged have lost them, and the tickets say so.
func TestQueueInAPostgresThatRestarts(t *testing.T) {
	for _, unlogged := range []bool{false, true} {
		s := servers.StartPostgres(t, servers.PostgresOptions{Persist: true})
		pool := connectTo(t, s.URL())
		if err := (weirsql.Schema{Unlogged: unlogged}).Migrate(t.Context(), weirpgx.Querier(pool)); err != nil {
			t.Fatal(err)
		}
		line, err := postgres.NewQueue(weirpgx.Querier(pool), plainSpec(), postgres.QueueOptions{Name: "sale", Deadline: servers.Patience, Durable: true})
		if err != nil {
			t.Fatal(err)
		}
		some(t, line)
		before := ask(t, line, room.Poll{ID: "2"})
		s.Kill()
		joined := make(chan room.Standing, 1)
		go func() {
			a, err := line.Poll(context.Background(), room.Poll{ID: "2", Ticket: room.WaitingTicket, Started: before.Started, Place: before.Place})
			if err != nil {
				t.Error(err)
			}
			joined <- a
		}()
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		a := <-joined
		if a.State != room.Waiting || a.Place != before.Place || (a.Started != before.Started) != unlogged || a.Ahead != map[bool]int64{false: 2, true: 0}[unlogged] {
			t.Errorf("unlogged=%v: %+v, before %+v", unlogged, a, before)
		}
	}
}

// TestLatestVisitorsOfPostgres: a server that is killed forgets the polls of the last moments, and their tickets restore
// the places, whoever comes first, also after another restart.
func TestLatestVisitorsOfPostgres(t *testing.T) {
	s := servers.StartPostgres(t, servers.PostgresOptions{Persist: true, Config: []string{"wal_writer_delay=10s"}})
	pool := connectTo(t, s.URL())
	if err := (weirsql.Schema{}).Migrate(t.Context(), weirpgx.Querier(pool)); err != nil {
		t.Fatal(err)
	}
	line := openPostgres(t, weirpgx.Querier(pool), "sale", plainSpec())
	flush := func() { // what was written before is on the disk
		t.Helper()
		if _, err := pool.Exec(t.Context(), "CREATE TABLE public.flush AS SELECT 1; DROP TABLE public.flush"); err != nil {
			t.Fatal(err)
		}
	}
	restart := func() {
		t.Helper()
		s.Kill()
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, line, room.Poll{ID: "before", Join: true})
	flush()
	inside := ask(t, line, room.Poll{ID: "before", Enter: true})
	var tickets []room.Standing
	for i := range 5 {
		tickets = append(tickets, ask(t, line, room.Poll{ID: fmt.Sprint(i), Join: true}))
	}
	restart()
	back := func(visitors ...int) {
		t.Helper()
		for _, i := range visitors {
			a := ask(t, line, room.Poll{ID: fmt.Sprint(i), Ticket: room.WaitingTicket, Started: tickets[i].Started, Place: tickets[i].Place})
			if a.State != room.Waiting || a.Place != tickets[i].Place || a.Started != tickets[i].Started {
				t.Errorf("%+v, want the place of %+v", a, tickets[i])
			}
		}
	}
	ask(t, line, room.Poll{ID: "new", Join: true})
	back(3, 0)
	for range 3 {
		flush()
		restart()
		ask(t, line, room.Poll{ID: "newer", Join: true})
	}
	back(4, 1, 2)
	if a := ask(t, line, room.Poll{ID: "new"}); a.Ahead != 5 {
		t.Errorf("who came later: %+v", a)
	}
	if a := ask(t, line, room.Poll{ID: "before", Ticket: room.InsideTicket, Started: inside.Started, End: inside.End, Enter: true}); a.State != room.Inside {
		t.Errorf("who had entered: %+v", a)
	}
}

// lossy is a Querier that loses replies to what was carried out.
type lossy struct {
	weirsql.Querier
	calls int
}

func (l *lossy) Query(ctx context.Context, statement string, args ...string) (string, error) {
	text, err := l.Querier.Query(ctx, statement, args...)
	if l.calls++; l.calls%2 == 1 && err == nil {
		return "", errors.New("the connection is lost")
	}
	return text, err
}

// TestRepliesOfPostgresAreLost: a poll whose reply was lost is repeated, and changes nothing more.
func TestRepliesOfPostgresAreLost(t *testing.T) {
	pool, set := withClock(t)
	set(1_790_000_000_000_000)
	line := openPostgres(t, &lossy{Querier: weirpgx.Querier(pool)}, "sale", plainSpec())
	if a := ask(t, line, room.Poll{ID: "first", Join: true, Enter: true}); a.State != room.Inside || a.Inside != 1 {
		t.Errorf("%+v", a)
	}
	var aheads []int64
	for i := range 4 {
		a := ask(t, line, room.Poll{ID: fmt.Sprint(i), Join: true})
		aheads = append(aheads, a.Ahead)
	}
	if !slices.Equal(aheads, []int64{0, 1, 2, 3}) {
		t.Errorf("%v", aheads)
	}
}

// TestRateChangesInPostgres: admitted visitors stay counted when the rate changes, and a gateway with the old rate can
// still poll.
func TestRateChangesInPostgres(t *testing.T) {
	pool, set := withClock(t)
	at := int64(1_790_000_000_000_000)
	set(at)
	slow, fast := plainSpec(), plainSpec()
	slow.Bucket.Burst, fast.Bucket = 4, weir.TokenBucket{Rate: weir.PerDay(2), Burst: 6}
	q := weirpgx.Querier(pool)
	before, after := openPostgres(t, q, "sale", slow), openPostgres(t, q, "sale", fast)
	for i := range 4 {
		if a := ask(t, before, room.Poll{ID: fmt.Sprint("a", i), Join: true, Enter: true}); !a.Entered {
			t.Errorf("%+v", a)
		}
	}
	var a room.Standing
	for i := range 10 {
		a = ask(t, []room.Queue{after, before}[i%2], room.Poll{ID: fmt.Sprint("b", i), Join: true, Enter: true})
	}
	if a.Inside != 6 {
		t.Errorf("%d inside by bursts of 4 and 6", a.Inside)
	}
}
