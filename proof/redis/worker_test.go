package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/weirredis"
	"github.com/weirflow/weir/weirrueidis"
)

// workerTask is the environment variable that makes this program a worker.
const workerTask = "WEIR_FAULTS_TASK"

// A worker writes atWork once it is connected, and then waits for begin.
const (
	atWork = "at work\n"
	begin  = "begin\n"
)

// refilled are the limits that refill during a test: a hot key, and many keys.
var refilled = map[string]weir.TokenBucket{
	"hot":  {Rate: weir.PerSecond(500), Burst: 200},
	"many": {Rate: weir.PerSecond(1), Burst: 3},
}

// faultLimits are the limits of the callers. Most never refill, so that charges can be counted; an
// All needs the script with all functions. The last two are for callers with long deadlines.
var faultLimits = map[string]weir.Limit{
	"hot": refilled["hot"], "many": refilled["many"],
	"once": slow(plenty), "once, long": weir.All(slow(plenty), slow(plenty+1)),
	"surely": slow(plenty), "surely, long": weir.All(slow(plenty), slow(plenty+1)),
}

// plenty is the largest number that takes less than 100 years to come at one a day.
const plenty = 36_000

// faultKeys is the number of keys of each limit.
var faultKeys = map[string]int{"hot": 1, "many": 10_000, "once": 64, "once, long": 64, "surely": 32, "surely, long": 32}

// hurried are the limits of most callers, and patient those of the others. A limit that is listed
// twice is used twice as often.
var (
	hurried = []string{"hot", "hot", "hot", "many", "many", "many", "once", "once, long"}
	patient = []string{"surely", "surely, long"}
)

const (
	workers  = 8
	callers  = 64 // of each worker
	patients = 8  // of these
	controls = 16 // goroutines that only wait, for comparison
	deadline = 50 * time.Millisecond
)

// A task is what a worker has to do.
type task struct {
	Seed      uint64
	Addrs     []string
	MasterSet string // with Sentinel
	Cluster   bool
	ClockKey  string
	Grace     time.Duration
	Pause     time.Duration // the average time between two calls of a caller
}

// A report is what a worker writes at its end.
type report struct {
	Calls      int64
	Refused    int64
	Repeats    int64
	Admitted   map[string]int64 // by limit/key
	Unanswered map[string]int64 // the costs of calls without a reply
	Unsure     int64            // the number of calls without a reply
	Longest    time.Duration    // of the hurried callers
	Slack      time.Duration    // by how much the longest wait of the controls exceeded the deadline
	Wrong      []string         // what should not have happened
}

// work carries out a task until standard input ends, and then writes the report.
func work[T interface{ run() (R, error) }, R any](text string) int {
	var w T
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r, err := w.run()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// begun waits for begin, and returns a function that reports whether standard input has ended, as
// it also does when the test ends.
func begun() (over *atomic.Bool, err error) {
	if _, err := io.WriteString(os.Stdout, atWork); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(os.Stdin, make([]byte, len(begin))); err != nil {
		return nil, err
	}
	over = new(atomic.Bool)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	return over, nil
}

// client opens a client of the servers of the task.
func (w task) client() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: w.Addrs, DisableCache: true, ForceSingleClient: w.MasterSet == "" && !w.Cluster,
		Sentinel: rueidis.SentinelOption{MasterSet: w.MasterSet},
	})
}

func (w task) options() weirredis.Options {
	return weirredis.Options{Cluster: w.Cluster, ClockKey: w.ClockKey, Grace: w.Grace}
}

func (w task) run() (report, error) {
	client, err := w.client()
	if err != nil {
		return report{}, err
	}
	counted := &repeats{Evaler: weirrueidis.Evaler(client), failed: map[string]bool{}}
	store, err := weirredis.New(counted, w.options())
	if err != nil {
		return report{}, err
	}
	shared, err := faultShared(store)
	if err != nil {
		return report{}, err
	}
	over, err := begun()
	if err != nil {
		return report{}, err
	}
	var wg sync.WaitGroup
	all := make([]report, callers)
	for i := range callers {
		wg.Go(func() { all[i] = w.call(shared, i, over) })
	}
	slack := make([]time.Duration, controls)
	for i := range controls {
		wg.Go(func() { slack[i] = control(over) })
	}
	wg.Wait()
	r := report{Admitted: map[string]int64{}, Unanswered: map[string]int64{}}
	for _, one := range all {
		r.add(one)
	}
	for _, s := range slack {
		r.Slack = max(r.Slack, s)
	}
	r.Repeats = counted.n
	store.Close()
	client.Close()
	if left := lingering("weir/weirredis.", patience); left != "" {
		r.Wrong = append(r.Wrong, "a goroutine is left:\n"+left)
	}
	return r, nil
}

func faultShared(store weir.Store) (map[string]*weir.Shared, error) {
	shared := map[string]*weir.Shared{}
	for name, l := range faultLimits {
		s, err := weir.NewShared(l, store, weir.Named(name))
		if err != nil {
			return nil, err
		}
		shared[name] = s
	}
	return shared, nil
}

// faultKey returns the key with a number.
func faultKey(n int) string { return fmt.Sprint("k", n) }

// call makes the calls of one caller until the end.
func (w task) call(shared map[string]*weir.Shared, caller int, over *atomic.Bool) report {
	rnd := rand.New(rand.NewPCG(w.Seed, uint64(caller)))
	names, within := hurried, deadline
	if caller < patients {
		names, within = patient, patience
	}
	r := report{Admitted: map[string]int64{}, Unanswered: map[string]int64{}}
	pace := time.NewTimer(0)
	defer pace.Stop()
	for <-pace.C; !over.Load(); <-pace.C {
		pace.Reset(time.Duration(rnd.Int64N(int64(2*w.Pause) + 1)))
		name := names[rnd.IntN(len(names))]
		key := faultKey(rnd.IntN(faultKeys[name]))
		cost := int64(1)
		if name != "hot" {
			cost += rnd.Int64N(3)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), within)
		d, err := shared[name].Take(ctx, key, cost)
		cancel()
		if within == deadline {
			r.Longest = max(r.Longest, time.Since(began))
		}
		r.Calls++
		switch at := name + "/" + key; {
		case errors.Is(err, weirredis.ErrCharge):
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: %v", at, err))
		case err != nil:
			r.Unsure++
			r.Unanswered[at] += cost
			if within != deadline {
				r.Wrong = append(r.Wrong, fmt.Sprintf("%s: not answered in %v: %v", at, within, err))
			}
		case d.Allowed:
			r.Admitted[at] += cost
		default:
			r.Refused++
			if d.Limit == plenty {
				r.Wrong = append(r.Wrong, fmt.Sprintf("%s is refused: %+v", at, d))
			}
		}
	}
	return r
}

func (r *report) add(one report) {
	r.Calls += one.Calls
	r.Refused += one.Refused
	r.Repeats += one.Repeats
	r.Unsure += one.Unsure
	r.Longest, r.Slack = max(r.Longest, one.Longest), max(r.Slack, one.Slack)
	r.Wrong = append(r.Wrong, one.Wrong...)
	for k, v := range one.Admitted {
		r.Admitted[k] += v
	}
	for k, v := range one.Unanswered {
		r.Unanswered[k] += v
	}
}

// control waits as long as callers do, for nothing, and returns by how much the longest wait was
// too long: the machine's own delay.
func control(over *atomic.Bool) (slack time.Duration) {
	for !over.Load() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		<-ctx.Done()
		cancel()
		slack = max(slack, time.Since(began)-deadline)
	}
	return slack
}

// repeats counts the calls that were sent before, without a reply.
type repeats struct {
	weirredis.Evaler
	mu     sync.Mutex
	failed map[string]bool // by nonce
	n      int64
}

func (r *repeats) before(calls ...weirredis.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range calls {
		if r.failed[c.Keys[0]] {
			r.n++
		}
	}
}

func (r *repeats) after(c weirredis.Call, err error) {
	_, said := rueidis.IsRedisErr(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failed, c.Keys[0])
	if err != nil && !said && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		r.failed[c.Keys[0]] = true
	}
}

func (r *repeats) Eval(ctx context.Context, c weirredis.Call) (string, error) {
	r.before(c)
	text, err := r.Evaler.Eval(ctx, c)
	r.after(c, err)
	return text, err
}

func (r *repeats) EvalAll(ctx context.Context, calls []weirredis.Call, replies []weirredis.Reply) {
	r.before(calls...)
	r.Evaler.EvalAll(ctx, calls, replies)
	for i, c := range calls {
		r.after(c, replies[i].Err)
	}
}

// lingering waits until no goroutine is in a package, and returns those that are still there after
// some time.
func lingering(where string, within time.Duration) (left string) {
	end := time.Now().Add(within)
	for {
		buf := make([]byte, 1<<20)
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(g, where) {
				left += g + "\n\n"
			}
		}
		if left == "" || time.Now().After(end) {
			return left
		}
		runtime.Gosched()
	}
}
