package sim

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
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
	R    io.Reader // gzip is recognised
}

// Options are the parameters of Replay.
type Options struct {
	Policy policy.Policy
	Inputs []Input // read in this order, as one log

	// Decisions, if not nil, gets one line per request, in the order of the input: its line number,
	// counted from 1 through all inputs, a tab, allow, deny or delay, a tab, and the limit that
	// refused or delayed, or "-".
	Decisions io.Writer

	// EstimateField and CostField are the fields of JSON lines with what a request was estimated to
	// cost, and what it did cost. Fields of objects are written with dots. default: estimated_cost and
	// actual_cost
	EstimateField string
	CostField     string

	// Progress, if not nil, is called now and then with the numbers of requests read and decided so
	// far.
	Progress func(read, decided int64)

	MaxLine int    // the longest line in bytes; default: 256 KiB
	Memory  int    // memory for sorting, in bytes; default: 256 MiB
	TempDir string // for sorting larger logs; default: the system's
}

const (
	defaultMaxLine = 256 << 10
	defaultMemory  = 256 << 20
	showUnparsed   = 5
	// unbounded keeps every limited key, so that the report is exact. Memory grows with the number
	// of limited clients.
	unbounded = math.MaxInt
)

// Replay runs access logs through a policy, in the order of their times, on a virtual clock.
// Unreadable lines are counted and skipped. When the context ends, Replay returns its error. If an
// input cannot be read to its end, Replay returns an error together with the report of what it has
// read.
func Replay(ctx context.Context, o Options) (*Report, error) {
	if o.MaxLine == 0 {
		o.MaxLine = defaultMaxLine
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	clock := new(vclock.Clock)
	o.Policy.Plans.Unknown = policy.UnknownDefault // a log has no credentials
	engine, err := policy.New(o.Policy, policy.Options{
		Keys:    true,
		Parts:   true,
		Clock:   clock.Now,
		Timers:  func(d time.Duration, f func()) weir.Timer { return clock.AfterFunc(d, f) },
		MaxKeys: unbounded,
	})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	r := &replay{Options: o, ctx: ctx, clock: clock, engine: engine, report: newReport(), layout: layoutFor(o.Policy)}
	r.requests = newSorter(o.TempDir, o.Memory)
	defer r.requests.close()
	readErr := r.read()
	if readErr != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := r.decide(); err != nil {
		return nil, err
	}
	r.report.count(engine)
	return r.report, readErr
}

// replay is a running replay.
type replay struct {
	Options
	ctx       context.Context
	clock     *vclock.Clock
	engine    *policy.Engine
	report    *Report
	layout    layout
	requests  *sorter
	decisions *sorter // only if the log was out of order
	out       *bufio.Writer
	line      int64  // lines read so far
	last      int64  // when the last response ends
	scratch   []byte // for encoding a record or a decision
}

// read collects the requests of all inputs with their times.
func (r *replay) read() error {
	for _, in := range r.Inputs {
		if err := r.readInput(in); err != nil {
			return fmt.Errorf("%s: %w", in.Name, err)
		}
	}
	return nil
}

func (r *replay) readInput(in Input) error {
	raw := bufio.NewReaderSize(in.R, blockSize)
	var src io.Reader = raw
	if magic, err := raw.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(raw)
		if err != nil {
			return fmt.Errorf("the file starts like gzip, but is not valid gzip: %w", err)
		}
		defer z.Close()
		src = z
	}
	lines := newLineReader(src, r.MaxLine)
	p := parser{headers: r.layout.headers(), responses: r.layout.costs, estimate: r.EstimateField, cost: r.CostField}
	for {
		text, tooLong, err := lines.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		r.line++
		if r.line%4096 == 0 {
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			r.progress(0)
		}
		if tooLong {
			r.report.unparsed(r.line, text, fmt.Errorf("the line is longer than %d bytes", r.MaxLine))
			continue
		}
		e, err := p.parse(text)
		if err != nil {
			r.report.unparsed(r.line, text, err)
			continue
		}
		r.scratch = r.layout.append(r.scratch[:0], r.line, &e)
		if err := r.requests.add(e.Time, r.scratch); err != nil {
			return err
		}
	}
}

// progress reports how far the replay is.
func (r *replay) progress(decided int64) {
	if r.Progress != nil {
		r.Progress(r.requests.count, decided)
	}
}

// decide decides all requests in the order of their times.
func (r *replay) decide() error {
	if r.Decisions != nil {
		r.out = bufio.NewWriterSize(r.Decisions, 1<<16)
		if !r.requests.ordered {
			r.decisions = newSorter(r.TempDir, r.Memory)
			defer r.decisions.close()
		}
	}
	var decided int64
	err := r.requests.each(func(at int64, record string) error {
		if decided++; decided%4096 == 0 {
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			r.progress(decided)
		}
		return r.decideOne(at, record)
	})
	if err != nil {
		return err
	}
	r.progress(decided)
	r.clock.Set(max(r.clock.Now(), r.last))
	return r.finish()
}

// decideOne decides one request.
func (r *replay) decideOne(at int64, record string) error {
	line, req, res := r.layout.read(record)
	r.clock.Set(at)
	v := r.decideRequest(&req, &res)
	r.report.add(at, &v)
	if r.out == nil {
		return nil
	}
	r.scratch = appendDecision(r.scratch[:0], line, &v)
	if r.decisions != nil {
		return r.decisions.add(line, r.scratch)
	}
	_, err := r.out.Write(r.scratch)
	return err
}

// decideRequest decides one request, and has its charges settled when its response ends.
func (r *replay) decideRequest(req *policy.Request, res *Response) policy.Verdict {
	if !r.layout.costs {
		v := r.engine.Decide(*req)
		v.KeepEstimates()
		if v.CountsBytes() {
			v.SettleBytes(0) // a log without the length of a body
		}
		return v
	}
	m := r.engine.Match(*req)
	m.LoggedBody([]byte(res.Body))
	v := r.engine.DecideMatch(r.ctx, &m)
	if v.CountsBytes() {
		v.SettleBytes(0)
	}
	if meter := v.Meter(); meter != nil {
		logged := res.Logged
		d := max(v.Delay, 0) + max(logged.Duration, 0)
		r.last = max(r.last, r.clock.Now()+int64(d))
		r.clock.AfterFunc(d, func() { meter.EndLogged(logged) })
	}
	return v
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

// finish writes the remaining decisions.
func (r *replay) finish() error {
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
