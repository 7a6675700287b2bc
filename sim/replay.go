package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// Options are what a replay is given.
type Options struct {
	Policy policy.Policy
	Inputs []Input // read in this order, and counted as one log

	// Decisions, if not nil, gets a line for each request, in the order of the input: the number of its line, counted from 1 through all
	// inputs, a tab, allow, deny or delay, a tab, and the limit that denied or delayed, or "-".
	Decisions io.Writer

	// Progress, if not nil, is called now and then: how many requests have been read, and how many of them decided.
	Progress func(read, decided int64)

	MaxLine int    // the longest line in bytes; 0 means 256 KiB
	Memory  int    // how much to keep in memory for sorting, in bytes; 0 means 256 MiB
	TempDir string // where to sort what is larger; empty is the system's
}

const (
	defaultMaxLine = 256 << 10
	defaultMemory  = 256 << 20
	showUnparsed   = 5
	// unbounded lets a replay keep every key that is limited: what it tells is to be exact. Memory follows the number of clients in debt.
	unbounded = math.MaxInt
)

// Replay runs access logs through a policy, in time order, on a virtual clock. Lines that cannot be read are counted and passed over.
// It ends with the context's error when the context does. An input that cannot be read to its end is an error that comes with the
// report of what was read.
func Replay(ctx context.Context, o Options) (*Report, error) {
	if o.MaxLine == 0 {
		o.MaxLine = defaultMaxLine
	}
	if o.Memory == 0 {
		o.Memory = defaultMemory
	}
	clock := new(vclock.Clock)
	engine, err := policy.New(o.Policy, policy.Options{
		Clock:   clock.Now,
		Timers:  func(d time.Duration, f func()) weir.Timer { return clock.AfterFunc(d, f) },
		MaxKeys: unbounded,
	})
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	r := &replay{Options: o, ctx: ctx, clock: clock, engine: engine, report: newReport(), headers: usesHeaders(o.Policy)}
	r.lines = newSorter(o.TempDir, o.Memory)
	defer r.lines.close()
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

// replay is a replay under way.
type replay struct {
	Options
	ctx       context.Context
	clock     *vclock.Clock
	engine    *policy.Engine
	report    *Report
	headers   bool // the policy looks at header fields
	lines     *sorter
	decisions *sorter // where the log was not in order
	out       *bufio.Writer
	line      int64 // how many were read
}

// usesHeaders reports whether a policy looks at header fields, which are not worth gathering otherwise.
func usesHeaders(p policy.Policy) bool {
	return slices.ContainsFunc(p.Limits, func(l policy.Limit) bool {
		return strings.HasPrefix(l.Cost, "header.") || slices.ContainsFunc(l.Key, func(part string) bool {
			return strings.HasPrefix(part, "header.") || strings.HasPrefix(part, "cookie.")
		})
	})
}

// read gathers the lines of all inputs with their times.
func (r *replay) read() error {
	for _, in := range r.Inputs {
		if err := r.readInput(in); err != nil {
			return fmt.Errorf("%s: %w", in.Name, err)
		}
	}
	return nil
}

func (r *replay) readInput(in Input) error {
	raw := bufio.NewReaderSize(in.R, 1<<16)
	src := raw
	if magic, err := raw.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(raw)
		if err != nil {
			return fmt.Errorf("it begins like gzip and is not: %w", err)
		}
		defer z.Close()
		src = bufio.NewReaderSize(z, 1<<16)
	}
	var cache timeCache
	var payload []byte
	for {
		text, tooLong, err := readLine(src, r.MaxLine)
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
		at, err := lineTime(text, &cache)
		if tooLong {
			err = fmt.Errorf("the line is longer than %d bytes", r.MaxLine)
		}
		if err != nil {
			r.report.unparsed(r.line, string(text), err)
			continue
		}
		payload = binary.AppendUvarint(payload[:0], uint64(r.line))
		payload = append(payload, text...)
		if err := r.lines.add(at, payload); err != nil {
			return err
		}
	}
}

// readLine reads a line without its end. Of one that is too long it returns the beginning.
func readLine(src *bufio.Reader, longest int) (line []byte, tooLong bool, err error) {
	line, err = src.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		long := slices.Clone(line)
		for err == bufio.ErrBufferFull {
			line, err = src.ReadSlice('\n')
			if len(long) <= longest {
				long = append(long, line...)
			}
		}
		line = long
	}
	if err == io.EOF && len(line) > 0 {
		err = nil
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	if len(line) > longest {
		return line[:longest], true, err
	}
	return line, false, err
}

// progress tells how far the replay is.
func (r *replay) progress(decided int64) {
	if r.Progress != nil {
		r.Progress(r.lines.count, decided)
	}
}

// decide takes the lines in the order of their times.
func (r *replay) decide() error {
	if r.Decisions != nil {
		r.out = bufio.NewWriterSize(r.Decisions, 1<<16)
		if !r.lines.ordered {
			r.decisions = newSorter(r.TempDir, r.Memory)
			defer r.decisions.close()
		}
	}
	var decided int64
	err := r.lines.each(func(at int64, payload []byte) error {
		if decided++; decided%4096 == 0 {
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			r.progress(decided)
		}
		line, n := binary.Uvarint(payload)
		return r.one(int64(line), string(payload[n:]))
	})
	if err != nil {
		return err
	}
	r.progress(decided)
	return r.finish()
}

// one decides about one line.
func (r *replay) one(line int64, text string) error {
	e, err := ParseLine(text)
	if err != nil {
		r.report.unparsed(line, text, err)
		return nil
	}
	r.clock.Set(e.Time)
	path, query, _ := strings.Cut(e.Target, "?")
	req := policy.Request{Method: e.Method, Host: e.Host, Path: path, Query: query, Client: policy.ClientKeyOf(e.Client), Length: max(e.Length, 0)}
	if r.headers {
		req.Header = e.Header
		if req.Header == nil {
			req.Header = http.Header{}
		}
	}
	v := r.engine.Decide(req)
	r.report.add(e.Time, &v)
	if r.out == nil {
		return nil
	}
	decision := appendDecision(nil, line, &v)
	if r.decisions != nil {
		return r.decisions.add(line, decision)
	}
	_, err = r.out.Write(decision)
	return err
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
	return append(b, "\t"+word+"\t"+limit+"\n"...)
}

// finish writes what is left of the decisions.
func (r *replay) finish() error {
	if r.out == nil {
		return nil
	}
	if r.decisions != nil {
		if err := r.decisions.each(func(_ int64, line []byte) error {
			_, err := r.out.Write(line)
			return err
		}); err != nil {
			return err
		}
	}
	return r.out.Flush()
}
