package kv

import (
	"context"
	"database/sql"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/raced"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirkv"
	"github.com/weirflow/weir/weirmysql"
	"github.com/weirflow/weir/weirtest"
)

// counted counts what the procedure was asked, and what became of it.
type counted struct {
	*weirmysql.KV
	outcomes *[5]atomic.Int64
	before   func() error // the call
	lose     func() bool  // the reply
}

// Take implements weirkv.Taker.
func (c counted) Take(ctx context.Context, lane string, t *weirkv.Take) (weirkv.Taken, error) {
	if c.before != nil {
		if err := c.before(); err != nil {
			return weirkv.Taken{}, err
		}
	}
	taken, err := c.KV.Take(ctx, lane, t)
	if err != nil {
		return taken, err
	}
	c.outcomes[taken.Outcome].Add(1)
	taken.Item = weirkv.Item{} // so that the next charge is the procedure's, too
	if c.lose != nil && c.lose() {
		return weirkv.Taken{}, context.DeadlineExceeded
	}
	return taken, nil
}

// TestMySQLConforms compares the stored procedure, by a clock of the test, with the reference model.
func TestMySQLConforms(t *testing.T) {
	raced.Skip(t)
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	exec(t, db, "CREATE TABLE weir_clock (now BIGINT NOT NULL) ENGINE=InnoDB; INSERT INTO weir_clock VALUES (0)")
	if err := (weirmysql.Schema{Clock: "(SELECT now FROM weir_clock)"}).Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	var buckets []func(*rand.Rand) weir.Limit
	for _, draw := range weirtest.StoredLimits() {
		switch draw(rand.New(rand.NewPCG(1, 1))).(type) {
		case weir.TokenBucket, weir.LeakyBucket, weir.SmoothBursty:
			buckets = append(buckets, draw)
		}
	}
	var outcomes [5]atomic.Int64
	var lost int
	weirtest.Conform(t, weirtest.Subject{Seed: seeds.Seed(), Walks: 30, Steps: 40, Tick: time.Microsecond, Limits: buckets, Open: func(l weir.Limit, c *weirtest.Clock) (weirtest.Taker, error) {
		kv := counted{weirmysql.NewKV(db), &outcomes, func() error {
			_, err := db.ExecContext(t.Context(), "UPDATE weir_clock SET now = ?", c.Now()/1000)
			return err
		}, func() bool { lost++; return lost%5 == 0 }}
		s, err := weirkv.New(kv, weirkv.Options{Prefix: prefix(), Clock: c.Now, Skew: math.MaxInt64, Grace: time.Hour, Timeout: servers.Patience})
		if err != nil {
			return nil, err
		}
		return closing{weirtest.Stored(s, l), kv.Close}, nil
	}})
	for _, o := range []weirkv.Outcome{weirkv.TakeCharged, weirkv.TakeRefused, weirkv.TakeEarlier} {
		if outcomes[o].Load() == 0 {
			t.Errorf("no call had the outcome %d", o)
		}
	}
	t.Logf("other, charged, refused, earlier: %d, %d, %d, %d", outcomes[0].Load(), outcomes[1].Load(), outcomes[2].Load(), outcomes[3].Load())
}

// TestMySQLLostReplies: while the replies of many calls are lost, and callers leave, no call of several nodes is charged
// twice, and what was admitted is charged.
func TestMySQLLostReplies(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	migrate(t, db)
	const burst = 1_000_000
	limit := weir.TokenBucket{Rate: weir.PerHour(2), Burst: burst}
	var outcomes [5]atomic.Int64
	var admitted, unknown, calls atomic.Int64
	o := weirkv.Options{Prefix: prefix(), Timeout: servers.Patience}
	var stores []*weirkv.Store
	for range 3 {
		kv := counted{weirmysql.NewKV(db), &outcomes, nil, func() bool { return calls.Add(1)%3 == 0 }}
		s, err := weirkv.New(kv, o)
		if err != nil {
			t.Fatal(err)
		}
		defer kv.Close()
		defer s.Close()
		stores = append(stores, s)
	}
	var wg sync.WaitGroup
	for n, s := range stores {
		for i := range 4 {
			wg.Go(func() {
				for j := range 40 {
					ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
					if (n+i+j)%7 == 0 {
						cancel()
						ctx, cancel = context.WithTimeout(t.Context(), 2*time.Millisecond)
					}
					cost := int64(1 + (i+j)%3)
					batch, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Cost: cost}}, make([]weir.Decision, 1)
					if err := s.Do(ctx, batch, out); err != nil {
						unknown.Add(cost)
					} else if out[0].Allowed {
						admitted.Add(cost)
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	batch, out := []weir.Charge{{Name: "l", Key: "k", Limit: limit, Op: weir.OpPeek}}, make([]weir.Decision, 1)
	if err := stores[0].Do(t.Context(), batch, out); err != nil {
		t.Fatal(err)
	}
	if charged := burst - out[0].Remaining; charged < admitted.Load() || charged > admitted.Load()+unknown.Load() {
		t.Errorf("%d were admitted, %d failed, and %d were charged", admitted.Load(), unknown.Load(), charged)
	}
	if outcomes[weirkv.TakeEarlier].Load() == 0 {
		t.Error("no lost reply was found")
	}
}

// TestMySQLGhost: a call that comes late, after its caller has gone on by a later one, charges nothing; nor does a call
// that has expired.
func TestMySQLGhost(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	migrate(t, db)
	kv := weirmysql.NewKV(db)
	defer kv.Close()
	const lane = "test/1"
	if err := kv.MakeLane(t.Context(), lane); err != nil {
		t.Fatal(err)
	}
	take := bucketTake
	left := func() string {
		var at string
		if err := db.QueryRowContext(t.Context(), "SELECT HEX(SUBSTRING(state, 4, 8)) FROM weir_states WHERE id = 'k'").Scan(&at); err != nil {
			return err.Error()
		}
		return at
	}
	expired := take(1, 1, 1)
	expired.Expires = 1
	if got, err := kv.Take(t.Context(), lane, expired); err != nil || got.Outcome != weirkv.TakeOther || left() != sql.ErrNoRows.Error() {
		t.Errorf("expired: %+v %v %s", got, err, left())
	}
	if got, err := kv.Take(t.Context(), lane, take(3, 2, 9)); err != nil || got.Outcome != weirkv.TakeCharged || !got.New {
		t.Fatalf("a repeat of what was not carried out: %+v %v", got, err)
	}
	before := left()
	for _, ghost := range []*weirkv.Take{take(2, 2, 1), take(3, 3, 1)} {
		if got, err := kv.Take(t.Context(), lane, ghost); err == nil || left() != before {
			t.Errorf("call %d, after call 3: %+v %v, %s for %s", ghost.Number, got, err, left(), before)
		}
	}
	if got, err := kv.Take(t.Context(), lane, take(4, 3, 1)); err != nil || got.Outcome != weirkv.TakeEarlier || got.Number != 3 || !got.New || left() != before {
		t.Errorf("a repeat of what was carried out: %+v %v", got, err)
	}
	// refused: the later call is noted, too
	if got, err := kv.Take(t.Context(), lane, take(6, 5, 0)); err != nil || got.Outcome != weirkv.TakeRefused {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := kv.Take(t.Context(), lane, take(5, 5, 1)); err == nil || left() != before {
		t.Errorf("call 5, after call 6: %+v %v", got, err)
	}
}

// TestMySQLClockUnderLock: the procedure reads the clock once the row is locked, so that a bucket refills while a call
// waits for another one.
func TestMySQLClockUnderLock(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	db := admin(t, server)
	migrate(t, db)
	kv := weirmysql.NewKV(db)
	defer kv.Close()
	const lane = "test/1"
	if err := kv.MakeLane(t.Context(), lane); err != nil {
		t.Fatal(err)
	}
	take := bucketTake(1, 1, 1)
	if _, err := kv.Take(t.Context(), lane, take); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT 1 FROM weir_states WHERE id = 'k' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	got := make(chan weirkv.Taken, 1)
	go func() {
		take := bucketTake(2, 2, 1)
		take.HasRoom = true
		taken, err := kv.Take(t.Context(), lane, take)
		if err != nil {
			t.Error(err)
		}
		got <- taken
	}()
	servers.Poll(t, "a call that waits for the row", func() bool {
		return count(t, db, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT state INTO%' AND time_ms > 20") == 1
	})
	released, err := kv.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if g := <-got; g.Outcome != weirkv.TakeCharged || g.Now < released.UnixMicro() {
		t.Errorf("%+v, the row was released at %d", g, released.UnixMicro())
	}
}

// bucketTake is a call for takes from a key k.
func bucketTake(number, since int64, takes byte) *weirkv.Take {
	return &weirkv.Take{Key: "k", Limit: []byte{0, 1, 'l'}, Fresh: []byte{0, 1, 'l', 'r'}, TicksPerUnit: 1, Full: 10 << 40, Passes: 10 << 40, Reach: 1 << 60,
		Runs: []byte{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, takes}, Number: number, Since: since, Skew: 1, Expires: math.MaxInt64, Least: 1e9}
}
