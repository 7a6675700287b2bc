package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirsql"
)

// bucket is a limit whose charges take decides, and which brings nothing back during a test.
var bucket = weir.TokenBucket{Rate: weir.PerDay(1), Burst: 100}

// The functions that decide takes: their arguments are a lane, a number, an expiry, limits, a key, and numbers.
var takes = []string{
	"weir.take($1, $2, $3, false, $4, ARRAY[$5::bytea], $6)",
	"weir.take_key($1, $2, $3, false, false, ($4::text[])[1], $5::bytea, ($6::bigint[])[2], ($6::bigint[])[3], ($6::bigint[])[4], ($6::bigint[])[5], ($6::bigint[])[6:])",
	"weir.take_key($1, $2, $3, false, true, ($4::text[])[1], $5::bytea, ($6::bigint[])[2], ($6::bigint[])[3], ($6::bigint[])[4], ($6::bigint[])[5], ($6::bigint[])[6:])",
}

// testTake: a call that a short function carries out is carried out once, whichever of them gets it again, and however
// late.
func testTake(t *testing.T, pool *pgxpool.Pool, s *weirsql.Store, lane int, call string) {
	const limit = "{1,0,9,86400000000,100,0}"
	now := func() int64 { return time.Now().Add(time.Minute).UnixMicro() }
	take := func(number, expiry int64, key string, numbers string) (reply string, err error) {
		err = pool.QueryRow(t.Context(), "SELECT "+call, lane, number, expiry, []string{limit}, fmt.Append(nil, key, lane), numbers).Scan(&reply)
		return reply, err
	}
	carryOut := func(number int64) (reply string) {
		if err := pool.QueryRow(t.Context(), `SELECT weir.carry_out($1, $2, $3, false, $4, '{}', ARRAY[$5::bytea], '{1,1,0,5,0,0,0}', '{""}')`, lane, number, now(), []string{limit}, fmt.Append(nil, "take", lane)).Scan(&reply); err != nil {
			t.Fatal(err)
		}
		return reply
	}
	tokens := func(reply string, err error) string {
		if err != nil {
			return err.Error()
		}
		_, replies, _ := strings.Cut(reply, ";")
		var all []string
		for r := range strings.SplitSeq(replies, ";") {
			if words := strings.Fields(r); len(words) == 3 {
				all = append(all, words[1])
			} else {
				all = append(all, r)
			}
		}
		return strings.Join(all, " ")
	}
	const five, late = "{1,9,86400000000,8640000000000,8640000000000,5,0}", "{2,9,86400000000,8640000000000,8640000000000,5,3600000,7,0}"
	first, err := take(1, now(), "take", five)
	if got := tokens(first, err); got != "95" {
		t.Fatalf("the first call: %q %v", first, err)
	}
	if again := carryOut(1); again != first {
		t.Errorf("repeated: %q, and at first %q", again, first)
	}
	if got := tokens(carryOut(2), nil); got != "90" {
		t.Errorf("the next call, by carry_out: %s remain", got)
	}
	for number := range int64(3) { // an attempt that was delayed on its way
		var coded interface{ SQLState() string }
		if reply, err := take(number, now(), "take", five); !errors.As(err, &coded) || coded.SQLState() != "WR005" {
			t.Errorf("the attempt of call %d that came late: %q %v", number, reply, err)
		}
	}
	if reply, err := take(3, time.Now().Add(-time.Minute).UnixMicro(), "take", five); !strings.HasPrefix(reply, "LATE ") {
		t.Errorf("after its expiry: %q %v", reply, err)
	}
	if got := tokens(take(3, now(), "take", late)); got != "LATE 83" {
		t.Errorf("a caller that has left, and one that has not: %s", got)
	}
	if got := tokens(take(4, now(), "left", "{1,9,86400000000,8640000000000,8640000000000,5,3600000}")); got != "LATE" {
		t.Errorf("a caller that has left: %s", got)
	}
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM weir.states WHERE id = $1", fmt.Append(nil, "left", lane)).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows of a key that nothing was charged to: %v", rows, err)
	}
	if _, err := pool.Exec(t.Context(), "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1/(weir.take(0, 0, 9e15::bigint, false, '{}', '{}', '{}') = 'OTHER')::int; COMMIT"); err != nil {
		t.Errorf("under another isolation level, carry_out has to say so: %v", err)
	}

	// what take cannot decide, in turns with what it can, on one key
	do(t, s, weir.Charge{Name: "x", Limit: bucket, Cost: 1})
	reserve := []weir.Charge{{Name: "x", Limit: bucket, Cost: 10, Op: weir.OpReserve, Estimate: true}}
	if err := try(t, s, reserve, make([]weir.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	settle := reserve[0]
	settle.Op, settle.Cost = weir.OpSettle, 200
	larger := weir.TokenBucket{Rate: weir.PerDay(2), Burst: 1000}
	for i, c := range []struct {
		charge    weir.Charge
		remaining int64
	}{
		{weir.Charge{Name: "x", Limit: bucket, Cost: 1}, 88}, // beside an outstanding reservation
		{settle, 0}, // a debt of 102
		{weir.Charge{Name: "x", Limit: bucket, Cost: 1}, 0},            // refused
		{weir.Charge{Name: "x", Limit: bucket, Op: weir.OpReset}, 100}, //
		{weir.Charge{Name: "x", Limit: bucket, Cost: 1}, 99},           //
		{weir.Charge{Name: "x", Limit: bucket, Cost: 100}, 99},         // refused
		{weir.Charge{Name: "x", Limit: larger, Cost: 9}, 990},          // another version
		{weir.Charge{Name: "x", Limit: larger, Cost: 10}, 980},         //
		{weir.Charge{Name: "x", Key: "new", Limit: weir.LeakyBucket{Rate: weir.PerDay(1), Queue: 9, DelayAfter: 9}, Cost: 3}, 7},
	} {
		if d := do(t, s, c.charge)[0]; d.Remaining != c.remaining {
			t.Errorf("step %d: %+v, want %d", i, d, c.remaining)
		}
	}

	// a row that something else has locked
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM weir.states WHERE id = $1 FOR UPDATE", fmt.Append(nil, "take", lane)); err != nil {
		t.Fatal(err)
	}
	if reply, err := take(5, time.Now().Add(50*time.Millisecond).UnixMicro(), "take", five); err == nil && !strings.HasPrefix(reply, "LATE ") {
		t.Errorf("a key that is locked: %q", reply)
	}
	if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if got := tokens(take(5, now(), "take", five)); got != "78" {
		t.Errorf("after that: %s", got)
	}
}

// testExhausted: a key that is exhausted is refused while another session has locked its row, and what that session
// gives back counts once it is committed. A key that admits a charge waits for the lock.
func testExhausted(t *testing.T, pool *pgxpool.Pool) {
	const bucket, window = "'{1,0,9,86400000000,100,0}', $3, 9, 86400000000, 8640000000000, 8640000000000", "'{3,0,100,86400000000,0,0}', $3, 0, 86400000000, 100, 0"
	for i, c := range []struct{ limit, release string }{
		{bucket, "UPDATE weir.states SET s[1] = s[1] - 10 * 86400000000 WHERE id = $1"},
		{window, "UPDATE weir.states SET s[2] = s[2] - 10 WHERE id = $1"},
	} {
		key, number := fmt.Append(nil, "exhausted", i), 0
		take := func(cost int, wait time.Duration) (retry, remaining int64) {
			t.Helper()
			number++
			var reply string
			err := pool.QueryRow(t.Context(), "SELECT weir.take_key($5, $1, $2, false, true, "+c.limit+", ARRAY[$4::bigint, 0])",
				number, time.Now().Add(wait).UnixMicro(), key, cost, 4720+i).Scan(&reply)
			_, reply, _ = strings.Cut(reply, ";")
			if n, _ := fmt.Sscan(reply, &retry, &remaining); err != nil || n != 2 {
				return -1, -1
			}
			return retry, remaining
		}
		if retry, remaining := take(98, time.Minute); retry != 0 || remaining != 2 {
			t.Fatalf("the first charge: %d %d", retry, remaining)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), c.release, key); err != nil {
			t.Fatal(err)
		}
		if retry, remaining := take(3, time.Minute); retry <= 0 || remaining != 2 {
			t.Errorf("limit %d: 3 of 2 tokens beside a lock: %d %d, want a refusal", i, retry, remaining)
		}
		if retry, _ := take(2, 100*time.Millisecond); retry != -1 {
			t.Errorf("limit %d: 2 of 2 tokens without the lock: %d", i, retry)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if retry, remaining := take(3, time.Minute); retry != 0 || remaining != 9 {
			t.Errorf("limit %d: 3 of 12 tokens: %d %d", i, retry, remaining)
		}
		if tx, err = pool.Begin(t.Context()); err != nil { // as VACUUM FULL locks a table
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "LOCK TABLE weir.states"); err != nil {
			t.Fatal(err)
		}
		if retry, _ := take(99, 100*time.Millisecond); retry != -1 {
			t.Errorf("limit %d: 99 of 9 tokens, with the table locked: %d", i, retry)
		}
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}
