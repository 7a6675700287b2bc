// Package load starts processes that charge one store at the same time, and counts what they were granted, so
// that a test can compare that with what the store has charged while servers are killed and replaced.
package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/policy"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/server/stores"
	"github.com/weirflow/weir/server/stores/product"
)

// A Task is what each process does: its callers charge 1 to keys at random, one call after the other.
type Task struct {
	URL      string
	Keys     int           // default: 1
	Callers  int           // of one process. default: 4
	Burst    int64         // of each key, which gets nothing back during a test. default: so much that nothing is refused
	Bucket   bool          // the limit is a TokenBucket, with at most 1,800,000 as Burst, and a token every 10 minutes
	Deadline time.Duration // of a call. default: servers.Patience, for callers that wait
	Calls    int           // of each caller, who then ends. default: until the end of the test

	Process int // its number
}

// mostBucket is the largest bucket that the shortest way of every store takes.
const mostBucket = 1_800_000

// variable is the environment variable that makes a test program a process with a task.
const variable = "WEIR_LOAD_TASK"

// What a process reports, as one byte for each call.
const (
	admitted = 'a'
	refused  = 'r'
	failed   = 'f'
)

func (w Task) withDefaults() Task {
	if w.Keys == 0 {
		w.Keys = 1
	}
	if w.Callers == 0 {
		w.Callers = 4
	}
	if w.Burst == 0 {
		w.Burst = 1 << 40
		if w.Bucket {
			w.Burst = mostBucket
		}
	}
	if w.Deadline == 0 {
		w.Deadline = servers.Patience
	}
	return w
}

func (w Task) open(deadline time.Duration) (product.Store, error) {
	return stores.Open(policy.Store{URL: w.URL, Deadline: deadline, Prefix: "load:"}, func(string, string) string { return "load" })
}

func (w Task) charge(key int) weir.Charge {
	// No time gives anything back, so that what is charged can be read at the end.
	var limit weir.Limit = weir.FixedWindow{Limit: w.Burst, Window: 10_000 * time.Hour, Align: weir.AlignFirst}
	if w.Bucket {
		limit = weir.TokenBucket{Rate: weir.PerHour(6), Burst: w.Burst}
	}
	return weir.Charge{Name: "load", Key: strconv.Itoa(key), Limit: limit, Cost: 1}
}

// Main runs the task of this process, if it has one, or else the tests. It belongs into TestMain.
func Main(tests func() int) {
	text := os.Getenv(variable)
	if text == "" {
		os.Exit(tests())
	}
	var w Task
	err := json.Unmarshal([]byte(text), &w)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a process with a load:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run carries out the task until standard input ends.
func (w Task) run() error {
	s, err := w.open(w.Deadline)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		stop()
	}()
	var callers sync.WaitGroup
	for c := range w.Callers {
		random := rand.New(rand.NewPCG(seeds.Seed(), uint64(w.Process*1000+c)))
		callers.Go(func() {
			for n := 0; ctx.Err() == nil && (w.Calls == 0 || n < w.Calls); n++ {
				_, _ = os.Stdout.Write([]byte{w.call(s, random.IntN(w.Keys))}) // after the end of the test nobody reads
			}
		})
	}
	callers.Wait()
	return s.Close()
}

// call makes one call. A caller waits for it although the test ends, so that its outcome is known.
func (w Task) call(s weir.Store, key int) byte {
	ctx, cancel := context.WithTimeout(context.Background(), w.Deadline)
	defer cancel()
	out := make([]weir.Decision, 1)
	switch err := s.Do(ctx, []weir.Charge{w.charge(key)}, out); {
	case err != nil:
		<-time.After(time.Millisecond) // a server that is down is not asked without end
		return failed
	case out[0].Allowed:
		return admitted
	}
	return refused
}

// A Fleet is processes with a task. It is safe for concurrent use.
type Fleet struct {
	task      Task
	processes []*process

	admitted, refused, failed atomic.Int64
	unknown                   int64 // calls that were in flight when their process was killed
}

type process struct {
	cmd   *exec.Cmd
	in    io.Closer
	ended chan struct{}
	err   error // set before ended is closed
}

// Start starts so many processes, which end with the test.
func Start(t testing.TB, n int, w Task) *Fleet {
	t.Helper()
	f := &Fleet{task: w.withDefaults()}
	for range n {
		f.Add(t)
	}
	t.Cleanup(func() {
		for _, p := range f.processes {
			_ = p.cmd.Process.Kill() // it has mostly ended
			<-p.ended
		}
	})
	return f
}

// Add starts one more process.
func (f *Fleet) Add(t testing.TB) {
	t.Helper()
	w := f.task
	w.Process = len(f.processes)
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), variable+"="+string(text)), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, in: in, ended: make(chan struct{})}
	f.processes = append(f.processes, p)
	go func() {
		f.count(out)
		p.err = cmd.Wait()
		close(p.ended)
	}()
}

// count reads what a process reports, also what it had written when it was killed.
func (f *Fleet) count(from io.Reader) {
	for r := bufio.NewReader(from); ; {
		switch b, err := r.ReadByte(); {
		case err != nil:
			return
		case b == admitted:
			f.admitted.Add(1)
		case b == refused:
			f.refused.Add(1)
		default:
			f.failed.Add(1)
		}
	}
}

// Admitted returns how many calls were admitted so far, as far as they have been reported.
func (f *Fleet) Admitted() int64 { return f.admitted.Load() }

// Refused returns how many calls were refused so far.
func (f *Fleet) Refused() int64 { return f.refused.Load() }

// Unknown returns how many calls ended without a decision, or were in flight when their process was killed.
func (f *Fleet) Unknown() int64 { return f.failed.Load() + f.unknown }

// More waits until so many more calls were admitted.
func (f *Fleet) More(t testing.TB, n int64) {
	t.Helper()
	before := f.Admitted()
	servers.Poll(t, fmt.Sprintf("%d more calls admitted", n), func() bool { return f.Admitted() >= before+n })
}

// Kill kills a process by SIGKILL, and waits for its end.
func (f *Fleet) Kill(i int) {
	p := f.processes[i]
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	f.unknown += int64(f.task.Callers)
}

// Stop ends all processes after the calls that are in flight.
func (f *Fleet) Stop(t testing.TB) {
	t.Helper()
	for _, p := range f.processes {
		_ = p.in.Close() // it may have been killed
	}
	f.Wait(t)
}

// Wait waits until all processes have ended.
func (f *Fleet) Wait(t testing.TB) {
	t.Helper()
	for i, p := range f.processes {
		select {
		case <-p.ended:
		case <-time.After(2 * servers.Patience):
			t.Fatalf("process %d does not end", i)
		}
		if killed := (*exec.ExitError)(nil); p.err != nil && (!errors.As(p.err, &killed) || killed.Exited()) {
			t.Errorf("process %d: %v", i, p.err)
		}
	}
}

// Charged returns what the store at a URL has charged for all keys.
func (f *Fleet) Charged(t testing.TB, url string) (sum int64) {
	t.Helper()
	w := f.task
	w.URL = url
	s, err := w.open(servers.Patience)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it is only read
	const together = 100
	for first := 0; first < w.Keys; first += together {
		var batch []weir.Charge
		for key := first; key < min(first+together, w.Keys); key++ {
			c := w.charge(key)
			c.Op, c.Cost = weir.OpPeek, 0
			batch = append(batch, c)
		}
		out := make([]weir.Decision, len(batch))
		servers.Poll(t, "the store can be read", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), servers.Patience)
			defer cancel()
			err = s.Do(ctx, batch, out)
			return err == nil
		})
		for _, d := range out {
			sum += w.Burst - d.Remaining
		}
	}
	return sum
}
