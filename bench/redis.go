package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/lease"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// Subjects of redis. The trivial script is the least work for any limiter on Redis: read one key,
// and write it.
const (
	subjectShared  = "weir, exact"
	subjectRate    = "go-redis/redis_rate"
	subjectTrivial = "rueidis, a script that reads and writes"
)

const (
	redisCallers = 64
	redisKeys    = 10_000
	// how many times longer a round is than elsewhere, because a round trip takes a while
	redisRounds = 10
)

// A caller makes one call for a key. It reports whether the call was admitted.
type caller func(ctx context.Context, key string) (bool, error)

// redisWorld is a server with a client of each kind.
type redisWorld struct {
	server  *servers.RedisServer
	rueidis rueidis.Client
	goredis *goredis.Client
	store   *weirredis.Store
}

func openRedis() (w *redisWorld, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	w = new(redisWorld)
	if w.server, err = servers.Redis(ctx, servers.RedisOptions{}); err != nil {
		return nil, err
	}
	w.goredis = goredis.NewClient(&goredis.Options{Addr: w.server.Addr, PoolSize: redisCallers})
	if w.rueidis, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.server.Addr}, DisableCache: true}); err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.store, err = weirrueidis.New(w.rueidis, weirredis.Options{})
	return w, err
}

func (w *redisWorld) close() error {
	if w.store != nil {
		w.store.Close()
	}
	if w.rueidis != nil {
		w.rueidis.Close()
	}
	return errors.Join(w.goredis.Close(), w.server.Stop())
}

// subjects returns the subjects. All of them admit every call.
func (w *redisWorld) subjects() (names []string, calls []caller, err error) {
	shared, err := weir.NewShared(weir.TokenBucket{Rate: weir.PerSecond(1e6), Burst: 1e6}, w.store, weir.Named("bench"))
	if err != nil {
		return nil, nil, err
	}
	limiter, limit := redis_rate.NewLimiter(w.goredis), redis_rate.Limit{Rate: 1e6, Burst: 1e6, Period: time.Second}
	script := rueidis.NewLuaScript("local v = redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], ARGV[1]); return v or ''")
	return []string{subjectShared, subjectRate, subjectTrivial}, []caller{
		shared.Allow,
		func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key, limit)
			return err == nil && res.Allowed > 0, err
		},
		func(ctx context.Context, key string) (bool, error) {
			_, err := script.Exec(ctx, w.rueidis, []string{key}, []string{"0123456789abcdef"}).ToString()
			return err == nil, err
		},
	}, nil
}

// redis measures Weir's store on a server of its own, beside redis_rate and a script that does
// nothing.
func redis(r *report) error {
	w, err := openRedis()
	if err != nil {
		return err
	}
	defer w.close() //nolint:errcheck // it is stopped either way
	for _, s := range []struct {
		title         string
		callers, keys int
	}{
		{"one caller, one key", 1, 1},
		{fmt.Sprintf("%d callers, one key", redisCallers), redisCallers, 1},
		{fmt.Sprintf("%d callers, %d keys", redisCallers, redisKeys), redisCallers, redisKeys},
	} {
		if err := r.redisContest(w, s.title, s.callers, s.keys); err != nil {
			return fmt.Errorf("%s: %w", s.title, err)
		}
	}
	if err := r.redisLeased(w); err != nil {
		return fmt.Errorf("leased: %w", err)
	}
	return r.redisMemory(w)
}

// redisLeased measures a hot key with leased tokens, beside the same key without leases.
func (r *report) redisLeased(w *redisWorld) error {
	limit := weir.TokenBucket{Rate: weir.PerSecond(1e9), Burst: 1e9}
	exact, err := weir.NewShared(limit, w.store, weir.Named("hot"))
	if err != nil {
		return err
	}
	ahead, err := lease.New(w.store, lease.Options{MaxOutstanding: 1 << 24})
	if err != nil {
		return err
	}
	defer ahead.Close()
	leased, err := weir.NewShared(limit, ahead, weir.Named("leased"))
	if err != nil {
		return err
	}
	var rates [2][]float64
	for round := range r.rounds + 1 {
		for i, s := range []*weir.Shared{exact, leased} {
			rate, err := callRate(s, redisRounds*r.round)
			if err != nil {
				return err
			}
			if round > 0 {
				rates[i] = append(rates[i], rate)
			}
		}
	}
	t := table{
		Title:   fmt.Sprintf("%d callers, one key, leased", redisCallers),
		Notes:   []string{"calls/s: median of the rounds, which take turns"},
		Columns: []column{{"calls/s", 0}, {"/ exact", 1}},
	}
	for i := range rates {
		slices.Sort(rates[i])
	}
	one, other := rates[0][len(rates[0])/2], rates[1][len(rates[1])/2]
	line := row{Name: "weir, leased", Values: []float64{other, other / one}}
	line.Target, line.Missed = atLeast(other/one, 50, "exact")
	t.Rows = append(t.Rows, row{Name: subjectShared, Values: []float64{one, 1}}, line)
	r.add(t)
	return nil
}

// callRate has all callers make calls for a while, without reading the clock in between, and returns
// their rate. It is an error if no call is admitted.
func callRate(s *weir.Shared, d time.Duration) (float64, error) {
	var wg sync.WaitGroup
	var stop atomic.Bool
	var calls, admitted atomic.Int64
	failed := make([]error, redisCallers)
	begin := time.Now()
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	for c := range redisCallers {
		wg.Go(func() {
			n, yes := 0, 0
			for ctx := context.Background(); !stop.Load() && failed[c] == nil; n++ {
				ok, err := s.Allow(ctx, "k")
				if failed[c] = err; ok {
					yes++
				}
			}
			calls.Add(int64(n))
			admitted.Add(int64(yes))
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if err := cmp.Or(failed...); err != nil {
		return 0, err
	}
	if a, n := admitted.Load(), calls.Load(); a < n*9/10 {
		return 0, fmt.Errorf("of %d calls only %d were admitted", n, a)
	}
	return float64(calls.Load()) / took.Seconds(), nil
}

// redisContest measures the subjects in turn, round by round.
func (r *report) redisContest(w *redisWorld, title string, callers, keys int) error {
	names, calls, err := w.subjects()
	if err != nil {
		return err
	}
	rates, latencies, trips := make([][]float64, len(names)), make([][]time.Duration, len(names)), make([]float64, len(names))
	cpu := make([]float64, len(names))
	for round := range r.rounds + 1 {
		for i, call := range calls {
			before, err := w.work()
			if err != nil {
				return err
			}
			rate, took, err := drive(call, callers, keys, redisRounds*r.round)
			if err != nil {
				return fmt.Errorf("%s: %w", names[i], err)
			}
			if round == 0 {
				continue // only to warm up
			}
			after, err := w.work()
			if err != nil {
				return err
			}
			rates[i], latencies[i] = append(rates[i], rate), append(latencies[i], took...)
			trips[i] += (after.scripts - before.scripts) / float64(len(took)) / float64(r.rounds)
			cpu[i] += (after.cpu - before.cpu) * 1e6 / float64(len(took)) / float64(r.rounds)
		}
	}
	t := table{
		Title: title,
		Notes: []string{"calls/s: median of the rounds, which take turns; p50 and p99 of all calls; scripts: how many the server ran for each call; server us: its CPU time for each"},
		Columns: []column{
			{"calls/s", 0}, {"p50 us", 0}, {"p99 us", 0}, {"scripts", 3}, {"server us", 2}, {"/ redis_rate", 2}, {"/ trivial", 2},
		},
	}
	for i, name := range names {
		slices.Sort(latencies[i])
		slices.Sort(rates[i])
		median := func(i int) float64 { return rates[i][len(rates[i])/2] }
		p := func(q float64) float64 {
			return float64(latencies[i][int(q*float64(len(latencies[i])-1))]) / float64(time.Microsecond)
		}
		t.Rows = append(t.Rows, row{Name: name, Values: []float64{median(i), p(0.5), p(0.99), trips[i], cpu[i], median(i) / median(1), median(i) / median(2)}})
	}
	t.Rows[0].Target, t.Rows[0].Missed = redisTarget(callers, keys, t.Rows[0].Values, t.Rows[2].Values, t.Rows[1].Values)
	r.add(t)
	return nil
}

// redisTarget returns the target: with one caller a latency, with many callers ratios to the others, in calls
// and in the server's CPU time.
func redisTarget(callers, keys int, values, trivial, peer []float64) (string, bool) {
	if callers == 1 {
		return atMost(values[1]/trivial[1], 1.1, "the trivial script's p50")
	}
	rate, same := 4., 1.5
	if keys > 1 {
		rate, same = 3.5, 1
	}
	a, missedA := atLeast(values[5], rate, "redis_rate")
	b, missedB := atLeast(values[6], same, "trivial")
	c, missedC := atMost(values[4]/peer[4], 0.5, "redis_rate's CPU")
	return a + ", " + b + ", " + c, missedA || missedB || missedC
}

// drive has callers make calls for a while, and returns their rate and the latency of each call.
func drive(call caller, callers, keys int, d time.Duration) (rate float64, took []time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	ctx, begin := context.Background(), time.Now()
	for c := range callers {
		wg.Go(func() {
			var mine []time.Duration
			var failed error
			at := time.Now()
			for i := c * keys / callers; at.Sub(begin) < d && failed == nil; i++ {
				var yes bool
				if yes, failed = call(ctx, "k"+strconv.Itoa(i%keys)); failed == nil && !yes {
					failed = errors.New("it was refused")
				}
				now := time.Now()
				mine = append(mine, now.Sub(at))
				at = now
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
			err = cmp.Or(err, failed)
		})
	}
	wg.Wait()
	return float64(len(took)) / time.Since(begin).Seconds(), took, err
}

// serverWork is what the server has done so far.
type serverWork struct{ scripts, cpu float64 } // cpu in seconds

// work reads what the server has done.
func (w *redisWorld) work() (done serverWork, err error) {
	stats, err := w.server.Info(context.Background(), "commandstats")
	if err != nil {
		return done, err
	}
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var calls float64
		if _, err := fmt.Sscanf(stats[name], "calls=%f", &calls); err == nil {
			done.scripts += calls
		}
	}
	times, err := w.server.Info(context.Background(), "cpu")
	if err != nil {
		return done, err
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(times[name], 64)
		if err != nil {
			return done, fmt.Errorf("%s of the server: %w", name, err)
		}
		done.cpu += seconds
	}
	return done, nil
}

// redisMemory fills the server with keys, each used once, or as often as a log is long, and
// measures the server's memory.
func (r *report) redisMemory(w *redisWorld) error {
	const keys, log = 20_000, 10
	t := table{
		Title:   fmt.Sprintf("memory of a key, of %d with names of 16 bytes", keys),
		Notes:   []string{fmt.Sprintf("used_memory beyond that of the empty server; the logs hold %d entries", log)},
		Columns: []column{{"bytes/key", 0}, {"/ redis_rate", 2}},
	}
	type subject struct {
		name  string
		call  caller
		times int
	}
	shared := func(name string, l weir.Limit) (caller, error) {
		s, err := weir.NewShared(l, w.store, weir.Named(name))
		if err != nil {
			return nil, err
		}
		return s.Allow, nil
	}
	bucket, err := shared("b", weir.TokenBucket{Rate: weir.PerMinute(1), Burst: 1000})
	if err != nil {
		return err
	}
	limiter, limit := redis_rate.NewLimiter(w.goredis), redis_rate.Limit{Rate: 1, Burst: 1000, Period: time.Minute}
	all := []subject{
		{"weir, token bucket", bucket, 1},
		{subjectRate, func(ctx context.Context, key string) (bool, error) {
			res, err := limiter.Allow(ctx, key, limit)
			return err == nil && res.Allowed > 0, err
		}, 1},
		{"a bucket in two keys, as Spring Cloud Gateway's", w.twoKeys, 1},
		{"a log in a sorted set, as Redisson's", w.sortedLog, log},
	}
	if exact, err := shared("l", weir.SlidingLog{Limit: 1000, Window: time.Hour}); err == nil {
		all = append(all, subject{"weir, sliding log", exact, log})
	}
	var found []float64
	for _, s := range all {
		bytes, err := w.fill(s.call, keys, s.times)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		found = append(found, bytes)
	}
	for i, s := range all {
		ratio := found[i] / found[1]
		if s.times > 1 {
			ratio = math.NaN()
		}
		t.Rows = append(t.Rows, row{Name: s.name, Values: []float64{found[i], ratio}})
	}
	r.add(t)
	return nil
}

// fill uses each key a number of times, and returns the bytes per key.
func (w *redisWorld) fill(call caller, keys, times int) (float64, error) {
	ctx := context.Background()
	if _, err := w.server.Do(ctx, "FLUSHALL"); err != nil {
		return 0, err
	}
	before, err := w.memory()
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	failed := make([]error, redisCallers)
	for c := range redisCallers {
		wg.Go(func() {
			for i := c; i < keys && failed[c] == nil; i += redisCallers {
				for range times {
					if _, err := call(ctx, fmt.Sprintf("user-%011d", i)); err != nil {
						failed[c] = err
					}
				}
			}
		})
	}
	wg.Wait()
	if err := cmp.Or(failed...); err != nil {
		return 0, err
	}
	if err := w.expireNonces(ctx); err != nil {
		return 0, err
	}
	after, err := w.memory()
	return (after - before) / float64(keys), err
}

// expireNonces waits until the nonces of the calls have expired. They belong to no key.
func (w *redisWorld) expireNonces(ctx context.Context) error {
	for {
		reply, err := w.rueidis.Do(ctx, w.rueidis.B().Scan().Cursor(0).Match("*:nonce:*").Count(1_000_000).Build()).AsScanEntry()
		if err != nil || len(reply.Elements) == 0 {
			return err
		}
	}
}

func (w *redisWorld) memory() (float64, error) {
	info, err := w.server.Info(context.Background(), "memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info["used_memory"], 64)
}

// twoKeys keeps tokens and a time, in two keys that expire.
func (w *redisWorld) twoKeys(ctx context.Context, key string) (bool, error) {
	const ttl = 2000 * time.Minute
	err := w.goredis.Set(ctx, "request_rate_limiter.{"+key+"}.tokens", "999", ttl).Err()
	return err == nil, errors.Join(err, w.goredis.Set(ctx, "request_rate_limiter.{"+key+"}.timestamp", strconv.FormatInt(time.Now().Unix(), 10), ttl).Err())
}

// sortedLog adds an entry to a sorted set by its time, under a random name of 8 bytes, and keeps a
// counter beside it.
func (w *redisWorld) sortedLog(ctx context.Context, key string) (bool, error) {
	now := time.Now()
	member := fmt.Sprintf("%016x\x08%d", now.UnixNano(), 1)
	err := w.goredis.ZAdd(ctx, "{"+key+"}:permits", goredis.Z{Score: float64(now.UnixMilli()), Member: member}).Err()
	return err == nil, errors.Join(err, w.goredis.Set(ctx, "{"+key+"}:value", "990", time.Hour).Err())
}
