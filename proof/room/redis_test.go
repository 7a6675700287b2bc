package room

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/room"
	"github.com/weirflow/weir/server/stores/redis"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

func plainSpec() room.Spec {
	return room.Spec{
		Bucket: weir.TokenBucket{Rate: weir.PerDay(1), Burst: 1}, Idle: time.Hour, Session: time.Hour, EnterWithin: time.Hour, PollTimeout: time.Hour, MaxWaiting: 1 << 20,
	}
}

// openQueue returns a queue at a URL, on a client of its own.
func openQueue(t *testing.T, url string, spec room.Spec) *redis.Queue {
	t.Helper()
	s, err := weirrueidis.Open(url, weirredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	line, err := redis.NewQueue(s.Evaler(), spec, redis.QueueOptions{Name: "sale", Deadline: servers.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := line.Close(); err != nil {
			t.Error(err)
		}
		if _, err := line.Poll(context.Background(), room.Poll{ID: "late"}); err == nil {
			t.Error("a line that is closed answers")
		}
		s.Close()
	})
	return line
}

func ask(t *testing.T, line room.Queue, q room.Poll) room.Standing {
	t.Helper()
	a, err := line.Poll(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// some has visitors join, enter and leave.
func some(t *testing.T, line room.Queue) {
	t.Helper()
	if a := ask(t, line, room.Poll{ID: "first", Join: true, Enter: true}); a.State != room.Inside || !a.Entered {
		t.Errorf("%+v", a)
	}
	for i := range int64(3) {
		if a := ask(t, line, room.Poll{ID: fmt.Sprint(i), Join: true}); a.State != room.Waiting || a.Ahead != i {
			t.Errorf("%+v", a)
		}
	}
}

// TestQueueWithFewRights: a Redis user with the rights in docs/stores.md can keep a queue, and all
// keys of the queue expire.
func TestQueueWithFewRights(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{Config: []string{
		"user weir on >s3cret ~weir:* resetchannels -@all +@read +@write +@scripting -@dangerous +time +ping +select +client|setname",
	}})
	line := openQueue(t, "redis://weir:s3cret@"+s.Addr, plainSpec())
	some(t, line)
	keys, err := s.Do(t.Context(), "KEYS", "*")
	if err != nil || len(keys.([]any)) != 5 {
		t.Fatalf("%v, %v", keys, err)
	}
	for _, key := range keys.([]any) {
		ttl, err := s.Do(t.Context(), "TTL", key.(string))
		if err != nil || ttl.(int64) < 3600 || ttl.(int64) > 3*3600 || !strings.HasPrefix(key.(string), "weir:{room/sale}:") {
			t.Errorf("%v: %v s, %v", key, ttl, err)
		}
	}
	if _, err := s.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil { // a server that was restarted has no scripts
		t.Fatal(err)
	}
	if a := ask(t, line, room.Poll{ID: "2"}); a.Ahead != 2 {
		t.Errorf("%+v", a)
	}
	// Keys of another type are an error.
	if _, err := s.Do(t.Context(), "SET", "weir:{room/sale}:line", "x"); err != nil {
		t.Fatal(err)
	}
	if a, err := line.Poll(t.Context(), room.Poll{ID: "2"}); err == nil {
		t.Errorf("%+v", a)
	}
}

// TestPauseInRedis: while a room is paused nobody is admitted, and a pause that ends gives nothing for its time. Gateways that have
// not been told yet admit nobody for the time before they were, either.
func TestPauseInRedis(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	client := dial(t, s.Addr)
	at := int64(1_790_000_000_000_000)
	queue := func(paused bool) *redis.Queue {
		spec := plainSpec()
		spec.Bucket, spec.Paused = weir.TokenBucket{Rate: weir.PerSecond(1), Burst: 1}, paused
		line, err := redis.NewQueue(weirrueidis.Evaler(client), spec, redis.QueueOptions{Name: "sale", ClockKey: "clock", Deadline: servers.Patience})
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	poll := func(paused bool, later time.Duration, q room.Poll) room.Standing {
		at += later.Microseconds()
		client.Do(t.Context(), client.B().Hset().Key("clock").FieldValue().FieldValue("s", fmt.Sprint(at/sec)).FieldValue("us", fmt.Sprint(at%sec)).Build())
		return ask(t, queue(paused), q)
	}
	for i := range int64(40) {
		if a := poll(true, 0, room.Poll{ID: fmt.Sprint(i), Join: true}); a.State != room.Waiting || a.Ahead != i {
			t.Fatalf("%+v", a)
		}
	}
	if a := poll(true, 20*time.Second, room.Poll{ID: "39"}); a.Ahead != 39 || a.Inside != 0 {
		t.Errorf("in the pause: %+v", a)
	}
	if a := poll(false, 20*time.Second, room.Poll{ID: "39"}); a.Ahead != 38 || a.Inside != 1 {
		t.Errorf("at the end of the pause: %+v", a)
	}
	if a := poll(false, 5*time.Second, room.Poll{ID: "39"}); a.Ahead != 33 || a.Inside != 6 {
		t.Errorf("after it: %+v", a)
	}
	if a := poll(true, 5*time.Second, room.Poll{ID: "39"}); a.Inside != 6 {
		t.Errorf("paused again: %+v", a)
	}
}

// TestQueueInAHaltedRedis: a poll waits until a Redis goes on that has stood still for longer than its client
// keeps a connection without a reply. The visitor gets the place that the first attempt would have given.
func TestQueueInAHaltedRedis(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	line := openQueue(t, s.URL(), plainSpec())
	some(t, line)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	type result struct {
		room.Standing
		error
	}
	joined := make(chan result, 1)
	go func() {
		a, err := line.Poll(t.Context(), room.Poll{ID: "late", Join: true})
		joined <- result{a, err}
	}()
	select { // a client that pings its connections ends them after a second
	case a := <-joined:
		t.Errorf("while Redis stands still: %+v", a)
	case <-time.After(2500 * time.Millisecond):
	}
	s.Resume()
	if a := <-joined; a.error != nil || a.State != room.Waiting || a.Ahead != 3 {
		t.Errorf("after Redis stood still: %+v", a)
	}
}

// TestQueueOnACluster: all keys of a room are in one slot.
func TestQueueOnACluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*servers.Patience)
	defer cancel()
	c, err := servers.Cluster(ctx, servers.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	some(t, openQueue(t, "redis+cluster://"+strings.Join(c.Addrs(), ","), plainSpec()))
}

// TestRateChanges: admitted visitors stay counted when the rate changes, in Redis as in memory, and
// a gateway with the old rate can still poll.
func TestRateChanges(t *testing.T) {
	s := servers.StartRedis(t, servers.RedisOptions{})
	slow, fast := plainSpec(), plainSpec()
	slow.Bucket.Burst, fast.Bucket = 4, weir.TokenBucket{Rate: weir.PerDay(2), Burst: 6}
	before, after := openQueue(t, s.URL(), slow), openQueue(t, s.URL(), fast)
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
