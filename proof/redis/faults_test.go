package redis

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirflow/weir/internal/seeds"
	"github.com/weirflow/weir/proof/servers"
	"github.com/weirflow/weir/weirrueidis"
)

// A site is the servers of a row's limits, and the fault that they suffer.
type site struct {
	task  task
	fault func(ctx context.Context) error // until the context ends; then all servers work again

	// clock returns the lowest and highest reading of the deciding clock since its first call.
	clock func(ctx context.Context) (lowest, highest time.Time, err error)

	settle  func(ctx context.Context) // counts, at the end, the losses that happened by themselves; nil if there can be none
	losses  int                       // how often the state was lost
	beside  time.Duration             // for how long two servers took themselves for the master
	repeats bool                      // replies are lost, so calls are repeated
}

// rows is the table: the faults, and the sites that have them.
var rows = []struct {
	name string
	open func(t *testing.T) *site
}{
	{"nothing", untouched},
	{"stopped and resumed", paused},
	{"killed, restarted with its data", killed},
	{"killed, restarted without", wiped},
	{"scripts flushed", flushed},
	{"failed over by Sentinel", failedOver},
	{"resharded as a Cluster", resharded},
	{"replies cut and delayed", cut},
	{"clock stepped", stepped},
}

// TestFaults: never over, and exactly once. Eight processes of 64 callers each take from a hot key,
// from 10,000 keys and from some limits that never refill, each call with a deadline, while the
// store has faults.
func TestFaults(t *testing.T) {
	table := []string{
		"| what is done | calls | admitted, hot key | bound | refused | not answered | repeats | longest call | on its own | admitted | charged | admitted, patient | charged |",
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			table = append(table, "| "+row.name+" | "+row.open(t).run(t)+" |")
		})
	}
	t.Logf("%d processes of %d callers, %d of them patient, for %v each; deadline %v\n\n%s\n", workers, callers, patients, *faultsFor, deadline, strings.Join(table, "\n"))
}

// run has the workers work during the fault, and compares their reports with the server.
func (s *site) run(t *testing.T) string {
	ctx, cancel := context.WithTimeout(t.Context(), *faultsFor+4*patience)
	defer cancel()
	all := s.crew(ctx, t)
	if t.Failed() {
		t.FailNow()
	}
	lowest, highest, err := s.clock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	total := report{Admitted: map[string]int64{}, Unanswered: map[string]int64{}}
	for i, r := range all {
		total.add(r)
		// A call that hangs, for a connection, for a server or forever, hangs for seconds. The
		// machine's own delay of a wait is measured; a call may take a few of these: for locks, for
		// the goroutine that carries it out, and for its end.
		if most := 2*deadline + 4*r.Slack; r.Longest > most {
			t.Errorf("worker %d: a call took %v, with a deadline of %v; those who only waited took up to %v", i, r.Longest, deadline, deadline+r.Slack)
		}
	}
	for _, w := range total.Wrong[:min(5, len(total.Wrong))] {
		t.Errorf("%d things are wrong, like: %s", len(total.Wrong), w)
	}
	if s.settle != nil {
		s.settle(ctx)
	}
	bound := s.bounds(t, total, highest.Sub(lowest))
	once, charged, surely, chargedSurely := s.charged(ctx, t, total)
	if s.repeats && total.Repeats == 0 {
		t.Error("no call was repeated")
	}
	if total.Calls == 0 || total.Admitted["hot/k0"] == 0 {
		t.Error("nothing was done")
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }
	return fmt.Sprintf("%d | %d | %d | %d | %d | %d | %s | %s | %d + %d | %d | %d | %d", total.Calls, total.Admitted["hot/k0"], bound, total.Refused,
		total.Unsure, total.Repeats, ms(total.Longest), ms(deadline+total.Slack), once[0], once[1], charged, surely, chargedSurely)
}

// bounds checks each key that refills: B + rD by the server's clock, and one more burst for each
// loss of its state. While two servers take themselves for the master, both refill at r. It returns
// the bound of the hot key.
func (s *site) bounds(t *testing.T, total report, d time.Duration) (hot int64) {
	for at, admitted := range total.Admitted {
		name, _, _ := strings.Cut(at, "/")
		l, ok := refilled[name]
		if !ok {
			continue
		}
		gained := float64(l.Rate.N) / float64(l.Rate.Per) * float64(d+s.beside+time.Microsecond)
		bound := l.Burst*int64(1+s.losses) + int64(gained)
		if admitted > bound {
			t.Errorf("%s: %d admitted in %v, and %d losses; the bound is %d", at, admitted, d, s.losses, bound)
		}
		if name == "hot" {
			hot = bound
		}
	}
	return hot
}

// charged compares the admissions with the charges in the server, of the keys that never refill: no
// call was charged twice, and none was admitted without a charge. After a loss the server may have
// less.
func (s *site) charged(ctx context.Context, t *testing.T, total report) (once [2]int64, charged, surely, chargedSurely int64) {
	client, err := s.task.client()
	for err != nil && pass(ctx, 100*time.Millisecond) { // the master may have changed just now
		client, err = s.task.client()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store, err := weirrueidis.New(client, s.task.options())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	shared, err := faultShared(store)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(hurried[len(hurried)-2:], patient) {
		for n := range faultKeys[name] {
			d, err := shared[name].Peek(ctx, faultKey(n), 0)
			if err != nil {
				t.Fatal(err)
			}
			at := name + "/" + faultKey(n)
			admitted, unanswered, used := total.Admitted[at], total.Unanswered[at], d.Limit-d.Remaining
			if used > admitted+unanswered || used < admitted && s.losses == 0 {
				t.Errorf("%s: callers were admitted %d, and %d were not answered; the server charged %d", at, admitted, unanswered, used)
			}
			if slices.Contains(patient, name) {
				surely, chargedSurely = surely+admitted, chargedSurely+used
			} else {
				once[0], once[1], charged = once[0]+admitted, once[1]+unanswered, charged+used
			}
		}
	}
	return once, charged, surely, chargedSurely
}

// crew starts the workers, applies the fault, ends the workers, and returns their reports.
func (s *site) crew(ctx context.Context, t *testing.T) []report {
	t.Helper()
	all := make([]*worker, workers)
	reports := make([]report, workers)
	random := seeds.Of(t.Name())
	for i := range all {
		s.task.Seed = random.Uint64()
		w, err := hire(ctx, workerTask, s.task)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.end)
		all[i] = w
	}
	for i, w := range all {
		if err := w.ready(); err != nil {
			t.Fatalf("worker %d: %v", i, err)
		}
	}
	if _, _, err := s.clock(ctx); err != nil { // before the first call
		t.Fatal(err)
	}
	for _, w := range all {
		if _, err := io.WriteString(w.tell, begin); err != nil {
			t.Fatal(err)
		}
	}
	fault, cancel := context.WithTimeout(ctx, *faultsFor)
	defer cancel()
	if err := s.fault(fault); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	for _, w := range all {
		w.tell.Close()
	}
	for i, w := range all {
		var err error
		if reports[i], err = reportOf[report](w); err != nil {
			t.Errorf("worker %d: %v", i, err)
		}
	}
	return reports
}

// A worker is a process with a task.
type worker struct {
	cmd  *exec.Cmd
	tell io.WriteCloser // its standard input: closing it ends the worker
	out  *bufio.Reader
	errs bytes.Buffer
	wait func() error

	killed bool // killed by the test
}

// hire starts a worker: this program, with a task in an environment variable.
func hire(ctx context.Context, variable string, task any) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	h := &worker{cmd: exec.CommandContext(ctx, program)}
	h.cmd.Env = append(os.Environ(), variable+"="+string(text), "GORACE=atexit_sleep_ms=0") // races are still reported
	h.cmd.Stderr = &h.errs
	if h.tell, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h.out, h.wait = bufio.NewReader(out), sync.OnceValue(h.cmd.Wait)
	return h, h.cmd.Start()
}

// ready waits until the worker is connected.
func (w *worker) ready() error {
	line, err := w.out.ReadString('\n')
	if err == nil && line == atWork {
		return nil
	}
	return fmt.Errorf("%q: %w\n%s", line, errors.Join(err, w.wait()), w.errs.String())
}

// reportOf returns the report that a worker writes at its end.
func reportOf[R any](w *worker) (r R, err error) {
	text, err := io.ReadAll(w.out)
	if err := errors.Join(err, w.wait()); err != nil {
		return r, fmt.Errorf("%w\n%s", err, w.errs.String())
	}
	return r, json.Unmarshal(text, &r)
}

// end kills the worker if it has not ended.
func (w *worker) end() {
	w.tell.Close()
	w.cmd.Process.Kill()
	w.wait()
}

// serverClock reads the clock of a server.
func serverClock(s *servers.RedisServer) func(context.Context) (lowest, highest time.Time, err error) {
	var first time.Time
	return func(ctx context.Context) (lowest, highest time.Time, err error) {
		v, err := s.Do(ctx, "TIME")
		if err != nil {
			return first, first, err
		}
		list := v.([]any)
		sec, err := strconv.ParseInt(list[0].(string), 10, 64)
		if err != nil {
			return first, first, err
		}
		us, err := strconv.ParseInt(list[1].(string), 10, 64)
		now := time.UnixMicro(sec*1e6 + us)
		if first.IsZero() {
			first = now
		}
		return first, now, err
	}
}
