package sim

import (
	"bufio"
	"context"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/weirflow/weir"
	"github.com/weirflow/weir/internal/vclock"
	"github.com/weirflow/weir/policy"
)

// An Input is a log to read.
type Input struct {
	Name string
	// R has the log, also compressed with gzip or zstd. If it is an io.Seeker and the log is nearly in
	// order, Replay needs little memory, and no temporary files.
	R io.Reader
}

// Options are the parameters of Replay.
type Options struct {
	Policy policy.Policy
	Inputs []Input // merged by time; requests of the same time stay in this order
	Format *Format // of all inputs; default: found out for each of them

	// Zstd decompresses an input; default: such inputs are an error.
	Zstd func(io.Reader) (io.ReadCloser, error)

	// Decisions, if not nil, gets one line per request, in the order of the input: its line number,
	// counted from 1 through all inputs, a tab, allow, deny or delay, a tab, and the limit that
	// refused or delayed, or "-".
	Decisions io.Writer

	// EstimateField and CostField are the fields of JSON lines with what a request was estimated to
	// cost, and what it did cost. Fields of objects are written with dots. default: estimated_cost and
	// actual_cost
	EstimateField string
	CostField     string

	// Profiles makes the report have what is told of clients by their requests: Heat and Doing. It takes
	// about half a KiB for each client.
	Profiles bool

	// Progress, if not nil, is called now and then with the numbers of requests read and decided so
	// far.
	Progress func(read, decided int64)

	MaxLine int    // the longest line in bytes; default: 256 KiB
	Memory  int    // memory for sorting, in bytes; default: 256 MiB
	TempDir string // for sorting larger logs; default: the system's

	window, windowBytes int  // for tests; default: the constants
	poison              bool // for tests: see memory
}

const (
	defaultMaxLine = 256 << 10
	defaultMemory  = 256 << 20
	showUnparsed   = 3
	// unbounded keeps every limited key, so that the report is exact. Memory grows with the number
	// of limited clients.
	unbounded = math.MaxInt
)

// defaults sets what is not set.
func (o *Options) defaults() {
	if o.MaxLine == 0 {
		o.MaxLine = defaultMaxLine
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
}

// Replay runs access logs through a policy, in the order of their times, on a virtual clock.
// Unreadable lines are counted and skipped. When the context ends, Replay returns its error. If an
// input cannot be read to its end, Replay returns an error together with the report of what it has
// read.
func Replay(ctx context.Context, o Options) (*Report, error) {
	r := &replay{o: &o}
	defer r.close()
	l := layoutFor(o.Policy)
	l.profiles = o.Profiles
	readErr, err := runPass(ctx, &o, l, r)
	if err != nil {
		return nil, err
	}
	r.report.count(r.engine)
	r.report.Adaptive, r.report.NoDuration = r.run.adaptive[r.engine].count()
	return r.report, readErr
}

// replay is the pass of Replay.
type replay struct {
	o         *Options
	run       *runner
	engine    *policy.Engine
	report    *Report
	counter   *counter
	shadows   shadows
	decisions *sorter // only if the log was out of order
	out       *bufio.Writer
	scratch   []byte // for encoding a decision
}

func (r *replay) start(run *runner) (err error) {
	r.close()
	r.run, r.report = run, newReport(&r.o.Policy)
	r.shadows = shadows{limitOf: r.report.limitOf}
	if r.o.Profiles {
		r.report.visitors = newClientTable[visitor](suggestClients)
	}
	r.counter = newCounter(r.report, run.reuses(), run.memory.put)
	run.spent = r.counter.spent
	o := policy.Options{Keys: true, Parts: true, MaxKeys: unbounded}
	for _, l := range r.o.Policy.Limits {
		if l.Shadow || l.RollOut != "" {
			o.Observer = &r.shadows
		}
	}
	r.engine, err = newEngine(r.o.Policy, run.clock, o)
	if err == nil && r.o.Decisions != nil {
		r.out = bufio.NewWriterSize(r.o.Decisions, 1<<16)
	}
	return err
}

func (r *replay) close() {
	if r.engine != nil {
		r.engine.Close()
		r.engine = nil
	}
	if r.counter != nil {
		r.counter.close()
		r.counter = nil
	}
	if r.decisions != nil {
		r.decisions.close()
	}
}

// newEngine returns an engine on a virtual clock.
func newEngine(p policy.Policy, clock *vclock.Clock, o policy.Options) (*policy.Engine, error) {
	p.Plans.Unknown = policy.UnknownDefault // a log has no credentials
	o.Clock = clock.Now
	o.Timers = func(d time.Duration, f func()) weir.Timer { return clock.AfterFunc(d, f) }
	return policy.New(p, o)
}

func (r *replay) decide(q *query) error {
	v, err := r.run.decide(r.engine, q)
	if err != nil {
		return err
	}
	r.counter.add(q, &v, r.shadows.refused)
	r.shadows.refused = r.shadows.refused[:0]
	if r.out == nil {
		return nil
	}
	if r.decisions == nil && !r.run.requests.ordered {
		r.decisions = newSorter(r.o.TempDir, r.o.Memory)
	}
	r.scratch = appendDecision(r.scratch[:0], q.line, &v)
	if r.decisions != nil {
		return r.decisions.add(q.line, r.scratch)
	}
	_, err = r.out.Write(r.scratch)
	return err
}

// end writes the remaining decisions.
func (r *replay) end(u *Reading) error {
	r.counter.close()
	r.counter = nil
	r.report.read(u)
	if r.out == nil {
		return nil
	}
	if r.decisions != nil {
		if err := r.decisions.each(func(_ int64, line string) error {
			_, err := r.out.WriteString(line)
			return err
		}); err != nil {
			return err
		}
	}
	return r.out.Flush()
}

// appendDecision writes a line of Options.Decisions.
func appendDecision(b []byte, line int64, v *policy.Verdict) []byte {
	word, limit := "allow", "-"
	switch v.Outcome {
	case policy.Deny, policy.Invalid:
		word, limit = "deny", v.Limit
	case policy.Delay:
		word, limit = "delay", v.Limit
	}
	b = strconv.AppendInt(b, line, 10)
	b = append(append(b, '\t'), word...)
	b = append(append(b, '\t'), limit...)
	return append(b, '\n')
}
