package redis

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// clockAt sets the clock of a store with ClockKey "clock".
func clockAt(t *testing.T, client rueidis.Client, at time.Duration) {
	t.Helper()
	us := at.Microseconds()
	redis(t, client, "HSET", "clock", "s", strconv.FormatInt(us/1e6, 10), "us", strconv.FormatInt(us%1e6, 10))
}

// fleetOver10ms plays nodes with versions of one limit, which all call equally often, in steps of
// 10 ms. It returns the admitted calls of each.
func fleetOver10ms(t *testing.T, client rueidis.Client, prefix string, steps, callsPerStep int, versions ...weir.Limit) (admitted []int) {
	t.Helper()
	store := open(t, client, weirredis.Options{Prefix: prefix, ClockKey: "clock", Timeout: patience})
	admitted = make([]int, len(versions))
	turn := 0
	for step := range steps {
		clockAt(t, client, 1_700_000_000*time.Second+time.Duration(step)*10*time.Millisecond)
		batch := make([]weir.Charge, callsPerStep)
		for i := range batch {
			batch[i] = weir.Charge{Name: "api", Key: "a", Limit: versions[turn%len(versions)], Cost: 1}
			turn++
		}
		out := make([]weir.Decision, len(batch))
		if err := store.Do(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		for i, d := range out {
			if d.Allowed {
				admitted[(turn-len(batch)+i)%len(versions)]++
			}
		}
	}
	return admitted
}

// TestTwoVersionsAtOnce has fleets that were once admitted far too much, or starved, while nodes
// with two or three versions of a limit used one key. most is the sum of each version's own bound
// in that time.
func TestTwoVersionsAtOnce(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	perHour := weir.FixedWindow{Limit: 1000, Window: time.Hour}
	perMinute := weir.SlidingLog{Limit: 100, Window: time.Minute}
	for i, c := range []struct {
		name        string
		versions    []weir.Limit
		seconds     int
		least, most int
	}{
		{"36,027 in 12 s", []weir.Limit{perHour, perMinute}, 12, 100, 1000 + 100},
		{"the other one first", []weir.Limit{perMinute, perHour}, 12, 100, 1000 + 100},
		{"windows of two lengths: 2,100 in 10 s", []weir.Limit{
			weir.FixedWindow{Limit: 30, Window: time.Second}, weir.FixedWindow{Limit: 600, Window: time.Minute},
		}, 10, 285, 330 + 600},
		{"304 of 3,000 in 10 s", []weir.Limit{
			weir.TokenBucket{Rate: weir.PerSecond(300), Burst: 300}, weir.SlidingCounter{Limit: 300, Window: time.Second},
		}, 10, 2850, 2 * 3300},
		{"three versions", []weir.Limit{perHour, perMinute, weir.SlidingCounter{Limit: 50, Window: 10 * time.Second}}, 12, 50, 1000 + 100 + 110},
		{"three versions, other order", []weir.Limit{perMinute, weir.SlidingCounter{Limit: 50, Window: 10 * time.Second}, perHour}, 12, 50, 1000 + 100 + 110},
		{"rates of one bucket", []weir.Limit{
			weir.TokenBucket{Rate: weir.PerSecond(30), Burst: 30}, weir.TokenBucket{Rate: weir.PerSecond(100), Burst: 100},
		}, 10, 300, 100 + 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			admitted := fleetOver10ms(t, client, fmt.Sprintf("v%d:", i), c.seconds*100, 20, c.versions...)
			sum := 0
			for _, n := range admitted {
				sum += n
			}
			t.Logf("%d admitted, of each version %v", sum, admitted)
			if sum > c.most || sum < c.least {
				t.Errorf("%d admitted: from %d to %d may be", sum, c.least, c.most)
			}
		})
	}
}

// TestTwoVersionsInOneRoundTrip: after a node has met another version once, its calls take one
// round trip again. When that version is gone, the key is as long as before, and the short script
// decides.
func TestTwoVersionsInOneRoundTrip(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := connect(t, server.Addr)
	bucket := weir.Charge{Name: "api", Key: "a", Limit: weir.TokenBucket{Rate: weir.PerSecond(10), Burst: 10}, Cost: 1}
	log := weir.Charge{Name: "api", Key: "a", Limit: weir.SlidingLog{Limit: 10, Window: time.Second}, Cost: 1}
	dates := weir.Charge{Name: "api", Key: "b", Limit: weir.FixedWindow{Limit: 100, Align: "day:Europe/Berlin"}, Cost: 1}
	minutes := weir.Charge{Name: "api", Key: "b", Limit: weir.FixedWindow{Limit: 100, Window: time.Minute}, Cost: 1}
	clockAt(t, client, 1_700_000_000*time.Second)
	// Two nodes: neither knows the other's limit.
	nodes := []*weirredis.Store{
		open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience}),
		open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience}),
	}
	call := func(node int, c weir.Charge) int {
		before := commands(t, server)
		do(t, nodes[node], c)
		after := commands(t, server)
		return after["evalsha"] + after["eval"] - before["evalsha"] - before["eval"]
	}
	call(0, bucket)
	alone := redis(t, client, "STRLEN", "weir:{a}:api")
	call(1, log)
	call(0, bucket)
	if a, b := call(0, bucket), call(1, log); a != 1 || b != 1 {
		t.Errorf("%d and %d round trips", a, b)
	}
	call(0, dates)
	call(1, minutes)
	call(0, dates)
	if a, b := call(0, dates), call(1, minutes); a != 1 || b != 1 {
		t.Errorf("%d and %d round trips beside a calendar", a, b)
	}
	clockAt(t, client, 1_700_000_002*time.Second) // the tokens that the log admitted have come back
	call(0, bucket)
	if length := redis(t, client, "STRLEN", "weir:{a}:api"); length != alone {
		t.Errorf("the state has %v bytes, and had %v before there was another version", length, alone)
	}
	fresh := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	do(t, fresh, weir.Charge{Name: "other", Key: "c", Limit: bucket.Limit, Cost: 1}) // to learn the clock
	before := commands(t, server)
	do(t, fresh, bucket)
	if after := commands(t, server); after["evalsha"]-before["evalsha"] != 1 {
		t.Errorf("the short script leaves a key with one version to another one")
	}
}

// TestReceiptsAcrossVersions: a refund of one version's caller is given back to both versions.
func TestReceiptsAcrossVersions(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	clockAt(t, client, 1_700_000_000*time.Second)
	old := weir.Charge{Name: "api", Key: "a", Limit: weir.FixedWindow{Limit: 100, Window: time.Hour}, Cost: 1}
	next := weir.Charge{Name: "api", Key: "a", Limit: weir.SlidingLog{Limit: 60, Window: time.Minute}, Cost: 1}
	do(t, store, old)
	do(t, store, next)
	estimate := old
	estimate.Cost, estimate.Keep = 50, true
	made := do(t, store, estimate)
	left := func(c weir.Charge) int64 {
		c.Op = weir.OpPeek
		return do(t, store, c).decision.Remaining
	}
	if a, b := left(old), left(next); !made.decision.Allowed || a != 48 || b != 8 {
		t.Fatalf("%d and %d are left: %+v", a, b, made.decision)
	}
	settle := estimate
	settle.Op, settle.Cost, settle.Receipt = weir.OpSettle, 10, made.Receipt
	do(t, store, settle)
	if a, b := left(old), left(next); a != 88 || b != 48 {
		t.Errorf("40 of 50 given back: %d and %d are left, want 88 and 48", a, b)
	}
	// The log is filled up to twice its limit, and gets no more back than that.
	estimate.Cost = 85
	made = do(t, store, estimate)
	settle.Cost, settle.Receipt = 0, made.Receipt
	do(t, store, settle)
	if a, b := left(old), left(next); !made.decision.Allowed || a != 88 || b != 48 {
		t.Errorf("all given back: %d and %d are left, want 88 and 48", a, b)
	}
}

// TestGroupsAcrossVersions: a refused group leaves both versions of each key unchanged.
func TestGroupsAcrossVersions(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience, Tag: func(string, string) string { return "t" }})
	clockAt(t, client, 1_700_000_000*time.Second)
	old := weir.Charge{Name: "api", Key: "a", Limit: weir.FixedWindow{Limit: 9, Window: time.Hour}, Cost: 1}
	next := weir.Charge{Name: "api", Key: "a", Limit: weir.SlidingLog{Limit: 6, Window: time.Minute}, Cost: 1}
	full := weir.Charge{Name: "other", Key: "a", Limit: slow(1), Cost: 1}
	do(t, store, old)
	do(t, store, next)
	do(t, store, full)
	group := []weir.Charge{old, next, full}
	for i := range group {
		group[i].Group = 1
	}
	out := make([]weir.Decision, len(group))
	if err := store.Do(t.Context(), group, out); err != nil || !out[0].Allowed || !out[1].Allowed || out[2].Allowed {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, c := range []struct {
		weir.Charge
		left int64
	}{{old, 7}, {next, 4}} {
		c.Op = weir.OpPeek
		if d := do(t, store, c.Charge).decision; d.Remaining != c.left {
			t.Errorf("%d of %+v are left, want %d", d.Remaining, c.Limit, c.left)
		}
	}
	group[2].Limit = slow(2)
	if err := store.Do(t.Context(), group, out); err != nil || !out[2].Allowed {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, c := range []struct {
		weir.Charge
		left int64
	}{{old, 5}, {next, 2}} {
		c.Op = weir.OpPeek
		if d := do(t, store, c.Charge).decision; d.Remaining != c.left {
			t.Errorf("%d of %+v are left after a group, want %d", d.Remaining, c.Limit, c.left)
		}
	}
}

// TestTakeSomeAcrossVersions: the part of a cost that one version has room for counts for both.
func TestTakeSomeAcrossVersions(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	store := open(t, client, weirredis.Options{ClockKey: "clock", Timeout: patience})
	clockAt(t, client, 1_700_000_000*time.Second)
	old := weir.Charge{Name: "api", Key: "a", Limit: weir.FixedWindow{Limit: 100, Window: time.Hour}, Cost: 1}
	next := weir.Charge{Name: "api", Key: "a", Limit: weir.SlidingLog{Limit: 60, Window: time.Minute}, Cost: 200, Op: weir.OpTakeSome}
	do(t, store, old)
	some := do(t, store, next)
	old.Op, old.Cost = weir.OpTakeSome, 200
	more := do(t, store, old)
	if some.Taken != 59 || more.Taken != 40 {
		t.Errorf("%d and %d are taken, want 59 and 40", some.Taken, more.Taken)
	}
	for _, c := range []weir.Charge{some.Charge, more.Charge} {
		c.Op, c.Cost = weir.OpSettle, 0
		do(t, store, c)
	}
	old.Op, next.Op, old.Cost, next.Cost = weir.OpPeek, weir.OpPeek, 1, 1
	if a, b := do(t, store, old).decision.Remaining, do(t, store, next).decision.Remaining; a != 99 || b != 59 {
		t.Errorf("%d and %d are left after all was given back, want 99 and 59", a, b)
	}
}

// TestNamedDefinitionsReplaceEachOther: a new definition of a named limit is in force at once, also
// after many in a short time. An earlier definition that comes back knows what was used meanwhile.
func TestNamedDefinitionsReplaceEachOther(t *testing.T) {
	client := connect(t, servers.StartRedis(t, servers.RedisOptions{}).Addr)
	n := named(t, weirrueidis.Evaler(client), still(t, client, namedEpoch))
	define := func(l weir.Limit) {
		t.Helper()
		if _, err := n.Init(t.Context(), "api", l, weirredis.Overall); err != nil {
			t.Fatal(err)
		}
	}
	used := func(want int64) {
		t.Helper()
		all, err := n.Inspect(t.Context(), "api", "")
		if err != nil || fmt.Sprint(all.Used) != fmt.Sprint(want) {
			t.Errorf("%+v, %v: want %d used", all, err, want)
		}
	}
	hour := weir.FixedWindow{Limit: 10, Window: time.Hour}
	define(hour)
	takes(t, n, "api", "", 7, 3, true, 0)
	define(weir.SlidingLog{Limit: 6, Window: time.Minute})
	used(6)
	takes(t, n, "api", "", 1, 0, false, time.Minute)
	define(hour)
	used(7)
	takes(t, n, "api", "", 1, 2, true, 0)
	define(weir.SlidingCounter{Limit: 20, Window: 10 * time.Second})
	used(7)
	takes(t, n, "api", "", 1, 12, true, 0)
	define(hour)
	takes(t, n, "api", "", 1, 0, true, 0)
	takes(t, n, "api", "", 1, 0, false, 46*time.Minute+40*time.Second)
}
